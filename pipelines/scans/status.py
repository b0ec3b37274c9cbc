"""Report which stages of a scan are fresh or stale, from `dvc status`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.dvc.commands import CommandError, run_dvc
from pipelines.dvc.pipeline_file import pipeline_address, read_template, refresh_pipeline_file
from pipelines.dvc.repair import recorded_stages
from pipelines.project import Project, known_scans
from stages.runtime.scan_file import read_scan_file

_State = Literal["fresh", "stale", "never run", "running"]


@dataclass(frozen=True)
class _StageStatus:
    """State of one stage of one scan."""

    scan: str
    stage: str
    state: _State
    reasons: tuple[str, ...]
    """Changes that make the stage stale."""


def read_status(
    project: Project, scan_ids: Sequence[str] = (), say: Callable[[str], None] = lambda message: None
) -> list[_StageStatus]:
    """Return the state of every stage of the given (default: all) scans from `dvc status`.

    A dvc.yaml that differs from the template is updated first and reported, because plain `dvc repro` used the outdated
    one until then.
    """
    chosen = known_scans(project, scan_ids)
    if not chosen:
        return []
    for scan_id in chosen:
        read_scan_file(
            project.scan_dir(scan_id)
        )  # rejects named pipes and ids of other scans, which DVC would not
        refreshed = refresh_pipeline_file(project, scan_id)
        if refreshed:
            say(refreshed)
    changed = _dvc_status(project, chosen)
    return [
        _status_of(project, scan_id, entry.name, changed)
        for scan_id in chosen
        for entry in read_template(project.template)
    ]


def _dvc_status(project: Project, scan_ids: list[str]) -> dict[str, Any] | None:
    """Return the output of `dvc status`, or None while a stage of these scans is running."""
    targets = [pipeline_address(project, scan_id) for scan_id in scan_ids]
    try:
        status: dict[str, Any] = json.loads(run_dvc(project, "status", "--json", *targets))
        return status
    except CommandError as error:
        if not error.is_busy:
            raise
        return None if len(scan_ids) == 1 else _one_by_one(project, scan_ids)


def _one_by_one(project: Project, scan_ids: list[str]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for scan_id in scan_ids:
        status = _dvc_status(project, [scan_id])
        merged |= {pipeline_address(project, scan_id): "running"} if status is None else status
    return merged


def _status_of(project: Project, scan_id: str, stage: str, changed: dict[str, Any] | None) -> _StageStatus:
    pipeline = pipeline_address(project, scan_id)
    if changed is None or changed.get(pipeline) == "running":
        return _StageStatus(scan_id, stage, "running", ())
    if stage not in recorded_stages(project.scan_dir(scan_id)):
        return _StageStatus(scan_id, stage, "never run", ())
    changes = changed.get(f"{pipeline}:{stage}")
    if changes is None:
        return _StageStatus(scan_id, stage, "fresh", ())
    return _StageStatus(scan_id, stage, "stale", tuple(_reasons(changes)))


def _reasons(changes: list[Any]) -> list[str]:
    """Format DVC's changes, such as {'changed deps': {path: how}}, as short phrases."""
    reasons = []
    for item in changes:
        groups = item.values() if isinstance(item, dict) else []
        reasons += [str(item)] if isinstance(item, str) else []
        for group in groups:
            reasons += [f"{path} {_how(how)}" for path, how in group.items()]
    return reasons


def _how(how: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in how.items()) if isinstance(how, dict) else str(how)
