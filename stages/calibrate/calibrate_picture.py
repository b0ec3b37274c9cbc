"""Pictures of calibrate and predict: force, residual, history, parameters on the cut surface, posterior, prediction."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim.laws import damage_law
from disect_sim.model import Model
from stages.calibrate.calibration import Calibration, spring_values
from stages.calibrate.material.posterior import Posterior
from stages.calibrate.material.sampled import Sampled
from stages.calibrate.phase import Values
from stages.calibrate.prediction import Prediction
from stages.calibrate.problem import TOUCHED_NS, find_puncture
from stages.calibrate.samplers.sampling import Samples
from stages.shared.library.library import NINETY
from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, WARNING, draw_springs, new_figure, pixels_of

# Picture of a prediction


def prediction_picture(found: Prediction) -> NDArray[np.uint8]:
    """Draw measured force, predicted band and baselines; 8-bit pixels, shape [height, width, 3]."""
    figure, canvas = new_figure((9.0, 5.0))
    axis = figure.add_subplot()
    p, mine = found.problem, 100.0 * found.nmae(found.predicted)
    depth = 1e3 * (p.height.max() - p.height)
    axis.fill_between(depth, found.low, found.high, color=FRUIT, alpha=0.18, lw=0.0, label="90 % band")
    axis.plot(depth, p.measured, color=TEXT, lw=2.2, label="measured, not shown to the fit")
    axis.plot(
        depth,
        found.predicted,
        color=FRUIT,
        lw=2.0,
        label=f"predicted: {100 * found.nmae(found.predicted):.1f} %",
    )
    for (name, profile), colour in zip(found.guesses.items(), (CUT, SCAN), strict=True):
        axis.plot(depth, profile, color=colour, lw=1.2, label=f"{name}: {100 * found.nmae(profile):.1f} %")
    axis.set(xlabel="depth of the edge [mm]", ylabel="force on the knife [N]", ylim=(0.0, None))
    axis.set_title(
        f"Mean error {mine:.1f} %, {100 * found.amplitude:.0f} % of the predicted force, "
        f"{100 * found.coverage:.0f} % inside the band",
        color=TEXT,
        fontsize=10,
    )
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    return pixels_of(canvas)


# Corner and trace plots of a sampled posterior


_MOST_SHOWN = 5
"""Maximum number of unknowns in a corner plot: those that the log narrowed most."""
_MOST_BINS = 24
_MOST_DOTS = 1500
"""Maximum number of points in a corner plot."""

_Array = NDArray[np.float64]


def _most_learnt(samples: Samples) -> list[int]:
    """Return the unknowns to show: the narrowest after the log, in their own order."""
    order = np.argsort(samples.flat.std(axis=0), kind="stable")[:_MOST_SHOWN]
    return sorted(int(i) for i in order)


def _draw_corner(
    figure: Any,
    points: _Array,
    names: Sequence[str],
    *,
    marks: _Array | None = None,
    unit: str = "standard deviations",
) -> None:
    """Draw histograms on the diagonal, pairs below it; points of shape [point_count, shown_count], marks: one point."""
    count = len(names)
    axes = np.atleast_2d(figure.subplots(count, count))
    shown = points[:: max(1, len(points) // _MOST_DOTS)]
    bins = min(_MOST_BINS, 4 + int(np.sqrt(len(points))))
    size = float(np.clip(60.0 / np.sqrt(len(shown)), 2.0, 6.0))
    for row in range(count):
        for column in range(count):
            axis = axes[row, column]
            if column > row:
                axis.set_axis_off()
                continue
            if column == row:
                axis.hist(points[:, row], bins, color=FRUIT, density=True)
                axis.set_yticks([])
                axis.set_title(names[row].replace("_", " "), color=TEXT, fontsize=8)
            else:
                axis.plot(shown[:, column], shown[:, row], ".", color=CUT, ms=size, alpha=0.5, mew=0)
            if marks is not None:
                axis.axvline(marks[column], color=TEXT, lw=0.8, ls=":")
                if column < row:
                    axis.axhline(marks[row], color=TEXT, lw=0.8, ls=":")
            axis.tick_params(labelsize=6)
    axes[-1, 0].set_xlabel(unit, fontsize=7)


def _draw_traces(figure: Any, samples: Samples, names: Sequence[str], chosen: Sequence[int]) -> None:
    """Draw every chain over its iterations, burn-in in grey."""
    axes = np.atleast_1d(figure.subplots(len(chosen), 1, sharex=True))
    burn_in = samples.trace.shape[1] - samples.t.shape[1]
    for axis, i in zip(axes, chosen, strict=True):
        for chain in samples.trace[..., i]:
            axis.plot(chain, lw=0.6)
        axis.axvspan(0, burn_in, color=SCAN, alpha=0.3, lw=0)
        axis.set_ylabel(names[i].replace("_", "\n"), fontsize=6, rotation=0, ha="right", va="center")
        axis.tick_params(labelsize=6)
    axes[-1].set_xlabel("iteration (grey: burn-in)" if samples.chained else "point", fontsize=8)


_SIZE_INCHES = (14.0, 9.0)
_SAMPLED_INCHES = 7.0
"""Additional height if the posterior was sampled [inches]."""
_HELD_OUT = "#f1e6d2"
_MAPPED = (
    ("cut_spring_ke", "spring stiffness [N/m]"),
    ("cut_spring_softness", "softness [-]"),
    ("sdf_ke", "contact stiffness [N/m]"),
    ("sdf_mu", "friction [-]"),
)
"""Parameters shown on the cut surface, with their titles."""


def calibrate_picture(fit: Calibration, metrics: dict[str, Any]) -> NDArray[np.uint8]:
    """Draw the picture; 8-bit pixels, shape [height, width, 3]."""
    sampled = None if fit.material is None else fit.material.sampled
    width, height = _SIZE_INCHES
    figure, canvas = new_figure((width, height if sampled is None else height + _SAMPLED_INCHES))
    ratios = (1.25, 1.0) if sampled is None else (1.25, 1.0, 1.5)
    rows = figure.subfigures(len(ratios), 1, height_ratios=ratios)
    left, right = rows[0].subplots(1, 2, width_ratios=(2.0, 1.0))
    _draw_profile(left, fit, metrics)
    _draw_history(right, fit)
    if fit.material is None:
        _draw_springs(rows[1], fit)
    else:
        _draw_material(rows[1], fit, fit.material.posterior)
        if sampled is not None:
            _draw_sampled(rows[2], sampled, fit.material.posterior.unknowns.names)
    return pixels_of(canvas)


def _draw_springs(figure: Any, fit: Calibration) -> None:
    values = spring_values(fit.problem.model, fit.values)
    maps = figure.subplots(1, len(_MAPPED) + 1)
    for axis, (name, title) in zip(maps, _MAPPED, strict=False):
        _draw_map(figure, axis, fit.problem.model, values[name], title, fit.impulse > TOUCHED_NS)
    _draw_map(figure, maps[-1], fit.problem.model, 1e3 * fit.impulse, "knife's impulse [mN·s]", None)


def _draw_material(figure: Any, fit: Calibration, posterior: Posterior) -> None:
    """Draw toughness over the cut, posterior against prior, and the knife's impulse."""
    model = fit.problem.model
    toughness, known, impulse = figure.subplots(1, 3, width_ratios=(1.0, 1.6, 1.0))
    name, title = ("edge_toughness", "toughness [J/m²]")
    if not damage_law(model.damage_law).at_edge:
        name, title = _MAPPED[0]
    values = spring_values(model, fit.values)[name]
    _draw_map(figure, toughness, model, values, title, fit.impulse > TOUCHED_NS)
    _draw_map(figure, impulse, model, 1e3 * fit.impulse, "knife's impulse [mN·s]", None)
    names = posterior.unknowns.names
    place = -np.arange(len(names))
    known.hlines(place, -NINETY, NINETY, color=SCAN, lw=7.0, alpha=0.5, label="expected, 90 %")
    low, high = np.transpose([posterior.interval(i) for i in range(len(names))])
    known.hlines(place, low, high, color=FRUIT, lw=3.0, label="after the log")
    known.plot(posterior.mean, place, "o", color=FRUIT, mec="white", ms=6)
    known.set_yticks(place, [name.replace("_", " ") for name in names], fontsize=8)
    known.set(xlabel="prior standard deviations")
    known.set_title("posterior against prior", color=TEXT, fontsize=11)
    known.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2)


