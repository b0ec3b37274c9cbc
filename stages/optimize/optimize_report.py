"""Tables and metrics of a finished search."""

import re
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from stages.optimize.confirmation import POSSIBLE
from stages.optimize.constraints import RATE_HZ
from stages.optimize.descent import Point
from stages.optimize.final_draw import FinalDraw, Whole, joined
from stages.optimize.search import UNCONSTRAINED, Measured, Optimization
from stages.optimize.slicing_cut import SlicingCut
from stages.shared.cut import Severity, verdict
from stages.shared.library.library import AMPLITUDE_SPREAD, NINETY
from stages.shared.pictures import FRUIT, SCAN, TEXT, WARNING, new_figure, pixels_of

_Array = NDArray[np.float64]
_VEC3 = pl.Array(pl.Float64, 3)
_CONTACT_N, _CONTACT_SHARE = 0.5, 0.05
"""Force below which nothing is cut: this [N], for soft fruit this share of the peak."""


def motion_table(optimum: Optimization) -> pl.DataFrame:
    """Return the table optimize/motion."""
    return motion_rows(optimum.slicing, optimum.draw)


def motion_rows(motion: Measured, draw: FinalDraw) -> pl.DataFrame:
    """Return a motion with the columns of optimize/motion, one row per millisecond: the cut, then the final draw."""
    trajectory = joined(motion.cut.trajectory(motion.variables), draw.path)
    times = np.arange(len(trajectory.position)) / RATE_HZ
    force = np.concatenate([motion.force, draw.force])
    columns = [
        pl.Series("time_s", times, pl.Float64),
        pl.Series("position_m", trajectory.position, _VEC3),
        pl.Series("velocity_m_s", _in_space(trajectory.velocity), _VEC3),
        pl.Series("acceleration_m_s2", _in_space(trajectory.acceleration), _VEC3),
        pl.Series("force_n", _at(times, motion.cut, force), _VEC3),
    ]
    if motion.cut.rock is not None:
        columns.append(pl.Series("pitch_rad", trajectory.turn[:, 0], pl.Float64))
        columns.append(pl.Series("torque_nm", _at(times, motion.cut, draw.torque), _VEC3))
    return pl.DataFrame(columns)


def profile_table(optimum: Optimization) -> pl.DataFrame:
    """Return the table optimize/profile: both whole motions, one row per millisecond."""
    straight, sliced = optimum.whole_vertical.path.position, optimum.whole.path.position
    times = optimum.whole.times
    before, after = (_at(times, optimum.cut, each.force) for each in (optimum.whole_vertical, optimum.whole))
    return pl.DataFrame(
        [
            pl.Series("time_s", times, pl.Float64),
            pl.Series("vertical_n", np.linalg.norm(before, axis=1), pl.Float64),
            pl.Series("optimized_n", np.linalg.norm(after, axis=1), pl.Float64),
            pl.Series("vertical_force_n", before, _VEC3),
            pl.Series("optimized_force_n", after, _VEC3),
            pl.Series("vertical_position_m", straight, _VEC3),
            pl.Series("optimized_position_m", sliced, _VEC3),
        ]
    )


def keyframe_table(optimum: Optimization) -> pl.DataFrame:
    """Return the table optimize/keyframes."""
    values = optimum.cut.motion_parameters(optimum.slicing.variables)
    columns = [
        pl.Series("time_s", optimum.cut.keyframe_times, pl.Float64),
        pl.Series("amplitude_m_s", values["amplitude"], pl.Float64),
        pl.Series("frequency_rad_s", values["frequency"], pl.Float64),
        pl.Series("velocity_y_m_s", values["velocity_y"], pl.Float64),
    ]
    if "pitch_rate" in values:
        columns.append(pl.Series("pitch_rate_rad_s", values["pitch_rate"], pl.Float64))
    return pl.DataFrame(columns)


def history_table(optimum: Optimization) -> pl.DataFrame:
    """Return the table optimize/history, one row per iteration of every start."""
    rows = [
        {"start": name, "iteration": i + 1, **row}
        for name, run in optimum.runs.items()
        for i, row in enumerate(run.history)
    ]
    return pl.DataFrame(rows).rename({name: _residual_column(name) for name in optimum.residuals})


def _residual_column(rule: str) -> str:
    """Convert `lateral_m` to `lateral_residual_m`: the unit stays at the end."""
    return re.sub(r"(_m(?:_s2?)?|_rad)$", r"_residual\1", rule)


