"""At the end of a run: write down how it went, and build what people look at."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines.dvc.stage import StageReport
from pipelines.dvc.template import needed_for, read_template
from pipelines.report.build import build_report
from pipelines.report.replay_view.page import build_replay, has_replay
from pipelines.report.run_record import write_run_record
from pipelines.scans.project import Project
from stages.runtime.atomic_file import write_bytes_atomic


def record_and_report(
    project: Project,
    scan_id: str,
    reports: Sequence[StageReport],
    error: str | None,
    *,
    target: str | None = None,
    warn: Callable[[str], None] = lambda sentence: None,
) -> Path | None:
    """Write run.json, report.html and, if there is a recording, replay.html; returns the report's path.

    A page that can't be made only warns, and the path is None.
    """
    entries = read_template(project.template)
    planned = entries if target is None else needed_for(target, entries)
    done = {report.name for report in reports}
    failed = next((entry.name for entry in planned if entry.name not in done), None) if error else None
    try:
        write_run_record(
            project.scan_dir(scan_id),
            reports=[(r.name, r.outcome.value, r.seconds, r.cached) for r in reports],
            error=error,
            failed_stage=failed,
        )
        if has_replay(project, scan_id):
            build_replay(project, scan_id)
        return build_report(project, scan_id)
    except Exception as problem:  # noqa: BLE001 -- the run's results are safe; a page must not turn it into a failure
        warn(f"The pages for people could not be made: {type(problem).__name__}: {problem}")
        return None


def refused_report(project: Project, scan_id: str) -> Path:
    """Where the report of a scan goes that was refused at once and is not kept."""
    return project.root / "data" / "refused" / f"{scan_id}.html"


def keep_report(project: Project, scan_id: str, page: Path | None) -> Path | None:
    """Move the report of a scan that was refused at once, and is about to be forgotten, out of its directory."""
    if page is None:
        return None
    place = refused_report(project, scan_id)
    write_bytes_atomic(place, page.read_bytes())
    return place
