"""`scan2cut report`: the page of one scan."""

from collections.abc import Callable
from pathlib import Path

from pipelines.report.blocks import Note, Section
from pipelines.report.page import render_page
from pipelines.report.scan_data import ScanData
from pipelines.report.sections import body, force, limits, provenance, robot, second_cut, summary
from pipelines.scans.project import Project, known_scans
from stages.runtime.atomic_file import write_bytes_atomic

REPORT_FILE_NAME = "report.html"
SECTIONS: tuple[Callable[[ScanData], Section], ...] = (
    body.cleaning,
    body.mesh,
    body.cut_surface,
    force.force,
    force.history,
    second_cut.transport,
    second_cut.optimum,
    second_cut.path,
    second_cut.residuals,
    robot.joints,
    robot.certificate,
    limits.limits,
    provenance.provenance,
)
"""After the summary, which comes first but is made last: it names what the others could not read."""


def build_report(project: Project, scan_id: str) -> Path:
    """Write report.html into the scan's directory; returns its path."""
    known_scans(project, [scan_id])
    path = project.scan_dir(scan_id) / REPORT_FILE_NAME
    write_bytes_atomic(path, report_html(ScanData(project, scan_id)).encode())
    return path


def report_html(data: ScanData) -> str:
    """The page as text."""
    parts = [tolerant(make, data) for make in SECTIONS]
    sections = [summary.summary(data), *parts]
    material = data.scan_yaml.get("material", "material not stated")
    when = f", run of {data.run.finished}" if data.run.finished else ""
    return render_page(
        f"scan2cut: {data.scan_id}", f"{material}, {data.scan_yaml.get('scan', '')}{when}", sections
    )


def tolerant(make: Callable[[ScanData], Section], data: ScanData) -> Section:
    """The section, or one that says why it can't be made: artifacts of an older release must not spoil the rest."""
    try:
        return make(data)
    except Exception as error:  # noqa: BLE001 -- a broken artifact may break a section in any way
        name = make.__name__
        return Section(
            name,
            name.replace("_", " "),
            [Note(f"This part can't be shown: {type(error).__name__}: {error}", "bad")],
        )
