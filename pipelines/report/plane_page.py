"""The page on which the cut plane is chosen by eye, and the local server of `scan2cut plane`."""

import json
import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import polars as pl

from pipelines.project import Project, known_scans
from pipelines.report.page import asset, environment
from pipelines.report.scan_data import ScanData
from pipelines.report.viewer import packed
from stages.runtime.describe import provenance
from stages.runtime.errors import InputError, error_text

_HOST = "127.0.0.1"
_MAX_BYTES = 10_000
"""Largest request."""
_GRAIN_M = 2e-5
"""Resolution of stored positions [m]; 16-bit integers reach 655 mm."""


@dataclass(frozen=True)
class CutPlane:
    """Settings of the stage clean that place the first cut."""

    cut_offset_m: float
    """Position of the plane from the centre of mass along x."""
    turn_deg: float
    """Rotation of the fruit about the vertical."""

    def settings(self) -> list[str]:
        """Return the settings as --set writes them."""
        return [f"clean.cut_offset_m={self.cut_offset_m:g}", f"clean.turn_deg={self.turn_deg:g}"]


@dataclass(frozen=True)
class _Fruit:
    """The cleaned scan as the page shows it."""

    scan: str
    vertices: pl.DataFrame
    faces: pl.DataFrame
    plane: CutPlane
    """Plane of the cleaned scan; x = 0 in its frame."""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    """Secret that only this page knows, so that no other page can save."""


def read_fruit(project: Project, scan_id: str) -> _Fruit:
    """Read the cleaned scan; raise InputError if the stage clean has not run."""
    known_scans(project, [scan_id])
    data = ScanData(project, scan_id)
    vertices, faces = data.table("clean/vertices"), data.table("clean/faces")
    path = data.folder / provenance("clean").path
    if vertices is None or faces is None or not path.is_file():
        reason = f" {data.problems[0]}" if data.problems else ""
        raise InputError(
            f"The scan {scan_id!r} has no cleaned surface.{reason} The plane is chosen on it. Run 'scan2cut run "
            f"{scan_id} --target clean' first."
        )
    params = json.loads(path.read_text(encoding="utf-8"))["params"]
    plane = CutPlane(float(params["cut_offset_m"]), float(params["turn_deg"]))
    return _Fruit(scan_id, vertices, faces, plane)


def _plane_html(fruit: _Fruit) -> str:
    """Return the page as HTML."""
    data = {
        "scan": fruit.scan,
        "token": fruit.token,
        "grain_m": _GRAIN_M,
        "vertices": packed(fruit.vertices["position_m"].explode(), _GRAIN_M),
        "faces": packed(fruit.faces["vertices"].explode(), 1.0, pl.Int32),
        "offset_m": fruit.plane.cut_offset_m,
        "turn_deg": fruit.plane.turn_deg,
    }
    return (
        environment()
        .get_template("plane.html")
        .render(
            title=f"scan2cut: cut plane of {fruit.scan}",
            data=data,
            styles=asset("viewer.css"),
            scripts=asset("three.min.js") + "\n" + asset("plane.js"),
        )
    )


def check_plane(fruit: _Fruit, content: Any) -> CutPlane:
    """Return the plane that the page sent; raise InputError if it does not pass through the fruit."""
    names = ("cut_offset_m", "turn_deg") if isinstance(content, dict) else ()
    values: list[Any] = [content.get(name) for name in names]
    if not (len(values) == 2 and all(isinstance(v, int | float) and math.isfinite(v) for v in values)):
        raise InputError("The page sent no plane. It must send two numbers. Load the page again.")
    plane = CutPlane(round(float(values[0]), 5), round(float(values[1]), 2))
    angle = math.radians(plane.turn_deg - fruit.plane.turn_deg)
    x, _, z = (fruit.vertices["position_m"].arr.get(k) for k in range(3))
    across = (x + fruit.plane.cut_offset_m) * math.cos(angle) + z * math.sin(angle)
    low, high = min(across.to_list()), max(across.to_list())
    if not (low < plane.cut_offset_m < high and -360.0 <= plane.turn_deg <= 360.0):
        raise InputError(
            f"The plane at {1e3 * plane.cut_offset_m:.1f} mm misses the fruit. It must be between {1e3 * low:.1f} and "
            f"{1e3 * high:.1f} mm from the centre of mass. Move it."
        )
    return plane


class PlaneServer:
    """Serve the page on this machine until a plane is saved; then `chosen` has it."""

    def __init__(self, fruit: _Fruit, save: Callable[[CutPlane], None], port: int = 0) -> None:
        self.chosen: CutPlane | None = None
        try:
            self._server = ThreadingHTTPServer((_HOST, port), _handler(self, fruit, save))
        except (OSError, OverflowError) as error:
            raise InputError(
                f"Can't listen on {_HOST}:{port} ({error}). The page needs a free port. Choose "
                "another --port."
            ) from error
        self.url = f"http://{_HOST}:{self._server.server_port}/"

    def serve(self) -> None:
        """Answer requests until a plane is saved or `stop` is called."""
        with self._server:
            self._server.serve_forever(poll_interval=0.1)

    def stop(self) -> None:
        """End `serve`."""
        self._server.shutdown()


def _handler(
    server: PlaneServer, fruit: _Fruit, save: Callable[[CutPlane], None]
) -> type[BaseHTTPRequestHandler]:
    page = _plane_html(fruit).encode()

    class Handler(BaseHTTPRequestHandler):
        """Answer only this machine's own page: its host name and its token."""

        def do_GET(self) -> None:
            """Send the page."""
            if self.path != "/" or not self._is_local():
                self._answer(HTTPStatus.NOT_FOUND, "There is only one page here.")
                return
            self._answer(HTTPStatus.OK, page, "text/html; charset=utf-8")

        def do_POST(self) -> None:
            """Save the plane, then end the server."""
            try:
                length = int(self.headers.get("content-length", "0"))
                content = json.loads(self.rfile.read(length)) if 0 < length <= _MAX_BYTES else None
            except ValueError:
                content = None
            token = content.get("token") if isinstance(content, dict) else None
            if not self._is_local() or not secrets.compare_digest(str(token).encode(), fruit.token.encode()):
                self._answer(HTTPStatus.FORBIDDEN, "Only the page of this command may save.")
                return
            try:
                plane = check_plane(fruit, content)
                save(plane)
            except (InputError, OSError) as error:
                self._answer(HTTPStatus.BAD_REQUEST, f"Not saved. {error_text(error)}")
                return
            server.chosen = plane
            self._answer(HTTPStatus.OK, f"Saved: {', '.join(plane.settings())}. You can close this page.")
            server.stop()

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

        def _is_local(self) -> bool:
            address = server.url.removeprefix("http://").rstrip("/")
            return self.headers.get("host") in (address, address.replace(_HOST, "localhost"))

        def _answer(
            self, status: HTTPStatus, body: bytes | str, kind: str = "text/plain; charset=utf-8"
        ) -> None:
            content = body.encode() if isinstance(body, str) else body
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(content)))
            self.send_header("cache-control", "no-store")
            self.end_headers()
            self.wfile.write(content)

    return Handler
