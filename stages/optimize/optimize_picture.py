"""Picture of the stage `optimize`: forces, the knife's path over the fruit, the search and its confirmation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from stages.optimize.search import Optimization
from stages.shared.pictures import FRUIT, SCAN, TEXT, WARNING, new_figure, pixels_of

_SIZE_INCHES = (17.0, 9.6)
_MM = 1e3


def optimize_picture(found: Optimization, silhouette: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Draw the picture; 8-bit pixels, shape [height, width, 3].

    silhouette: points (z, y) of the fruit [m], shape [n, 2].
    """
    figure, canvas = new_figure(_SIZE_INCHES)
    axes = figure.subplots(2, 3, width_ratios=(1.0, 1.1, 1.0))
    _force(axes[0, 0], found)
    _path(figure, axes[0, 1], found, silhouette)
    _speeds(axes[0, 2], found)
    _descent(axes[1, 0], found)
    _residuals(axes[1, 1], found)
    _confirmed(axes[1, 2], found)
    return pixels_of(canvas)


def _force(axis: Any, found: Optimization) -> None:
    over = found.cut.mean_over
    time = (np.arange(len(found.whole.force)) + 0.5) / found.cut.sample_rate_hz
    vertical, slicing, still = found.whole_vertical, found.whole, found.without_sawing
    axis.plot(time, vertical.norm, color=SCAN, lw=2, label=f"vertical, mean {vertical.mean_n(over):.1f} N")
    label = f"slicing's descent without sawing, mean {still.mean_n():.1f} N"
    axis.plot(time[: len(still.norm)], still.norm, color=SCAN, lw=1, ls="--", label=label)
    axis.plot(time, slicing.norm, color=FRUIT, lw=2, label=f"slicing, mean {slicing.mean_n(over):.1f} N")
    axis.axvline(found.cut.passage.duration_s, color=TEXT, lw=0.5, label="final strokes begin")
    axis.set(xlabel="time [s]", ylabel="norm of the force on the knife [N]", ylim=(0.0, None))
    band = found.band
    ends = "" if band is None else f" (90 %: {100.0 * band.low:.0f} to {100.0 * band.high:.0f} %)"
    axis.set_title(f"{100.0 * found.reduction():.1f} % less mean force over {over}{ends}", color=TEXT)
    axis.legend(frameon=False)


def _path(figure: Any, axis: Any, found: Optimization, silhouette: NDArray[np.float64]) -> None:
    position = found.cut.trajectory(found.slicing.variables).position
    passage = found.cut.passage
    hull = _MM * silhouette[ConvexHull(silhouette).vertices]
    axis.fill(hull[:, 0], hull[:, 1], color=FRUIT, alpha=0.35, lw=0)
    points = axis.scatter(_MM * position[:, 2], _MM * position[:, 1], c=found.cut.times, s=4, cmap="viridis")
    for side in (-1.0, 1.0):
        axis.axvline(_MM * (passage.z_m + side * passage.lateral_limit_m), color=WARNING, lw=1, ls="--")
    figure.colorbar(points, ax=axis, label="time [s]", shrink=0.6)
    axis.axhline(0.0, color=TEXT, lw=1)
    axis.set(xlabel="along the blade, z [mm]", ylabel="height [mm]", aspect="equal")
    axis.set_title("path of the edge's middle; dashed: its limits", color=TEXT)


def _speeds(axis: Any, found: Optimization) -> None:
    velocity = found.cut.trajectory(found.slicing.variables).velocity
    time = found.cut.times
    axis.plot(time, velocity[:, 1], color=FRUIT, lw=2, label="along the blade")
    axis.plot(time, velocity[:, 0], color=SCAN, lw=2, label="vertical")
    for side in (-1.0, 1.0):
        axis.axhline(side * found.limits["speed_m_s"], color=WARNING, lw=1, ls="--")
    axis.set(xlabel="time [s]", ylabel="velocity of the edge [m/s]")
    axis.set_title("dashed: limit of the speed", color=TEXT)
    axis.legend(frameon=False)


def _descent(axis: Any, found: Optimization) -> None:
    for name, run in found.runs.items():
        axis.plot(
            range(1, len(run.history) + 1), [row["mean_force_n"] for row in run.history], lw=1.5, label=name
        )
    axis.axhline(found.vertical.mean_n(), color=WARNING, lw=1, ls="--", label="vertical cut")
    axis.set(xlabel="simulation", ylabel="mean force [N]")
    axis.set_title(f"the search; best: {found.best_start}", color=TEXT)
    axis.legend(frameon=False)


def _residuals(axis: Any, found: Optimization) -> None:
    rows = found.runs[found.best_start].history
    for name in ("end_height_m", "lateral_m", "board_m"):
        values = [_MM * row[name] for row in rows]
        axis.plot(range(1, len(rows) + 1), values, lw=1.5, label=name.removesuffix("_m").replace("_", " "))
    axis.axhline(0.5, color=WARNING, lw=1, ls="--", label="tolerance")
    axis.set(xlabel="simulation", ylabel="by how much the constraint is broken [mm]")
    axis.set_title("constraints of the best start", color=TEXT)
    axis.legend(frameon=False)


def _confirmed(axis: Any, found: Optimization) -> None:
    names = ["as optimised", *(row.name for row in found.confirmed)]
    values = [100.0 * v for v in (found.descent_reduction(), *(row.reduction for row in found.confirmed))]
    bars = axis.barh(names, np.nan_to_num(values), color=[FRUIT] + [SCAN] * len(found.confirmed))
    axis.bar_label(bars, labels=[f"{v:.1f} %" for v in values], padding=3)
    axis.invert_yaxis()
    axis.set(
        xlabel="less mean force than the vertical cut [%]",
        xlim=(0.0, 1.25 * max(1.0, *np.nan_to_num(values))),
    )
    axis.set_title("the descent, simulated again", color=TEXT)