def _draw_sampled(figure: Any, sampled: Sampled, names: list[str]) -> None:
    """Draw corner and trace plots of the unknowns that the log narrowed most."""
    chosen = _most_learnt(sampled.samples)
    corner, traces = figure.subfigures(1, 2)
    _draw_corner(corner, sampled.samples.flat[:, chosen], [names[i] for i in chosen])
    _draw_traces(traces, sampled.samples, names, chosen)
    rhat = sampled.diagnostics.rhat
    worst = "" if np.isnan(rhat).all() else f", R-hat at most {np.nanmax(rhat):.2f}"
    figure.suptitle(
        f"posterior by {sampled.method}: {len(sampled.samples.flat)} points, as good as "
        f"{sampled.diagnostics.effective.min():.0f} independent ones{worst}",
        color=TEXT,
        fontsize=11,
    )


def no_log_picture(model: Model, values: Values) -> NDArray[np.uint8]:
    """Draw the springs with their nominal stiffness and a note; 8-bit pixels, shape [height, width, 3]."""
    figure, canvas = new_figure(_SIZE_INCHES)
    axis = figure.add_subplot()
    _draw_map(figure, axis, model, spring_values(model, values)["cut_spring_ke"], "", None)
    axis.set_title(
        "No force log: nominal parameters. Give one with scan2cut run SCAN --log FILE.", color=TEXT
    )
    return pixels_of(canvas)


