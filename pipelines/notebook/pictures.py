"""Pictures of a scan that a notebook shows in place."""

import html
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from disect_sim.errors import InputError
from pipelines.notebook.scan import Scan
from pipelines.report.replay_view.page import replay_html
from pipelines.report.replay_view.recording import read_recording
from pipelines.scans.project import find_project
from stages.shared.pictures.figure import new_figure

MM = 1e3
FRUIT, KNIFE = "#e3a857", "#2b6ca3"
REPLAY_HEIGHT = 560
"""Of the replay in a notebook [pixel]."""


@dataclass(frozen=True)
class Picture:
    """A figure of matplotlib; a notebook shows it by itself."""

    figure: Any

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.figure.savefig(buffer, format="png")
        return buffer.getvalue()

    def save(self, path: Path | str) -> None:
        """Write it to a file; the suffix decides the format."""
        self.figure.savefig(path)


@dataclass(frozen=True)
class Page:
    """A page that a notebook shows in a frame."""

    text: str
    height: int = REPLAY_HEIGHT

    def _repr_html_(self) -> str:
        frame = f'style="width:100%;height:{self.height}px;border:0"'
        return f'<iframe srcdoc="{html.escape(self.text)}" {frame}></iframe>'


def plot_force(curves: Mapping[str, pl.DataFrame]) -> Picture:
    """Norm of the force on the knife [N] over time [s], a curve per label.

    A table needs time_s and force_norm_n: Cut.force, "simulate/force", "ingest/force" and "replay/frames" have them.
    """
    figure, _ = new_figure((7.0, 3.6))
    axis = figure.subplots()
    for name, table in curves.items():
        if not {"time_s", "force_norm_n"} <= set(table.columns):
            raise InputError(
                f"{name!r} has the columns {', '.join(table.columns)}. A curve needs time_s and force_norm_n. "
                "Rename its columns."
            )
        axis.plot(table["time_s"].to_list(), table["force_norm_n"].to_list(), label=name)
    axis.set(xlabel="time [s]", ylabel="force on the knife [N]")
    axis.grid(alpha=0.3)
    axis.legend()
    return Picture(figure)


def plot_body(scan: Scan, *, body: str = "clean", path: pl.DataFrame | None = None) -> Picture:
    """The fruit in 3D [mm], and the way of the edge's middle: `path` has knife_position_m or position_m.

    body: "clean", the whole fruit of the first cut, or "halve", the half that optimize/motion cuts.
    """
    from mpl_toolkits.mplot3d.art3d import Poly3DCollection

    figure, _ = new_figure((6.0, 5.2))
    axis = figure.add_subplot(projection="3d", computed_zorder=False)
    points = [[MM * z, MM * x, MM * y] for x, y, z in scan.table(f"{body}/vertices")["position_m"].to_list()]
    faces = [[points[i] for i in face] for face in scan.table(f"{body}/faces")["vertices"].to_list()]
    axis.add_collection3d(
        Poly3DCollection(faces, facecolors=FRUIT, edgecolors="#7a5a2c", lw=0.2, alpha=0.8, shade=True)
    )
    if path is not None:
        name = next(name for name in ("knife_position_m", "position_m") if name in path.columns)
        way = [[MM * z, MM * x, MM * y] for x, y, z in path[name].to_list()]
        axis.plot(*zip(*way, strict=True), color=KNIFE, lw=2.5, zorder=5, label="middle of the edge")
        points = [*points, *way]
        axis.legend()
    lows, highs = zip(*((min(v), max(v)) for v in zip(*points, strict=True)), strict=True)
    axis.set(xlim=(lows[0], highs[0]), ylim=(lows[1], highs[1]), zlim=(min(0.0, lows[2]), highs[2]))
    axis.set(xlabel="along the blade, z [mm]", ylabel="across, x [mm]", zlabel="height, y [mm]")
    axis.set_box_aspect([high - low for low, high in zip(lows, highs, strict=True)])
    return Picture(figure)


def replay(scan: Scan) -> Page:
    """The 3D replay of the optimised cut, to turn and to play; InputError if the stage replay has not run."""
    return Page(replay_html(read_recording(find_project(scan.folder), scan.scan_id)))
