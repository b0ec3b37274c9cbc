"""Which robots there are: one data file each, <name>.json in this folder."""

from pathlib import Path

FOLDER = Path(__file__).parent

ROBOTS = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""Names that `robot` in params.yaml may have."""
