"""Viewers that are not installed with scan2cut."""

from importlib import import_module
from typing import Any

from disect_sim.errors import InputError


def need(module: str, extra: str) -> Any:
    """The module, or a sentence that says how to get it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise InputError(
            f"view: the package {module.partition('.')[0]!r} is not installed. This format needs it. "
            f"Install it with: pip install 'scan2cut[{extra}]'"
        ) from error
