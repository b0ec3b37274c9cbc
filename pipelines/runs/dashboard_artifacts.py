"""What the dashboard shows: artifacts (a page for the run, its first, and one per stage) and the page of running scans.

Artifacts are Markdown with pictures as data URIs, which need no file server, and are updated in place.
"""

import base64
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL

from pipelines.dvc.pipeline_file import StageEntry
from pipelines.dvc.stage import StageReport
from pipelines.project import Project, lock_holder
from pipelines.report.build import tolerant
from pipelines.report.drawings import standalone
from pipelines.report.page import Drawing, asset, environment, labelled, number, result_word
from pipelines.report.scan_data import ScanData
from pipelines.report.sections.body import cut_surface
from pipelines.report.sections.second_cut import path as knife_path
from pipelines.runs.run_summary import artifact_key, stages_table, summary
from stages.runtime.catalogue import STAGES
from stages.runtime.files import LIVE_FILE_NAME

_STAGE_EVERY_S, _RUN_EVERY_S = 1.0, 3.0
"""Least time between two updates of a page."""


class _Page:
    """A Markdown artifact that is created by the first text and updated in place."""

    def __init__(self, key: str, description: str) -> None:
        self._key, self._description = key, description
        self.id: UUID | None = None

    def write(self, markdown: str) -> None:
        """Show this text."""
        if self.id is None:
            self.id = create_markdown_artifact(markdown, key=self._key, description=self._description)  # type: ignore[assignment]
            return
        with get_client(sync_client=True) as client:
            client.update_artifact(self.id, ArtifactUpdate(data=markdown))


def _picture(data: bytes, text: str, kind: str = "png") -> str:
    """Return the picture as a Markdown image."""
    return f"![{text}](data:image/{kind};base64,{base64.b64encode(data).decode()})"


class StagePage:
    """Page of one stage: progress while it runs, then picture and metrics. Its number keeps the stages in order."""

    def __init__(self, scan_id: str, stage: str, number: int) -> None:
        self._stage = stage
        self._page = _Page(artifact_key(scan_id, f"{number:02}", stage), f"{stage}: {STAGES[stage].does}")
        self._last_s = 0.0

    def update(self, fraction: float, message: str) -> None:
        """Show the fraction (0 to 1) and message, at most once a second."""
        now = time.monotonic()
        if now - self._last_s >= _STAGE_EVERY_S:
            self._last_s = now
            self._page.write(f"# {self._stage}: running\n\n{_bar(fraction)} {message}\n")

    def finish(self, project: Project, report: StageReport) -> dict[str, str]:
        """Show result, picture and metrics; return the page's id for links."""
        lines = [f"# {self._stage}: {result_word(report)}", "", f"{report.seconds:.1f} s", ""]
        for path in report.outputs:
            if path.endswith(".png"):
                lines += [_picture((project.root / path).read_bytes(), self._stage), ""]
        lines += ["| metric | value |", "|---|---|"]
        metrics = [labelled(name, value) for name, value in report.metrics.items()]
        lines += [f"| {name} | {_cell(number(value))} |" for name, value in metrics]
        self._page.write("\n".join(lines) + "\n")
        return {"page": str(self._page.id)}


def _bar(fraction: float) -> str:
    """Return a progress bar of text."""
    full = round(20 * fraction)
    return f"`{'█' * full}{'░' * (20 - full)}` **{100.0 * fraction:.0f} %**"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


