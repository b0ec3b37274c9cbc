"""Report which stages of a scan are fresh, stale or running."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pipelines.dvc.freshness import Comparison
from pipelines.dvc.pipeline_file import (
    StageEntry,
    check_keys,
    is_current,
    outdated_stages,
    pipeline_address,
    read_template,
    resolve,
    scan_entries,
    upstream,
)
from pipelines.project import TEMPLATE, Project, known_scans, lock_holder
from stages.runtime.files import read_mapping
from stages.runtime.scan_file import SCAN_FILE_NAME, read_scan_file

_State = Literal["fresh", "stale", "never run", "running"]


@dataclass(frozen=True)
class StageStatus:
    """State of one stage of one scan."""

    scan: str
    stage: str
    state: _State
    reasons: tuple[str, ...]
    """Changes that make the stage stale."""


def read_status(
    project: Project, scan_ids: Sequence[str] = (), say: Callable[[str], None] = lambda message: None
) -> list[StageStatus]:
    """Return the state of every stage of the given (default: all) scans; change no scan.

    Where a scan's dvc.yaml differs from the template, `say` gets a message and the stages that the next run will define
    anew are stale.
    """
    chosen = known_scans(project, scan_ids)
    if not chosen:
        return []
    every = read_template(project.template)
    later = {entry.name: _downstream(entry.name, every) for entry in every}
    written = _written_by_dvc(project)
    comparison = Comparison(project)
    rows = []
    for scan_id in chosen:
        scan = read_scan_file(project.scan_dir(scan_id))  # rejects named pipes and other scans' ids
        entries = every if scan.fruit is None else scan_entries(project, scan_id)
        check_keys(project, scan_id)
        address, outdated = pipeline_address(project, scan_id), outdated_stages(project, scan_id)
        if not is_current(project, scan_id):
            say(f"{address} does not match {TEMPLATE}; the next run updates it.")
        changes = comparison.changes(scan_id)
        running = lock_holder(project, scan_id) or _stage_that_writes(project, scan_id, entries, written)
        for stage in (entry.name for entry in entries):
            reasons = list(changes.get(stage, ()))
            if running and stage in later.get(running, ()):
                reasons = [f"{running} is running"]
            if outdated is None or stage in outdated:
                reasons.append(f"{address} is outdated")
            if stage == running:
                rows.append(StageStatus(scan_id, stage, "running", ()))
            elif stage not in changes:
                rows.append(StageStatus(scan_id, stage, "never run", ()))
            else:
                rows.append(StageStatus(scan_id, stage, "stale" if reasons else "fresh", tuple(reasons)))
    return rows


def _written_by_dvc(project: Project) -> set[str]:
    """Return the paths that a running `dvc` command has locked for writing."""
    import psutil

    try:
        table = json.loads((project.root / ".dvc" / "tmp" / "rwlock").read_bytes())
        return {path for path, holder in table["write"].items() if psutil.pid_exists(int(holder["pid"]))}
    except (OSError, ValueError, AttributeError, KeyError, TypeError):
        return set()


def _stage_that_writes(
    project: Project, scan_id: str, entries: Sequence[StageEntry], written: set[str]
) -> str | None:
    """Return the stage whose outputs are locked, if any: a `dvc repro` by hand runs it."""
    folder = f"{project.scan_dir(scan_id)}/"
    if not any(path.startswith(folder) for path in written):
        return None
    scan_yaml = read_mapping(project.scan_dir(scan_id) / SCAN_FILE_NAME)
    for entry in entries:
        if any(str(project.root / resolve(path, scan_yaml)) in written for path in entry.outs):
            return entry.name
    return None


def _downstream(stage: str, entries: Sequence[StageEntry]) -> set[str]:
    """Return the stages that read an output of this one, directly or not."""
    later = {stage}
    for entry in entries:  # in topological order
        if later & set(upstream(entry, entries)):
            later.add(entry.name)
    return later - {stage}
