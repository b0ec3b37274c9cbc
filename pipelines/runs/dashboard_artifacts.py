"""Create the artifacts in the Prefect dashboard: progress, metrics, pictures, summary."""

import base64
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL

from pipelines.dvc.stage import StageReport
from pipelines.project import Project
from pipelines.report.build import tolerant
from pipelines.report.drawings import standalone
from pipelines.report.page import Drawing, labelled, number, result_word
from pipelines.report.scan_data import ScanData
from pipelines.report.sections.body import cut_surface
from pipelines.report.sections.second_cut import path as knife_path
from pipelines.runs.run_summary import artifact_key, summary

_UPDATE_EVERY_S = 1.0


class ProgressArtifact:
    """Progress bar in the dashboard; created at the first progress, updated at most once a second."""

    def __init__(self, scan_id: str, stage: str) -> None:
        self._key = artifact_key(scan_id, stage, "progress")
        self._id: UUID | None = None
        self._last_s = 0.0

    def update(self, fraction: float, message: str) -> None:
        """Show the fraction (0 to 1) and message."""
        now = time.monotonic()
        if now - self._last_s < _UPDATE_EVERY_S:
            return
        self._last_s = now
        self._send(fraction, message)

    def finish(self) -> None:
        """Show 100 % if the bar was created."""
        if self._id is not None:
            self._send(1.0, "done")

    def _send(self, fraction: float, message: str) -> None:
        percent = round(100.0 * fraction, 1)
        if self._id is None:
            self._id = create_progress_artifact(progress=percent, key=self._key, description=message)  # type: ignore[assignment]
        else:
            update_progress_artifact(artifact_id=self._id, progress=percent, description=message)


class LivePicture:
    """Live picture of a running stage in the dashboard, updated in place."""

    def __init__(self, scan_id: str, stage: str) -> None:
        self._key = artifact_key(scan_id, stage, "live")
        self._text = f"{scan_id}: {stage}, live"
        self._id: UUID | None = None

    def update(self, path: Path) -> None:
        """Show the PNG at the path, unless the stage has already removed it."""
        try:
            address = _data_uri(path.read_bytes())
        except FileNotFoundError:
            return
        if self._id is None:
            self._id = create_image_artifact(image_url=address, key=self._key, description=self._text)  # type: ignore[assignment]
            return
        with get_client(sync_client=True) as client:
            client.update_artifact(self._id, ArtifactUpdate(data=address))


def _data_uri(png: bytes) -> str:
    """Return the picture as a data URI, which needs no file server."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def show_stage(project: Project, scan_id: str, report: StageReport) -> dict[str, str]:
    """Create a table of the stage's metrics and an image of its preview; return their ids."""
    pages: dict[str, Any] = {}
    pages["metrics"] = create_table_artifact(
        key=artifact_key(scan_id, report.name, "metrics"),
        table=[{"metric": name, "value": number(value)} for name, value in _labelled(report.metrics)],
        description=f"{scan_id}: {report.name}, {result_word(report)}",
    )
    for path in report.outputs:
        if path.endswith(".png"):
            pages["preview"] = create_image_artifact(
                image_url=_data_uri((project.root / path).read_bytes()),
                key=artifact_key(scan_id, report.name, "preview"),
                description=f"{scan_id}: {report.name}",
            )
    return {kind: str(identity) for kind, identity in pages.items()}


def show_run(scan_id: str, reports: Sequence[StageReport]) -> None:
    """Create a table of all stages and a summary of the run."""
    create_table_artifact(
        key=artifact_key(scan_id, "run"),
        table=[{"stage": r.name, "result": result_word(r), "time [s]": r.seconds} for r in reports],
        description=f"{scan_id}: all stages",
    )
    create_markdown_artifact(
        key=artifact_key(scan_id, "summary"),
        markdown=summary(scan_id, reports, _page_url(), str(flow_run.id) if flow_run.id else None),
        description=f"{scan_id}: summary",
    )


def _page_url() -> str:
    """Return the base URL of the dashboard's pages; empty (relative links) if unknown."""
    url = str(PREFECT_UI_URL.value() or "") or (PREFECT_API_URL.value() or "").removesuffix("/api")
    return url.rstrip("/")


def _labelled(metrics: dict[str, Any]) -> list[tuple[str, Any]]:
    return [labelled(name, value) for name, value in metrics.items()]


def show_drawings(project: Project, scan_id: str) -> None:
    """Create images of the report's drawings: springs on the cut surface and the knife's path."""
    data = ScanData(project, scan_id)
    for section in (tolerant(cut_surface, data), tolerant(knife_path, data)):
        drawings = [block for block in section.blocks if isinstance(block, Drawing)]
        for index, drawing in enumerate(drawings, start=1):
            picture = base64.b64encode(standalone(drawing.svg).encode()).decode()
            create_image_artifact(
                image_url=f"data:image/svg+xml;base64,{picture}",
                key=artifact_key(scan_id, section.anchor, str(index)),
                description=drawing.caption,
            )
