"""Report which stages of a scan are fresh or stale, from `dvc status`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pipelines.dvc.commands import CommandError, run_dvc
from pipelines.dvc.pipeline_file import (
    StageEntry,
    check_keys,
    is_current,
    outdated_stages,
    pipeline_address,
    read_template,
    stage_address,
    upstream,
)
from pipelines.dvc.repair import recorded_stages
from pipelines.project import TEMPLATE, Project, known_scans, lock_holder
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
    entries = read_template(project.template)
    changed = _dvc_status(project, usable, entries) if usable else {}
    return [
        _status_of(project, scan_id, entry, entries, changed, outdated[scan_id])
        for scan_id in chosen
        for entry in entries
    ]


_RUNNING = "running"
_TRIES = 3
"""Attempts to read the status while a run goes from stage to stage."""


def _dvc_status(project: Project, scan_ids: list[str], entries: Sequence[StageEntry]) -> dict[str, Any]:
    """Return the output of `dvc status`, and under a scan's address its running stage ("" if it is not known)."""
    try:
        return _asked(project, [pipeline_address(project, scan_id) for scan_id in scan_ids])
    except CommandError as error:
        if not error.is_busy:
            raise
    if len(scan_ids) > 1:
        merged: dict[str, Any] = {}
        for scan_id in scan_ids:
            merged |= _dvc_status(project, [scan_id], entries)
        return merged
    return _while_it_runs(project, scan_ids[0], entries)


def _while_it_runs(project: Project, scan_id: str, entries: Sequence[StageEntry]) -> dict[str, Any]:
    """Return the status of a scan with a running stage: DVC can tell it of stages that don't touch its outputs."""
    for _ in range(_TRIES):
        running = lock_holder(project, scan_id) or ""
        later = _downstream(running, entries)
        recorded = recorded_stages(project.scan_dir(scan_id))
        names = [e.name for e in entries if e.name in recorded and e.name not in later | {running}]
        try:
            addresses = [stage_address(project, scan_id, name) for name in names]
            status = _asked(project, addresses) if running and names else {}
        except CommandError as error:
            if not error.is_busy:
                raise
            continue  # the run went on to another stage meanwhile
        return {**status, pipeline_address(project, scan_id): {_RUNNING: running}}
    return {pipeline_address(project, scan_id): {_RUNNING: ""}}


def _asked(project: Project, targets: list[str]) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(run_dvc(project, "status", "--json", *targets))
    return status


def _downstream(stage: str, entries: Sequence[StageEntry]) -> set[str]:
    """Return the stages that read an output of this one, directly or not."""
    later = {stage}
    for entry in entries:  # in topological order
        if later & set(upstream(entry, entries)):
            later.add(entry.name)
    return later - {stage}


def _status_of(
    project: Project,
    scan_id: str,
    entry: StageEntry,
    entries: Sequence[StageEntry],
    changed: dict[str, Any],
    outdated: set[str] | None,
) -> _StageStatus:
    pipeline, stage = pipeline_address(project, scan_id), entry.name
    running = (changed.get(pipeline) or {}).get(_RUNNING)
    if running == stage:
        return _StageStatus(scan_id, stage, "running", ())
    if stage not in recorded_stages(project.scan_dir(scan_id)):
        return _StageStatus(scan_id, stage, "never run", ())
    if running == "":
        return _StageStatus(scan_id, stage, "running", ("a dvc command is using this scan",))
    reasons = _reasons(changed.get(f"{pipeline}:{stage}") or [])
    if running and stage in _downstream(running, entries):
        reasons.append(f"{running} is running")
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
