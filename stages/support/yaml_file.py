"""Reading a YAML file that must be a mapping."""

from pathlib import Path
from typing import Any

import yaml

from disect_sim.errors import InputError


def read_mapping(path: Path) -> dict[str, Any]:
    """The file's top-level mapping; InputError if it can't be read or is something else."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
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
