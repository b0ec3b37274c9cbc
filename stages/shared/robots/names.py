"""Which robots there are: one data file each, <name>.json in this folder."""

import json
from pathlib import Path

FOLDER = Path(__file__).parent

ROBOTS = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""Names that `robot` in params.yaml may have."""


def edge_limits(name: str) -> dict[str, float]:
    """Speed [m/s], accelerations [m/s²] and rise time [s] of the edge that a search uses with this robot."""
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    limits: dict[str, float] = content["edge_limits"]
    return limits
