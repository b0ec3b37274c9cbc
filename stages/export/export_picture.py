"""Picture of the stage `export`: knife over the fruit, joints with their limits, predicted force."""

import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import cell_of
from stages.export.certificate import Certificate
from stages.export.demand import Demand
from stages.export.description import ExportParams
from stages.export.export_files import ExportFiles, read_export
from stages.export.motion_checks import (
    ACCELERATION_SHARE,
    JERK_SHARE,
    POSITION_MARGIN_RAD,
    SPEED_SHARE,
    cut_phase,
    edge_poses,
    in_cutting_frame,
    rates,
)
from stages.export.waypoints import PERIOD_S
from stages.shared.knives.knife_file import DescribedKnife
from stages.shared.knives.knife_picture import Mounting, knife_picture
from stages.shared.pictures import CUT, FRUIT, TEXT, WARNING

_SIZE_INCH = (15.0, 10.0)
_DPI = 100
_SILHOUETTE = "#f3dcd2"
_PHASES = {"approach": "#9aa3ad", "cut": CUT, "retract": "#7b4fa3", "rest": "#9aa3ad"}


def export_picture(folder: Path, demand: Demand, certificate: Certificate) -> NDArray[np.uint8]:
    """Draw the picture from the files; 8-bit pixels, shape [height, width, 3]."""
    from matplotlib.figure import Figure
    from PIL import Image

    files = read_export(folder)
    figure = Figure(figsize=_SIZE_INCH, dpi=_DPI, layout="constrained")
    halves: Any = figure.subfigures(1, 2)
    first_half, second_half = halves
    upper, lower = first_half.subplots(2, 1, height_ratios=(2.0, 1.0))
    _path(upper, files, demand)
    _force(lower, files, demand)
    robot, q = demand.robot, files.cut.joints
    middle = 0.5 * (robot.position_high_rad + robot.position_low_rad)
    reach = 0.5 * (robot.position_high_rad - robot.position_low_rad)
    speed, push, jerk = rates(q)
    curves = (
        (
            "position / half range",
            (q - middle) / reach,
            float(1.0 - (POSITION_MARGIN_RAD / reach).max()),
        ),
        ("speed / limit", speed / robot.velocity_rad_s, SPEED_SHARE),
        ("acceleration / limit", push / robot.acceleration_rad_s2, ACCELERATION_SHARE),
        ("jerk / limit", jerk / robot.jerk_rad_s3, JERK_SHARE),
    )
    plots = second_half.subplots(4, 1)
    for axes, (title, values, allowed) in zip(plots, curves, strict=True):
        _joints(axes, title, values, allowed)
    plots[0].legend(ncols=7, fontsize=7, loc=(0.3, 0.12), frameon=False, handlelength=1.0)
    plots[-1].set_xlabel("time [s]", fontsize=9, color=TEXT)
    colour = CUT if certificate.certified else WARNING
    verdict = certificate.verdict if len(certificate.verdict) < 170 else certificate.verdict[:167] + "..."
    figure.suptitle(f"{demand.robot.title}: {verdict}", color=colour, fontsize=11)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    buffer.seek(0)
    return np.asarray(Image.open(buffer).convert("RGB"), np.uint8)