class RunPage:
    """Summary of a run, there from its beginning: running stage, live picture, stages so far; at the end the result."""

    def __init__(self, scan_id: str, entries: Sequence[StageEntry]) -> None:
        self._scan_id = scan_id
        self._key_figures = {entry.name: entry.key_figure for entry in entries}
        self._count = len(entries)
        self._page = _Page(artifact_key(scan_id, "00", "summary"), f"{scan_id}: summary, live while it runs")
        self._reports: list[StageReport] = []
        self._live: bytes | None = None
        self._now = ""
        self._last_s = 0.0
        self._write()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"{_page_url()}/artifacts/artifact/{self._page.id}"

    def on_progress(self, stage: str, fraction: float, message: str) -> None:
        """Show the running stage."""
        self._now = f"Running **{stage}**: {_bar(fraction)} {message}"
        if time.monotonic() - self._last_s >= _RUN_EVERY_S:
            self._write()

    def on_picture(self, path: Path) -> None:
        """Show the live picture at the path, unless the stage has already removed it."""
        try:
            self._live = path.read_bytes()
        except FileNotFoundError:
            return
        self._write()

    def on_finish(self, report: StageReport) -> None:
        """Add a finished stage."""
        self._reports.append(report)
        self._live, self._now = None, ""
        self._write()

    def close(self, project: Project) -> None:
        """Show the result, with the report's drawings: springs on the cut surface and the knife's path."""
        run_id = str(flow_run.id) if flow_run.id else None
        text = summary(self._scan_id, self._reports, _page_url(), run_id, self._key_figures)
        data = ScanData(project, self._scan_id)
        for section in (tolerant(cut_surface, data), tolerant(knife_path, data)):
            for drawing in (block for block in section.blocks if isinstance(block, Drawing)):
                picture = _picture(standalone(drawing.svg).encode(), section.anchor, "svg+xml")
                text += f"\n{picture}\n\n{drawing.caption}\n"
        self._page.write(text)

    def _write(self) -> None:
        self._last_s = time.monotonic()
        lines = [f"# {self._scan_id}: stage {len(self._reports) + 1} of {self._count}", "", self._now, ""]
        if self._live is not None:
            lines += [_picture(self._live, "best result so far"), ""]
        lines += stages_table(self._reports, _page_url(), self._key_figures)
        self._page.write("\n".join(lines) + "\n")


RUN_PAGE: ContextVar[RunPage | None] = ContextVar("RUN_PAGE", default=None)
"""Page of the run in this process; None on a worker of a cluster, which shows only its stages."""


def _page_url() -> str:
    """Return the base URL of the dashboard's pages; empty (relative links) if unknown."""
    url = str(PREFECT_UI_URL.value() or "") or (PREFECT_API_URL.value() or "").removesuffix("/api")
    return url.rstrip("/")


_Scope = MutableMapping[str, Any]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, Any, _Send], Awaitable[None]]
PATH = "/live"
_REFRESH_S = 3
_TAIL_BYTES = 4000
"""Read from the end of a stage's events."""


@dataclass(frozen=True)
class _Running:
    """A scan that is being run."""

    scan: str
    stage: str
    percent: int
    message: str
    picture: str
    """PNG as a data URI; empty if the stage shows none."""


def running_scans(project: Project) -> list[_Running]:
    """Return the scans that a run works on now."""
    found = []
    for scan_id in project.scan_ids():
        stage = lock_holder(project, scan_id)
        if stage:
            fraction, message = _progress(project.state_dir / f"{scan_id}.events.jsonl")
            picture = _live_picture(project.scan_dir(scan_id) / LIVE_FILE_NAME)
            found.append(_Running(scan_id, stage, round(100.0 * fraction), message, picture))
    return found


def _progress(path: Path) -> tuple[float, str]:
    """Return the last progress in a file of events; it may be gone or incomplete."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return 0.0, ""
    for line in reversed(lines):
        try:
            event = json.loads(line)
            if event["kind"] == "progress":
                return float(event["fraction"]), str(event["message"])
        except (ValueError, TypeError, KeyError):
            continue
    return 0.0, ""


def _live_picture(path: Path) -> str:
    try:
        return f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    except OSError:
        return ""


def live_html(project: Project) -> str:
    """Return the page as HTML."""
    return (
        environment()
        .get_template("live.html")
        .render(
            title="scan2cut: running scans",
            scans=running_scans(project),
            refresh_s=_REFRESH_S,
            styles=asset("page.css"),
        )
    )


class WithLivePage:
    """ASGI middleware that answers /live itself and passes on everything else."""

    def __init__(self, app: _App, project: Project) -> None:
        self._app, self._project = app, project

    async def __call__(self, scope: _Scope, receive: Any, send: _Send) -> None:
        """Answer or pass on."""
        if scope["type"] != "http" or scope["path"].rstrip("/") != PATH:
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": live_html(self._project).encode()})
