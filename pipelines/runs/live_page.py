"""The page /live of the dashboard: running scans with stage, progress and live picture; it refreshes itself.

Prefect's pages show a picture only after two clicks and a reload. This one reads the project's files, so it also shows
runs that were started without the dashboard.
"""

import base64
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.project import Project, lock_holder
from pipelines.report.page import asset, environment
from stages.runtime.files import LIVE_FILE_NAME

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
            picture = _picture(project.scan_dir(scan_id) / LIVE_FILE_NAME)
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


def _picture(path: Path) -> str:
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
