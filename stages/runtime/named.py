"""Names in params.yaml that stand for an entry of a table: checked against it, loaded when it is used.

A table can thus be read by the command line, which must not import torch or SciPy.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from pydantic import AfterValidator


def one_of(names: Iterable[str]) -> AfterValidator:
    """For a field `Annotated[str, one_of(TABLE)]`: refuses every other name by a sentence that lists these."""
    known = tuple(names)

    def check(name: str) -> str:
        if name not in known:
            raise ValueError(f"it must be one of {', '.join(known)}")
        return name

    return AfterValidator(check)


def load(place: str) -> Any:
    """What "package.module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