def _draw_profile(axis: Any, fit: Calibration, metrics: dict[str, Any]) -> None:
    p = fit.problem
    sampled = None if fit.material is None else fit.material.sampled
    shown = [p.measured, fit.simulated, *([] if sampled is None else [sampled.high])]
    largest = 1.1 * max(float(each.max()) for each in shown)
    before = "expected before the log"
    if fit.material is None:
        before = "simulated, shared parameters"
        axis.fill_between(
            p.time, 0.0, largest, where=p.held_out, color=_HELD_OUT, lw=0.0, label="not shown to the fit"
        )
    if sampled is not None:
        axis.fill_between(
            p.time, sampled.low, sampled.high, color=FRUIT, alpha=0.25, lw=0.0, label="posterior, 90 %"
        )
    axis.plot(p.time, p.measured, color=TEXT, lw=2.2, label="measured")
    axis.plot(p.time, fit.reference_simulated, color=SCAN, lw=1.2, label=before)
    axis.plot(p.time, fit.simulated, color=FRUIT, lw=2.0, label="simulated, fitted")
    axis.plot(p.time, fit.simulated - p.measured, color=CUT, lw=1.0, label="residual")
    axis.axhline(0.0, color=SCAN, lw=0.6)
    axis.axvline(p.onset_s, color=WARNING, lw=1.0, ls=":")
    axis.annotate(
        "first touch", (p.onset_s, 0.0), color=WARNING, fontsize=8, ha="right", va="bottom", rotation=90
    )
    time = p.time[p.contact]
    puncture = find_puncture(time, p.measured[p.contact])
    if puncture:
        axis.plot(*puncture, marker="v", ms=7, color=TEXT, mec="white", label="_puncture")
        followed = find_puncture(time, fit.simulated[p.contact], near_s=puncture[0])
        if followed:
            axis.plot(*followed, marker="v", ms=7, color=FRUIT, mec="white", label="_puncture")
    axis.set(
        xlabel="time [s]", ylabel="force on the knife [N]", xlim=(p.time[0], p.time[-1]), ylim=(None, largest)
    )
    title = f"{fit.outcome.word}: NMAE {100 * metrics['nmae']:.1f} %, MAE {metrics['mae_n']:.2f} N"
    if metrics["nmae_held_out"] is not None:
        title += f", NMAE where not shown {100 * metrics['nmae_held_out']:.1f} %"
    if metrics["nmae_forecast"] is not None:
        title += f", its end forecast from its beginning to {100 * metrics['nmae_forecast']:.1f} %"
    axis.set_title(title, color=TEXT, fontsize=11)
    axis.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(0.02, 0.98))


def _draw_history(axis: Any, fit: Calibration) -> None:
    step = np.arange(1, len(fit.history) + 1)
    axis.semilogy(
        step, [row.nmae for row in fit.history], color=FRUIT, lw=2.0, label="NMAE of the best point"
    )
    axis.semilogy(step, [row.loss for row in fit.history], color=CUT, lw=1.0, label="loss")
    phases = [row.phase for row in fit.history]
    for i in range(1, len(phases)):
        if phases[i] != phases[i - 1]:
            axis.axvline(i + 0.5, color=SCAN, lw=0.8, ls=":")
            axis.annotate(phases[i], (i + 0.6, axis.get_ylim()[1]), fontsize=8, color=TEXT, va="top")
    axis.set(xlabel="iteration")
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_title(f"{fit.gradients} gradients, {fit.simulations} simulations", color=TEXT, fontsize=11)
    axis.legend(frameon=False, fontsize=8, loc="lower left")


def _draw_map(
    figure: Any, axis: Any, model: Model, value: _Array, title: str, touched: NDArray[np.bool_] | None
) -> None:
    """Draw one value per spring on the cut surface; springs the knife never touched are hollow."""
    mesh = model.mesh
    dots = draw_springs(axis, mesh.spring_position, mesh.spring_area, value, title, full=touched)
    figure.colorbar(dots, ax=axis, orientation="horizontal", pad=0.22, shrink=0.9)
