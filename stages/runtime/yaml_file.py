"""Reading untrusted YAML: plain values only, bounded in size, no aliases."""

import os
import re
import stat
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from disect_sim.errors import InputError

MAX_BYTES = 10_000_000
"""A dvc.lock with a hundred outputs has 20 kB."""

REMEMBERED = 8
"""Texts whose value is kept: a run reads the same template, parameters and dvc.lock for every stage, and PyYAML needs a
third of a second for each. Only the same text gives the same value, so a changed file is never missed."""


class _PlainLoader(yaml.SafeLoader):
    """Refuses aliases, a few lines of which can stand for billions of values, and keys that are given twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(
                f"line {mark.line + 1} refers to another place with '*', which is not read here"
            )
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.YAMLError(
                    f"line {key.start_mark.line + 1} gives {key.value[:80]!r} a second time, and one of both would be "
                    "ignored"
                )
            seen.add((key.tag, key.value))
        return node


_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
"""1e-3 is a number, as in YAML 1.2; PyYAML follows 1.1, where it is text."""


class PlainDumper(yaml.SafeDumper):
    """Writes every value in full, so that what is written can be read back."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 -- PyYAML's signature
        """Never write an alias."""
        return True


def parse_yaml(text: str) -> Any:
    """The text's value; yaml.YAMLError if it is no YAML, has aliases, or is nested too deeply."""
    return deepcopy(_parsed(text))


@lru_cache(maxsize=REMEMBERED)
def _parsed(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except RecursionError as error:
        raise yaml.YAMLError("it nests values too deeply") from error
    except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError) as error:
        # PyYAML lets errors of the values through: a 13th month, a number of 5,000 digits, a tag on the wrong value
        raise yaml.YAMLError(f"a value in it can't be read: {str(error)[:120]}") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """The file's top-level mapping; InputError if it can't be read or is something else."""
    try:
        content = parse_yaml(_bounded_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} can't be read ({error}). It must be a YAML text file. Restore it."
        ) from error
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise InputError(f"{path} is not valid YAML ({where}). Correct that line.") from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise InputError(f"{path} holds a {kind}, not a mapping. It must be 'key: value' lines. Restore it.")
    return content


def _bounded_text(path: Path) -> str:
    """The text of a regular file: a pipe would be waited for, and a device such as /dev/zero has no end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise InputError(f"{path} is not a regular file. It must be a YAML text file. Restore it.")
    with open(handle, encoding="utf-8") as file:
        if found.st_size > MAX_BYTES:
            raise InputError(
                f"{path} has {found.st_size / 1e6:.0f} MB. At most {MAX_BYTES / 1e6:.0f} MB of YAML are read. "
                "Restore it."
            )
        return file.read(MAX_BYTES)