def _path(axes: Any, files: ExportFiles, demand: Demand) -> None:
    """Draw fruit, blade at start and end of the cut, and the path of the edge's centre, seen along x."""
    from matplotlib.collections import LineCollection, PolyCollection

    cell = demand.cell
    edge = 1e3 * in_cutting_frame(edge_poses(files.cut.joints, demand), demand)
    start, end = cut_phase(files)
    half, tall = 500.0 * cell.blade_length_m, 1e3 * cell.blade_height_m
    for row, style in ((start, ":"), (end - 1, "-")):
        z, y = edge[row, 2], edge[row, 1]
        axes.plot(
            [z - half, z + half, z + half, z - half, z - half],
            [y, y, y + tall, y + tall, y],
            style,
            color=TEXT,
            lw=1,
        )
        low, high = 1e3 * cell.fixture_low_m, 1e3 * cell.fixture_high_m
        box_z = z + np.array([low[2], high[2], high[2], low[2], low[2]])
        box_y = y + np.array([low[1], low[1], high[1], high[1], low[1]])
        axes.plot(box_z, box_y, style, color="#9aa3ad", lw=1)
    shadow = PolyCollection(
        list(1e3 * demand.fruit.silhouette), facecolors=_SILHOUETTE, edgecolors=_SILHOUETTE
    )
    axes.add_collection(shadow)
    axes.add_collection(LineCollection(list(1e3 * demand.fruit.section), colors=FRUIT, linewidths=2))
    axes.plot(edge[:start, 2], edge[:start, 1], color=_PHASES["approach"], lw=1.5, label="approach")
    axes.plot(edge[start:end, 2], edge[start:end, 1], color=CUT, lw=1.8, label="cut")
    axes.plot(edge[end:, 2], edge[end:, 1], "--", color=_PHASES["retract"], lw=1.2, label="retract")
    axes.axhline(0.0, color=TEXT, lw=2)
    axes.text(-half, -1.0, "board", fontsize=8, color=TEXT, va="top")
    axes.set_aspect("equal")
    axes.set_ylim(-12.0, max(float(edge[:, 1].max()), 1e3 * float(demand.fruit.high_m[1])) + 25.0)
    axes.set_xlabel("along the blade, z [mm]", fontsize=9, color=TEXT)
    axes.set_ylabel("height, y [mm]", fontsize=9, color=TEXT)
    axes.set_title(
        "path of the edge's centre; blade and fixture at start (dotted) and end", fontsize=10, color=TEXT
    )
    axes.legend(fontsize=8, frameon=False, loc="upper left")


def _force(axes: Any, files: ExportFiles, demand: Demand) -> None:
    start, _ = cut_phase(files)
    time = PERIOD_S * (start + np.arange(len(demand.cut)))
    force = demand.cut.force
    axes.plot(time, np.linalg.norm(force, axis=1), color=TEXT, lw=1.5, label="|F|")
    axes.plot(time, force[:, 1], color=CUT, lw=1, label="up")
    axes.plot(time, force[:, 2], color="#7b4fa3", lw=1, label="along the blade")
    axes.set_xlim(0.0, PERIOD_S * len(files.cut.rows))
    axes.set_title("predicted force on the knife [N]", fontsize=10, color=TEXT)
    axes.set_xlabel("time [s]", fontsize=9, color=TEXT)
    axes.legend(fontsize=8, frameon=False)


def _joints(axes: Any, title: str, values: NDArray[np.float64], allowed: float) -> None:
    time = PERIOD_S * np.arange(len(values))
    for joint in range(values.shape[1]):
        axes.plot(time, values[:, joint], lw=1, label=f"J{joint + 1}")
    for sign in (-1.0, 1.0):
        axes.axhline(sign * allowed, color=WARNING, lw=1, ls="--")
    axes.set_xlim(0.0, time[-1])
    top = 1.15 * max(allowed, float(np.abs(values).max()))
    axes.set_ylim(-top, top)
    axes.set_title(f"joints: {title} (dashed: allowed here)", fontsize=10, color=TEXT)


def knife_in_cell(knife: DescribedKnife, params: ExportParams) -> NDArray[np.uint8]:
    """Draw a knife in the cell's holder; 8-bit pixels, shape [height, width, 3]."""
    cell = cell_of(params)
    turn, edge = cell.f_t_e[:3, :3], cell.f_t_e[:3, 3]
    mounting = Mounting(
        cell.fixture_low_m, cell.fixture_high_m, -turn.T @ edge, turn.T @ (np.array(knife.com_m) - edge)
    )
    return knife_picture(knife, mounting)
