"""Build report.html of a scan, for `scan2cut report` and at the end of every run."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pipelines.dvc.pipeline_file import needed_for, scan_entries
from pipelines.dvc.stage import StageReport
from pipelines.project import Project, known_scans
from pipelines.report.page import Note, Section, render_page, result_word
from pipelines.report.scan_data import ScanData, write_run_record
from pipelines.report.sections import (
    body,
    decision,
    force,
    provenance,
    robot,
    second_cut,
)
from pipelines.report.viewer import build_viewer, has_recording
from stages.runtime.errors import error_text
from stages.runtime.files import write_bytes_atomic

_REPORT_FILE_NAME = "report.html"
SECTIONS: tuple[Callable[[ScanData], Section], ...] = (
    second_cut.optimum,
    force.predictions,
    force.executed,
    robot.certificate,
    robot.joints,
    decision.limits,
    second_cut.path,
    second_cut.residuals,
    force.force,
    force.history,
    second_cut.transport,
    body.cleaning,
    body.mesh,
    body.cut_surface,
    decision.run,
    provenance.provenance,
)
"""Folded sections after the decision, which is built last because it lists what the others could not read."""


def build_report(project: Project, scan_id: str) -> Path:
    """Write report.html into the scan's directory and return its path."""
    known_scans(project, [scan_id])
    path = project.scan_dir(scan_id) / _REPORT_FILE_NAME
    write_bytes_atomic(path, _report_html(ScanData(project, scan_id)).encode())
    return path


def _report_html(data: ScanData) -> str:
    """Return the page as HTML."""
    parts = [part for part in (tolerant(make, data) for make in SECTIONS) if part.blocks]
    for part in parts:
        part.folded = True
    sections = [decision.decision(data), *parts]
    material = data.scan_yaml.get("material", "unknown material")
    when = f", run of {data.run.finished}" if data.run.finished else ""
    return render_page(
        f"scan2cut: {data.scan_id}", f"{material}, {data.scan_yaml.get('scan', '')}{when}", sections
    )


def tolerant(make: Callable[[ScanData], Section], data: ScanData) -> Section:
    """Return the section, or one with an error message: artifacts of an older release must not break the page."""
    try:
        return make(data)
    except Exception as error:  # noqa: BLE001 -- a corrupt artifact can cause any error
        name = make.__name__
        return Section(
            name,
            name.replace("_", " "),
            [Note(f"This section can't be shown: {error_text(error)}", "bad")],
        )


# End of a run.


def record_and_report(
    project: Project,
    scan_id: str,
    reports: Sequence[StageReport],
    error: str | None,
    *,
    target: str | None = None,
    warn: Callable[[str], None] = lambda message: None,
) -> Path | None:
    """Write run.json, report.html and, if there is a recording, viewer.html; return the report's path.

    If a page can't be built, call `warn` and return None.
    """
    entries = scan_entries(project, scan_id)
    planned = entries if target is None else needed_for(target, entries)
    done = {report.name for report in reports}
    failed = next((entry.name for entry in planned if entry.name not in done), None) if error else None
    try:
        write_run_record(
            project.scan_dir(scan_id),
            reports=[(r.name, result_word(r), r.seconds, r.cached) for r in reports],
            error=error,
            failed_stage=failed,
        )
        if has_recording(project, scan_id):
            build_viewer(project, scan_id)
        return build_report(project, scan_id)
    except Exception as problem:  # noqa: BLE001 -- the results are valid; a page must not fail the run
        warn(f"Could not build the report: {error_text(problem)}")
        return None


def _refused_report(project: Project, scan_id: str) -> Path:
    """Return the path for the report of a rejected scan, which is not kept."""
    return project.root / "data" / "refused" / f"{scan_id}.html"


def keep_report(project: Project, scan_id: str, page: Path | None) -> Path | None:
    """Copy the report of a rejected scan, which is about to be removed, out of its directory; return its path."""
    if page is None:
        return None
    kept_page = _refused_report(project, scan_id)
    write_bytes_atomic(kept_page, page.read_bytes())
    return kept_page
