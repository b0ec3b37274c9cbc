"""Read a scan's results for the report; any of them may be missing or corrupt. Also reads and writes run.json."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
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
from stages.runtime.files import read_mapping, sha256_of_file, write_bytes_atomic
from stages.runtime.scan_file import PARAMS_FILE_NAME, SCAN_FILE_NAME

# run.json: result of the last run and time of each stage's last computation.


_RUN_FILE_NAME = "run.json"


@dataclass(frozen=True)
class _RunRecord:
    """Record of one run."""

    finished: str = ""
    """Local time, ISO 8601; empty if no run was recorded."""
    ok: bool | None = None
    """None: no run was recorded."""
    error: str | None = None
    failed_stage: str | None = None
    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Stage → outcome and seconds in this run, in order."""
    computed_s: dict[str, float] = field(default_factory=dict)
    """Stage → seconds of its last computation; kept while it is unchanged."""


def _read_run_record(scan_dir: Path) -> _RunRecord:
    """Return the record; an empty one if it is missing or unreadable."""
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
    """Write the record of a run; `reports` are (stage, outcome, seconds, cached) of the completed stages."""
    computed = dict(_read_run_record(scan_dir).computed_s)
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
    _append_run(scan_dir, record, [name for name, _, _, cached in reports if not cached])
    return record


# runs.jsonl: one line per run, for `scan2cut history`.


_RUNS_FILE_NAME = "runs.jsonl"
_FIGURES = {
    "calibrate": ("nmae", "nmae_forecast"),
    "optimize": ("mean_force_vertical_n", "mean_force_optimized_n", "reduction"),
    "export": ("outcome",),
}
"""Stage → metrics that a history shows."""


def main_figures(read: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the main figures, such as optimize.reduction, from a function that returns a stage's metrics."""
    return {
        f"{stage}.{name}": metrics[name]
        for stage, names in _FIGURES.items()
        for metrics in [read(stage)]
        for name in names
        if metrics.get(name) is not None
    }


def read_runs(scan_dir: Path) -> list[dict[str, Any]]:
    """Return the recorded runs, oldest first; lines that a power cut left incomplete are skipped."""
    path = scan_dir / _RUNS_FILE_NAME
    runs = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
        try:
            runs.append({"finished": "", **json.loads(line)})
        except (ValueError, TypeError):
            continue
    return runs


def _append_run(scan_dir: Path, record: _RunRecord, computed: list[str]) -> None:
    def metrics(stage: str) -> Mapping[str, Any]:
        path = scan_dir / ARTIFACTS[f"{stage}/metrics"].path
        return read_metrics(path) if path.is_file() else {}

    line = {
        "finished": record.finished,
        "ok": record.ok,
        "error": record.error,
        "computed": computed,
        "settings": flat(read_mapping(scan_dir / SCAN_FILE_NAME)),
        "files": _raw_digests(scan_dir),
        "params": _digest(scan_dir.parents[2] / PARAMS_FILE_NAME),
        "figures": main_figures(metrics),
    }
    with (scan_dir / _RUNS_FILE_NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _raw_digests(scan_dir: Path) -> dict[str, str]:
    """Return the first characters of the sha256 of the raw scan and log by their role."""
    scan = read_mapping(scan_dir / SCAN_FILE_NAME)
    return {role: _digest(scan_dir / str(scan[role])) for role in ("scan", "log") if scan.get(role)}


def _digest(path: Path) -> str:
    return sha256_of_file(path)[:12] if path.is_file() else ""


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested mappings as one with dotted keys."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {
        name: leaf
        for key, item in value.items()
        for name, leaf in flat(item, f"{prefix}.{key}" if prefix else str(key)).items()
    }


_CUT_FOLDERS = ("certified", "refused")
_CUT_DOCUMENT = "cut.json"


@dataclass
class ScanData:
    """Read artifacts by catalogue name; unreadable ones are None and listed in `problems`."""

    project: Project
    scan_id: str
    problems: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        """The scan's directory."""
        return self.project.scan_dir(self.scan_id)

    def metrics(self, stage: str) -> dict[str, Any]:
        """Return the stage's metrics; empty if it has not run."""
        path = self.folder / ARTIFACTS[f"{stage}/metrics"].path
        return (self._try(lambda: read_metrics(path)) or {}) if path.is_file() else {}

    def table(self, name: str) -> pl.DataFrame | None:
        """Return the table; None if its stage has not run or it has no rows."""
        if not (self.folder / ARTIFACTS[name].path).is_file():
            return None
        frame: pl.DataFrame | None = self._try(lambda: read_table(self.folder, name))
        return None if frame is None or frame.is_empty() else frame

    def picture(self, stage: str) -> bytes | None:
        """Return the stage's preview as PNG, if it exists."""
        path = self.folder / ARTIFACTS[f"{stage}/preview"].path
        data = path.read_bytes() if path.is_file() else b""
        return data if data.startswith(b"\x89PNG") else None

    @cached_property
    def cut(self) -> dict[str, Any]:
        """Return the export's cut.json, certified or refused; empty if there is none."""
        for name in _CUT_FOLDERS:
            path = self.folder / ARTIFACTS["export/cut"].path / name / _CUT_DOCUMENT
            if path.is_file():
                document = self._try(lambda path=path: json.loads(path.read_text(encoding="utf-8")))
                return document if isinstance(document, dict) else {}
        return {}

    @cached_property
    def run(self) -> _RunRecord:
        """Return the record of the last run."""
        return _read_run_record(self.folder)

    @cached_property
    def scan_yaml(self) -> dict[str, Any]:
        """Return the content of scan.yaml."""
        return self._try(lambda: dict(read_mapping(self.folder / SCAN_FILE_NAME))) or {}

    @cached_property
    def lock(self) -> dict[str, Any]:
        """Return the stages in dvc.lock."""
        return self._try(lambda: recorded_stages(self.folder)) or {}

    def used(self, stage: str) -> dict[str, Any]:
        """Return the parameters recorded when the stage ran; those of params.yaml and scan.yaml if it has not."""
        recorded = self.lock.get(stage, {}).get("params", {})
        path = self.project.root / PARAMS_FILE_NAME
        shared = recorded.get(PARAMS_FILE_NAME) or (
            self._try(lambda: read_mapping(path)) if path.is_file() else {}
        )
        overrides = next((v for k, v in recorded.items() if k.endswith(SCAN_FILE_NAME)), self.scan_yaml)
        return {**((shared or {}).get(stage) or {}), **(overrides.get(stage) or {})}

    def _try(self, read: Any) -> Any:
        try:
            return read()
        except (InputError, OSError, ValueError) as error:
            message = str(error)
            if message not in self.problems:
                self.problems.append(message)
            return None
