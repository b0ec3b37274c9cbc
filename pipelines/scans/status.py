"""Report which stages of a scan are fresh or stale, from `dvc status`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.dvc.commands import CommandError, run_dvc
from pipelines.dvc.pipeline_file import (
    check_keys,
    is_current,
    outdated_stages,
    pipeline_address,
    read_template,
)
from pipelines.dvc.repair import recorded_stages
from pipelines.project import TEMPLATE, Project, known_scans
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
    """Return the state of every stage of the given (default: all) scans from `dvc status`. Writes nothing.

    Where a scan's dvc.yaml differs from the template, `say` gets a message and the stages that the next run will define
    anew are stale: DVC itself still sees the older definition.
    """
    chosen = known_scans(project, scan_ids)
    if not chosen:
        return []
    outdated: dict[str, set[str] | None] = {}
    for scan_id in chosen:
        read_scan_file(project.scan_dir(scan_id))  # rejects named pipes and other scans' ids, unlike DVC
        check_keys(project, scan_id)
        outdated[scan_id] = outdated_stages(project, scan_id)
        if not is_current(project, scan_id):
            say(f"{pipeline_address(project, scan_id)} does not match {TEMPLATE}; the next run updates it.")
    usable = [scan_id for scan_id in chosen if outdated[scan_id] is not None]
    changed = _dvc_status(project, usable) if usable else {}
    return [
        _status_of(project, scan_id, entry.name, changed, outdated[scan_id])
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


def _status_of(
    project: Project, scan_id: str, stage: str, changed: dict[str, Any] | None, outdated: set[str] | None
) -> _StageStatus:
    pipeline = pipeline_address(project, scan_id)
    if changed is None or changed.get(pipeline) == "running":
        return _StageStatus(scan_id, stage, "running", ())
    if stage not in recorded_stages(project.scan_dir(scan_id)):
        return _StageStatus(scan_id, stage, "never run", ())
    reasons = _reasons(changed.get(f"{pipeline}:{stage}") or [])
    if outdated is None or stage in outdated:
        reasons.append(f"{pipeline} is outdated")
    return _StageStatus(scan_id, stage, "stale" if reasons else "fresh", tuple(reasons))


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
