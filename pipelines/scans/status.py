"""What is fresh and what is stale: DVC's own answer, per scan and stage."""

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
    """One stage of one scan."""

    scan: str
    stage: str
    state: _State
    reasons: tuple[str, ...]
    """What changed, for a stale stage."""


def read_status(
    project: Project, scan_ids: Sequence[str] = (), say: Callable[[str], None] = lambda sentence: None
) -> list[_StageStatus]:
    """The state of every stage of the given (default: all) scans, straight from `dvc status`.

    A dvc.yaml that differs from the template is brought up to date first, which is said: plain `dvc repro` had the
    older stages until then.
    """
    chosen = known_scans(project, scan_ids)
    if not chosen:
        return []
    for scan_id in chosen:
        read_scan_file(project.scan_dir(scan_id))  # DVC would wait for a pipe, and believe another scan's
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
    """DVC's answer, or None while a stage of these scans runs."""
    targets = [pipeline_address(project, scan_id) for scan_id in scan_ids]
    try:
        answer: dict[str, Any] = json.loads(run_dvc(project, "status", "--json", *targets))
        return answer
    except CommandError as error:
        if not error.is_busy:
            raise
        return None if len(scan_ids) == 1 else _one_by_one(project, scan_ids)


def _one_by_one(project: Project, scan_ids: list[str]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for scan_id in scan_ids:
        answer = _dvc_status(project, [scan_id])
        merged |= {pipeline_address(project, scan_id): "running"} if answer is None else answer
    return merged


def _status_of(project: Project, scan_id: str, stage: str, changed: dict[str, Any] | None) -> _StageStatus:
    pipeline = pipeline_address(project, scan_id)
    if changed is None or changed.get(pipeline) == "running":
        return _StageStatus(scan_id, stage, "running", ())
    if stage not in recorded_stages(project.scan_dir(scan_id)):
        return _StageStatus(scan_id, stage, "never run", ())
    found = changed.get(f"{pipeline}:{stage}")
    if found is None:
        return _StageStatus(scan_id, stage, "fresh", ())
    return _StageStatus(scan_id, stage, "stale", tuple(_reasons(found)))


def _reasons(found: list[Any]) -> list[str]:
    """DVC's list of {'changed deps': {path: how}} and the like, as short phrases."""
    reasons = []
    for item in found:
        groups = item.values() if isinstance(item, dict) else []
        reasons += [str(item)] if isinstance(item, str) else []
        for group in groups:
            reasons += [f"{path} {_how(how)}" for path, how in group.items()]
    return reasons


def _how(how: Any) -> str:
    return ", ".join(f"{key} {value}" for key, value in how.items()) if isinstance(how, dict) else str(how)
