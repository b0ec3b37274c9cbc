"""How the logs of further cuts are called in a scan's directory: 2-log.json, 2-air-air1.json, 3-log.csv, …"""

from dataclasses import dataclass
from pathlib import Path

LOGS_NOTE = "sha256 of logs"
"""Note in ingest's tables: the digests of the logs that are in it, separated by blanks."""


@dataclass(frozen=True)
class FurtherLog:
    """One cut beside the first."""

    number: int
    """2 for the second cut."""
    log: Path
    air: list[Path]
    """Its no-contact runs."""


def log_name(number: int, suffix: str) -> str:
    """Of a cut's log."""
    return f"{number}-log{suffix}"


def air_name(number: int, name: str) -> str:
    """Of one of its no-contact runs."""
    return f"{number}-air-{name}"


def further_logs(folder: Path) -> list[FurtherLog]:
    """What the folder holds, in order; nothing if it is none."""
    if not folder.is_dir():
        return []
    found = []
    for log in folder.glob("*-log*"):
        number = int(log.name.partition("-")[0])
        found.append(FurtherLog(number, log, sorted(folder.glob(air_name(number, "*")))))
    return sorted(found, key=lambda each: each.number)
