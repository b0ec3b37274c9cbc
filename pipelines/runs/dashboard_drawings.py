"""The report's own drawings in the Prefect dashboard, beside the stages' previews."""

import base64

from prefect.artifacts import create_image_artifact

from pipelines.report.blocks import Drawing
from pipelines.report.build import tolerant
from pipelines.report.drawings import standalone
from pipelines.report.scan_data import ScanData
from pipelines.report.sections.body import cut_surface
from pipelines.report.sections.second_cut import path
from pipelines.runs.dashboard_artifacts import artifact_key
from pipelines.scans.project import Project


def show_drawings(project: Project, scan_id: str) -> None:
    """Springs by fitted parameter and by data, and the knife's path, as images that need no file server."""
    data = ScanData(project, scan_id)
    for section in (tolerant(cut_surface, data), tolerant(path, data)):
        drawings = [block for block in section.blocks if isinstance(block, Drawing)]
        for number, drawing in enumerate(drawings, start=1):
            picture = base64.b64encode(standalone(drawing.svg).encode()).decode()
            create_image_artifact(
                image_url=f"data:image/svg+xml;base64,{picture}",
                key=artifact_key(scan_id, section.anchor, str(number)),
                description=drawing.caption,
            )
