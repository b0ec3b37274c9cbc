"""No-contact runs that belong to a force log: found beside it, kept together in the scan's directory air/."""

import re
from collections.abc import Sequence
from pathlib import Path

from disect_sim.errors import InputError

FOLDER = "air"
"""In the scan's directory."""
SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def beside(log: Path) -> list[Path]:
    """Files called air* with the log's ending, in its directory: air.json, air2.json beside cut.json."""
    found = (path for path in log.parent.glob(f"air*{log.suffix}") if path.is_file())
    return sorted(path for path in found if path.name != log.name)


def check(sources: Sequence[Path]) -> None:
    """Refuse what can't be read."""
    for source in sources:
        if not source.is_file():
            raise InputError(f"{source} is not a file that can be read. Give the path of a no-contact run.")


def stored_names(sources: Sequence[Path]) -> dict[str, Path]:
    """Name in air/ → source: its own name, or a number where names repeat or hold odd characters."""
    names = [source.name for source in sources]
    if len(set(names)) == len(names) and all(SAFE_NAME.fullmatch(name) for name in names):
        return dict(zip(names, sources, strict=True))
    return {f"{i:03}{source.suffix.lower()}": source for i, source in enumerate(sources, start=1)}