def confirmation_table(optimum: Optimization) -> pl.DataFrame:
    """Return the table optimize/confirmation: the checks in which both cuts finished; the metrics name the others."""
    rows = [row for row in optimum.confirmed if np.isfinite(row.reduction)]
    return pl.DataFrame(
        [
            pl.Series("check", [row.name for row in rows], pl.String),
            pl.Series("mean_force_vertical_n", [row.vertical_n for row in rows], pl.Float64),
            pl.Series("mean_force_optimized_n", [row.slicing_n for row in rows], pl.Float64),
            pl.Series("reduction", [row.reduction for row in rows], pl.Float64),
            pl.Series("peak_force_optimized_n", [row.peak_n for row in rows], pl.Float64),
        ]
    )


def metrics(optimum: Optimization) -> dict[str, Any]:
    """Return the artifact optimize/metrics.

    Unless stated otherwise a figure is of the whole motion, final strokes included.
    """
    vertical, slicing = optimum.whole_vertical.norm, optimum.whole.norm
    both = (optimum.whole_vertical, optimum.whole)
    over = optimum.cut.mean_over
    # Possible materials are in the interval; here it matters whether the simulation itself is reliable.
    kept = [row.reduction for row in optimum.confirmed if not row.name.startswith(POSSIBLE)]
    survives = bool(kept) and bool(np.isfinite(kept).all())
    free = optimum.runs.get(UNCONSTRAINED)
    return {
        "mean_over": optimum.cut.mean_over,
        "mean_force_vertical_n": optimum.whole_vertical.mean_n(over),
        "mean_force_optimized_n": optimum.whole.mean_n(over),
        "reduction": optimum.reduction(),
        **_band(optimum),
        "reduction_rests_on": optimum.rests_on,
        "reduction_over_time": optimum.reduction("time"),
        "reduction_over_depth": optimum.reduction("depth"),
        "reduction_of_descent": optimum.descent_reduction(),
        "mean_force_descent_vertical_n": optimum.vertical.mean_n(),
        "mean_force_descent_n": optimum.slicing.mean_n(),
        "mean_force_without_sawing_n": optimum.without_sawing.mean_n(),
        "reduction_by_sawing": optimum.reduction_by_sawing,
        "peak_force_vertical_n": float(vertical.max()),
        "peak_force_optimized_n": float(slicing.max()),
        "peak_reduction": 1.0 - float(slicing.max() / vertical.max()),
        **_both("push_down", "n", *(_push_down_n(each) for each in both)),
        **_both("work", "j", *(_work_j(optimum, each) for each in both)),
        **{_residual_column(name): value for name, value in optimum.residuals.items()},
        "confirmed_reduction": float(min(kept)) if survives else None,
        "confirmed": {row.name: _number(row.reduction) for row in optimum.confirmed},
        **_ablation(None if free is None else free.best, optimum.vertical.mean_n()),
        **_contributions(optimum),
        "duration_s": optimum.cut.passage.duration_s,
        "whole_duration_s": float(optimum.whole.times[-1]),
        "vertical_cut_fraction": optimum.vertical_outcome.cut_fraction,
        "draw_duration_s": optimum.draw.duration_s,
        "draw_strokes": optimum.draw.strokes,
        "draw_peak_force_n": optimum.draw.peak_n,
        "cut_fraction": optimum.draw.cut_fraction,
        **_verdict(optimum),
        "best_start": optimum.best_start,
        "iterations": sum(len(run.history) for run in optimum.runs.values()),
        "ended": {name: run.ended for name, run in optimum.runs.items()},
    }


def _contributions(optimum: Optimization) -> dict[str, Any]:
    """Return what sawing, rocking and both save against the vertical cut of the same whole duration, with intervals.

    Empty unless the motion saws and rocks.
    """
    if not optimum.alone:
        return {}
    rows = {}
    for name, one in (*optimum.alone.items(), ("both", optimum)):
        over = one.cut.mean_over
        rows[name] = {
            "mean_force_n": one.whole.mean_n(over),
            "mean_force_vertical_n": one.whole_vertical.mean_n(over),
            "peak_force_n": float(one.whole.norm.max()),
            "reduction": one.reduction(),
            "reduction_low": None if one.band is None else one.band.low,
            "reduction_high": None if one.band is None else one.band.high,
            "whole_duration_s": float(one.whole.times[-1]),
        }
    largest = float(np.abs(optimum.whole.path.turn[:, 0]).max())
    return {"contributions": rows, "largest_pitch_deg": float(np.degrees(largest))}


def _verdict(optimum: Optimization) -> dict[str, str | None]:
    """Return `refused` and `warning`: the optimised cut may be refused, the vertical one only warned about."""
    entries = verdict(*([] if optimum.draw.outcome is None else [optimum.draw.outcome]))
    vertical, texts = optimum.vertical_outcome, [entries["warning"]]
    if vertical.severity is not Severity.CUT:
        texts.append(f"{vertical.message} The saving is relative to that cut.")
    stopped = [row.name for row in optimum.confirmed if not np.isfinite(row.reduction)]
    if stopped:
        texts.append(
            f"A cut stopped before its end in {len(stopped)} of {len(optimum.confirmed)} confirming simulations "
            f"({', '.join(stopped)}); all should finish. Lower cut.dt_s."
        )
    return entries | {"warning": " ".join(text for text in texts if text) or None}


