"""Parsing `--set stage.parameter=value`."""

from collections.abc import Sequence
from typing import Any

import yaml

from disect_sim.errors import InputError
from stages.runtime.params import shown
from stages.runtime.yaml_file import parse_yaml


def parse_overrides(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """['clean.unit=mm'] → {'clean': {'unit': 'mm'}}; values are YAML, so 0.5, null and [1, 2] work."""
    overrides: dict[str, dict[str, Any]] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        stage, dot, key = path.strip().partition(".")
        if not (equals and dot and stage and key):
            raise InputError(
                f"--set {shown(setting)} can't be read. It must be stage.parameter=value, as in clean.unit=mm."
            )
        try:
            overrides.setdefault(stage, {})[key] = parse_yaml(text)
        except yaml.YAMLError as error:
            raise InputError(
                f"--set {shown(path)}: {shown(text)} is not a value. Give a number, a word or a list."
            ) from error
    return overrides
