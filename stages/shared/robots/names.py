"""Which robots there are: one data file each, <name>.json in this folder."""

import json
from pathlib import Path

FOLDER = Path(__file__).parent

ROBOTS = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""Names that `robot` in params.yaml may have."""


def edge_limits(name: str) -> dict[str, float]:
    """Speed [m/s] and accelerations [m/s²] of the knife's edge that a search may use with this robot."""
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    limits: dict[str, float] = content["edge_limits"]
    return limits