def _band(optimum: Optimization) -> dict[str, float | None]:
    """Return the 90 % intervals of saving and peak force over possible cuts; empty without a posterior.

    The saving's interval covers the shares of the edge toughness and the material: the same cut, made vertically, has
    the same factor of its own. `two_cuts` is the interval of a saving measured on two cuts, which have a factor each.
    """
    band = optimum.band
    figures: dict[str, float | None] = {
        "reduction_low": None if band is None else band.low,
        "reduction_high": None if band is None else band.high,
        "reduction_mean": None if band is None else band.mean,
        "reduction_two_cuts_low": None if band is None else band.two_cuts_low,
        "reduction_two_cuts_high": None if band is None else band.two_cuts_high,
        "reduction_material_spread": None if band is None else band.material_spread,
        "peak_force_high_n": None,
    }
    peaks = np.log([row.peak_n for row in optimum.confirmed if row.name.startswith(POSSIBLE)])
    if len(peaks) and np.isfinite(peaks).all():
        spread = float(np.hypot(peaks.std(), AMPLITUDE_SPREAD))
        figures["peak_force_high_n"] = float(optimum.slicing.norm.max() * np.exp(NINETY * spread))
    return figures


def _both(name: str, unit: str, before: float, after: float) -> dict[str, float]:
    """Return a figure of both motions, and the reduction by the optimised one."""
    return {
        f"{name}_vertical_{unit}": before,
        f"{name}_optimized_{unit}": after,
        f"{name}_reduction": 1.0 - after / before,
    }


def _push_down_n(motion: Whole) -> float:
    """Return the mean force with which the arm presses down [N], over time in contact."""
    up = motion.force[:, 1]
    least = min(_CONTACT_N, _CONTACT_SHARE * float(motion.norm.max()))
    return float(up[motion.norm > least].mean())


def _work_j(optimum: Optimization, motion: Whole) -> float:
    """Return the work of the arm [J]."""
    power = -(_at(motion.times, optimum.cut, motion.force) * _in_space(motion.path.velocity)).sum(axis=1)
    if motion.torque is not None and motion.path.turn.any():
        power -= _at(motion.times, optimum.cut, motion.torque)[:, 0] * motion.path.turn[:, 1]
    return float(np.trapezoid(power, motion.times))


def _ablation(best: Point | None, vertical_n: float) -> dict[str, float | None]:
    """Return the saving of the best motion without constraints, and its violations."""
    out: dict[str, float | None] = {
        "unconstrained_reduction": None if best is None else 1.0 - best.mean_force_n / vertical_n
    }
    for name in ("end_height_m", "lateral_m", "speed_m_s"):
        out[f"unconstrained_{_residual_column(name)}"] = None if best is None else best.residuals[name]
    return out


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _in_space(yz: _Array) -> _Array:
    return np.concatenate([np.zeros((len(yz), 1)), yz], axis=1)


def _at(times: _Array, cut: SlicingCut, force: _Array) -> _Array:
    """Return the force at the controller's times, zero at time zero. A sample is the mean up to its time."""
    sample_times = (np.arange(len(force)) + 0.5) / cut.sample_rate_hz
    return np.stack([np.interp(times, sample_times, column, left=0.0) for column in force.T], axis=1)


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
    (_compared if optimum.alone else _residuals)(axes[1, 1], optimum)
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


def _compared(axis: Any, optimum: Optimization) -> None:
    motions = {**optimum.alone, "both": optimum}
    savings = [100.0 * one.reduction() for one in motions.values()]
    bands = [one.band for one in motions.values()]
    axis.barh(list(motions), savings, color=[SCAN] * len(optimum.alone) + [FRUIT])
    for row, (saving, band) in enumerate(zip(savings, bands, strict=True)):
        end = max(0.0, saving)
        if band is not None:
            axis.plot([100.0 * band.low, 100.0 * band.high], [row, row], color=TEXT, lw=1.5)
            end = max(end, 100.0 * band.high)
        axis.text(end, row, f" {saving:.1f} %", va="center")
    axis.invert_yaxis()
    axis.set(
        xlabel="less mean force than the vertical cut of the same duration [%]",
        xlim=(
            min(0.0, *savings),
            1.25 * max(1.0, *savings, *(100.0 * b.high for b in bands if b is not None)),
        ),
    )
    axis.set_title("what sawing and rocking give; line: 90 %", color=TEXT)


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
