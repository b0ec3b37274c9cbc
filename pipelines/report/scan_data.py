"""What a scan's directory holds for a reader: every part may be missing or broken."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.dvc.repair import recorded_stages
from pipelines.project import Project
from stages.runtime.artifacts import read_metrics, read_table
from stages.runtime.catalogue import ARTIFACTS
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping, write_bytes_atomic
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME

# run.json: how the last run of a scan went, and how long each stage took when it last really ran.


_RUN_FILE_NAME = "run.json"


@dataclass(frozen=True)
class _RunRecord:
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


def read_run_record(scan_dir: Path) -> _RunRecord:
    """The record, an empty one if there is none that can be read."""
    try:
        content = json.loads((scan_dir / _RUN_FILE_NAME).read_text(encoding="utf-8"))
        return _RunRecord(**content)
    except (OSError, ValueError, TypeError):
        return _RunRecord()


def write_run_record(
    scan_dir: Path,
    *,
    reports: Sequence[tuple[str, str, float, bool]],
    error: str | None,
    failed_stage: str | None,
) -> _RunRecord:
    """Write the record of a run; reports are (stage, outcome, seconds, cached) of those that succeeded."""
    computed = dict(read_run_record(scan_dir).computed_s)
    computed |= {name: seconds for name, _, seconds, cached in reports if not cached}
    record = _RunRecord(
        finished=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        ok=error is None,
        error=error,
        failed_stage=failed_stage,
        stages={name: {"outcome": outcome, "seconds": seconds} for name, outcome, seconds, _ in reports},
        computed_s=computed,
    )
    write_bytes_atomic(scan_dir / _RUN_FILE_NAME, (json.dumps(asdict(record), indent=1) + "\n").encode())
    return record


_CUT_FOLDERS = ("certified", "refused")
_CUT_DOCUMENT = "cut.json"


@dataclass
class ScanData:
    """Reads artifacts by their catalogue name; what can't be read is None and noted in `problems`."""

    project: Project
    scan_id: str
    problems: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The scan's directory."""
        return self.project.scan_dir(self.scan_id)

    def metrics(self, stage: str) -> dict[str, Any]:
        """The stage's metrics, empty if it has not run."""
        path = self.folder / ARTIFACTS[f"{stage}/metrics"].path
        return (self._try(lambda: read_metrics(path)) or {}) if path.is_file() else {}

    def table(self, name: str) -> pl.DataFrame | None:
        """The table, None if its stage has not run, or if it has no rows."""
        if not (self.folder / ARTIFACTS[name].path).is_file():
            return None
        found: pl.DataFrame | None = self._try(lambda: read_table(self.folder, name))
        return None if found is None or found.is_empty() else found

    def picture(self, stage: str) -> bytes | None:
        """The stage's preview."""
        path = self.folder / ARTIFACTS[f"{stage}/preview"].path
        data = path.read_bytes() if path.is_file() else b""
        return data if data.startswith(b"\x89PNG") else None

    @cached_property
    def cut(self) -> dict[str, Any]:
        """The export's cut.json, certified or refused; empty if there is none."""
        for name in _CUT_FOLDERS:
            path = self.folder / ARTIFACTS["export/cut"].path / name / _CUT_DOCUMENT
            if path.is_file():
                found = self._try(lambda path=path: json.loads(path.read_text(encoding="utf-8")))
                return found if isinstance(found, dict) else {}
        return {}

    @cached_property
    def run(self) -> _RunRecord:
        """How the last run went, as far as it was recorded."""
        return read_run_record(self.folder)

    @cached_property
    def scan_yaml(self) -> dict[str, Any]:
        """scan.yaml."""
        return self._try(lambda: dict(read_mapping(self.folder / SCAN_FILE_NAME))) or {}

    @cached_property
    def lock(self) -> dict[str, Any]:
        """The stages in dvc.lock."""
        return self._try(lambda: recorded_stages(self.folder)) or {}

    def used(self, stage: str) -> dict[str, Any]:
        """The parameters that the stage ran with, as DVC recorded them; what params.yaml says now if it has not run."""
        recorded = self.lock.get(stage, {}).get("params", {})
        path = self.project.root / PARAMS_FILE_NAME
        shared = recorded.get(PARAMS_FILE_NAME) or (
            self._try(lambda: read_mapping(path)) if path.is_file() else {}
        )
        own = next((v for k, v in recorded.items() if k.endswith(SCAN_FILE_NAME)), self.scan_yaml)
        return {**((shared or {}).get(stage) or {}), **(own.get(stage) or {})}

    def _try(self, read: Any) -> Any:
        try:
            return read()
        except (InputError, OSError, ValueError) as error:
            sentence = str(error)
            if sentence not in self.problems:
                self.problems.append(sentence)
            return None
