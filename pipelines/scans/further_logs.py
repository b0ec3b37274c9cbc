"""Logs of further cuts of a scan's fruit, each with its no-contact runs, kept together in further_logs/."""

from collections.abc import Sequence
from pathlib import Path

from disect_sim.errors import InputError
from pipelines.scans import air_runs
from stages.runtime.hashing import sha256_of_file
from stages.shared.inputs.further_logs import air_name, log_name

FOLDER = "further_logs"
"""In the scan's directory."""


def check_different(logs: Sequence[Path]) -> None:
    """Refuse a log that is given twice: one cut would count as two."""
    seen: dict[str, Path] = {}
    for log in filter(Path.is_file, logs):
        digest = sha256_of_file(log)
        if digest in seen:
            raise InputError(
                f"{log} is the same log as {seen[digest]}. Every --log is a cut of its own, or one cut would count "
                "twice. Give it once."
            )
        seen[digest] = log


def stored_names(logs: Sequence[Path]) -> dict[str, Path]:
    """Name in further_logs/ → source: the second cut's log, its no-contact runs, and so on."""
    out: dict[str, Path] = {}
    for number, log in enumerate(logs, start=2):
        if not log.is_file():
            raise InputError(f"{log} is not a file that can be read. Give the path of a force log.")
        out[log_name(number, log.suffix.lower())] = log
        beside = air_runs.stored_names(air_runs.beside(log))
        out |= {air_name(number, name): source for name, source in beside.items()}
    return out
