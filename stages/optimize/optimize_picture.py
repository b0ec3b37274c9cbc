"""Picture of the stage `optimize`: forces, the knife's path over the fruit, the search and its confirmation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from stages.optimize.search import Optimization
from stages.shared.pictures import FRUIT, SCAN, TEXT, WARNING, new_figure, pixels_of

_SIZE_INCHES = (17.0, 9.6)
_MM = 1e3


def optimize_picture(optimum: Optimization, silhouette: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Draw the picture; 8-bit pixels, shape [height, width, 3].

    silhouette: points (z, y) of the fruit [m], shape [n, 2].
    """
    figure, canvas = new_figure(_SIZE_INCHES)
    axes = figure.subplots(2, 3, width_ratios=(1.0, 1.1, 1.0))
    _force(axes[0, 0], optimum)
    _path(figure, axes[0, 1], optimum, silhouette)
    _speeds(axes[0, 2], optimum)
    _descent(axes[1, 0], optimum)
    _residuals(axes[1, 1], optimum)
    _confirmed(axes[1, 2], optimum)
    return pixels_of(canvas)


def _force(axis: Any, optimum: Optimization) -> None:
    over = optimum.cut.mean_over
    time = (np.arange(len(optimum.whole.force)) + 0.5) / optimum.cut.sample_rate_hz
    vertical, slicing, still = optimum.whole_vertical, optimum.whole, optimum.without_sawing
    axis.plot(time, vertical.norm, color=SCAN, lw=2, label=f"vertical, mean {vertical.mean_n(over):.1f} N")
    label = f"slicing's descent without sawing, mean {still.mean_n():.1f} N"
    axis.plot(time[: len(still.norm)], still.norm, color=SCAN, lw=1, ls="--", label=label)
    axis.plot(time, slicing.norm, color=FRUIT, lw=2, label=f"slicing, mean {slicing.mean_n(over):.1f} N")
    axis.axvline(optimum.cut.passage.duration_s, color=TEXT, lw=0.5, label="final strokes begin")
    axis.set(xlabel="time [s]", ylabel="norm of the force on the knife [N]", ylim=(0.0, None))
    band = optimum.band
    ends = "" if band is None else f" (90 %: {100.0 * band.low:.0f} to {100.0 * band.high:.0f} %)"
    axis.set_title(f"{100.0 * optimum.reduction():.1f} % less mean force over {over}{ends}", color=TEXT)
    axis.legend(frameon=False)


def _path(figure: Any, axis: Any, optimum: Optimization, silhouette: NDArray[np.float64]) -> None:
    position = optimum.cut.trajectory(optimum.slicing.variables).position
    passage = optimum.cut.passage
    hull = _MM * silhouette[ConvexHull(silhouette).vertices]
    axis.fill(hull[:, 0], hull[:, 1], color=FRUIT, alpha=0.35, lw=0)
    points = axis.scatter(
        _MM * position[:, 2], _MM * position[:, 1], c=optimum.cut.times, s=4, cmap="viridis"
    )
    for side in (-1.0, 1.0):
        axis.axvline(_MM * (passage.z_m + side * passage.lateral_limit_m), color=WARNING, lw=1, ls="--")
    figure.colorbar(points, ax=axis, label="time [s]", shrink=0.6)
    axis.axhline(0.0, color=TEXT, lw=1)
    axis.set(xlabel="along the blade, z [mm]", ylabel="height [mm]", aspect="equal")
    axis.set_title("path of the edge's middle; dashed: its limits", color=TEXT)


def _speeds(axis: Any, optimum: Optimization) -> None:
    velocity = optimum.cut.trajectory(optimum.slicing.variables).velocity
    time = optimum.cut.times
    axis.plot(time, velocity[:, 1], color=FRUIT, lw=2, label="along the blade")
    axis.plot(time, velocity[:, 0], color=SCAN, lw=2, label="vertical")
    for side in (-1.0, 1.0):
        axis.axhline(side * optimum.limits["speed_m_s"], color=WARNING, lw=1, ls="--")
    axis.set(xlabel="time [s]", ylabel="velocity of the edge [m/s]")
    axis.set_title("dashed: limit of the speed", color=TEXT)
    axis.legend(frameon=False)


def _descent(axis: Any, optimum: Optimization) -> None:
    for name, run in optimum.runs.items():
        axis.plot(
            range(1, len(run.history) + 1), [row["mean_force_n"] for row in run.history], lw=1.5, label=name
        )
    axis.axhline(optimum.vertical.mean_n(), color=WARNING, lw=1, ls="--", label="vertical cut")
    axis.set(xlabel="simulation", ylabel="mean force [N]")
    axis.set_title(f"the search; best: {optimum.best_start}", color=TEXT)
    axis.legend(frameon=False)


def _residuals(axis: Any, optimum: Optimization) -> None:
    rows = optimum.runs[optimum.best_start].history
    for name in ("end_height_m", "lateral_m", "board_m"):
        values = [_MM * row[name] for row in rows]
        axis.plot(range(1, len(rows) + 1), values, lw=1.5, label=name.removesuffix("_m").replace("_", " "))
    axis.axhline(0.5, color=WARNING, lw=1, ls="--", label="tolerance")
    axis.set(xlabel="simulation", ylabel="by how much the constraint is broken [mm]")
    axis.set_title("constraints of the best start", color=TEXT)
    axis.legend(frameon=False)


def _confirmed(axis: Any, optimum: Optimization) -> None:
    names = ["as optimised", *(row.name for row in optimum.confirmed)]
    values = [100.0 * v for v in (optimum.descent_reduction(), *(row.reduction for row in optimum.confirmed))]
    bars = axis.barh(names, np.nan_to_num(values), color=[FRUIT] + [SCAN] * len(optimum.confirmed))
    axis.bar_label(bars, labels=[f"{v:.1f} %" for v in values], padding=3)
    axis.invert_yaxis()
    axis.set(
        xlabel="less mean force than the vertical cut [%]",
        xlim=(0.0, 1.25 * max(1.0, *np.nan_to_num(values))),
    )
    axis.set_title("the descent, simulated again", color=TEXT)
