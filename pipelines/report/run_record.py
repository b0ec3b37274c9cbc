"""run.json: how the last run of a scan went, and how long each stage took when it last really ran."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from stages.runtime.atomic_file import write_bytes_atomic

RUN_FILE_NAME = "run.json"


@dataclass(frozen=True)
class RunRecord:
    """One run."""

    finished: str = ""
    """Local time, ISO 8601; empty if no run was recorded."""
    ok: bool | None = None
    """None: no run was recorded."""
    error: str | None = None
    failed_stage: str | None = None
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Stage → outcome and seconds in this run, in order."""
    computed_s: dict[str, float] = field(default_factory=dict)
    """Stage → seconds of its last real computation, kept over runs that found it unchanged."""


def read_run_record(scan_dir: Path) -> RunRecord:
    """The record, an empty one if there is none that can be read."""
    try:
        content = json.loads((scan_dir / RUN_FILE_NAME).read_text(encoding="utf-8"))
        return RunRecord(**content)
    except (OSError, ValueError, TypeError):
        return RunRecord()


def write_run_record(
    scan_dir: Path,
    *,
    reports: Sequence[tuple[str, str, float, bool]],
    error: str | None,
    failed_stage: str | None,
) -> RunRecord:
    """Write the record of a run; reports are (stage, outcome, seconds, cached) of those that succeeded."""
    computed = dict(read_run_record(scan_dir).computed_s)
    computed |= {name: seconds for name, _, seconds, cached in reports if not cached}
    record = RunRecord(
        finished=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        ok=error is None,
        error=error,
        failed_stage=failed_stage,
        stages={name: {"outcome": outcome, "seconds": seconds} for name, outcome, seconds, _ in reports},
        computed_s=computed,
    )
    write_bytes_atomic(scan_dir / RUN_FILE_NAME, (json.dumps(asdict(record), indent=1) + "\n").encode())
    return record
