"""The picture of the stage `calibrate`: force, residual, history, and the parameters on the cut surface."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim.laws.damage import damage_law
from disect_sim.model import Model
from stages.calibrate.calibration import Calibration, spring_values
from stages.calibrate.material_fit.posterior import Posterior
from stages.calibrate.material_fit.sampled import Sampled
from stages.calibrate.recorded_cut import find_puncture
from stages.calibrate.sampling_picture import draw_corner, draw_traces, most_learnt
from stages.calibrate.unknowns import Values
from stages.calibrate.validation import TOUCHED_NS
from stages.shared.library.library import NINETY
from stages.shared.pictures.figure import draw_springs, new_figure, pixels_of
from stages.shared.pictures.preview import CUT, FRUIT, SCAN, TEXT, WARNING

SIZE_INCHES = (14.0, 9.0)
SAMPLED_INCHES = 7.0
"""Added where a posterior was sampled."""
HELD_OUT = "#f1e6d2"
MAPPED = (
    ("cut_spring_ke", "spring stiffness [N/m]"),
    ("cut_spring_softness", "softness [-]"),
    ("sdf_ke", "contact stiffness [N/m]"),
    ("sdf_mu", "friction [-]"),
)
"""Parameters shown on the cut surface, with their titles."""
Array = NDArray[np.float64]


def calibrate_picture(fit: Calibration, metrics: dict[str, Any]) -> NDArray[np.uint8]:
    """8-bit pixels, shape [height, width, 3]."""
    sampled = None if fit.material is None else fit.material.sampled
    width, height = SIZE_INCHES
    figure, canvas = new_figure((width, height if sampled is None else height + SAMPLED_INCHES))
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
    maps = figure.subplots(1, len(MAPPED) + 1)
    for axis, (name, title) in zip(maps, MAPPED, strict=False):
        _draw_map(figure, axis, fit.problem.model, values[name], title, fit.impulse > TOUCHED_NS)
    _draw_map(figure, maps[-1], fit.problem.model, 1e3 * fit.impulse, "knife's impulse [mN·s]", None)


def _draw_material(figure: Any, fit: Calibration, posterior: Posterior) -> None:
    """Toughness over the cut, what the log added to what was expected, and where the knife pressed."""
    model = fit.problem.model
    toughness, known, impulse = figure.subplots(1, 3, width_ratios=(1.0, 1.6, 1.0))
    name, title = ("edge_toughness", "toughness [J/m²]")
    if not damage_law(model.damage_law).at_edge:
        name, title = MAPPED[0]
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
    known.set(xlabel="standard deviations of what was expected")
    known.set_title("what the log added", color=TEXT, fontsize=11)
    known.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.28), ncols=2)


def _draw_sampled(figure: Any, sampled: Sampled, names: list[str]) -> None:
    """Corner and trace plots of the unknowns that the log narrowed most."""
    chosen = most_learnt(sampled.samples)
    corner, traces = figure.subfigures(1, 2)
    draw_corner(corner, sampled.samples.flat[:, chosen], [names[i] for i in chosen])
    draw_traces(traces, sampled.samples, names, chosen)
    rhat = sampled.diagnostics.rhat
    worst = "" if np.isnan(rhat).all() else f", R-hat at most {np.nanmax(rhat):.2f}"
    figure.suptitle(
        f"posterior by {sampled.method}: {len(sampled.samples.flat)} points, as good as "
        f"{sampled.diagnostics.effective.min():.0f} independent ones{worst}",
        color=TEXT,
        fontsize=11,
    )


def no_log_picture(model: Model, values: Values) -> NDArray[np.uint8]:
    """The springs with their nominal stiffness, and a sentence; 8-bit pixels, shape [height, width, 3]."""
    figure, canvas = new_figure(SIZE_INCHES)
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
            p.time, 0.0, largest, where=p.held_out, color=HELD_OUT, lw=0.0, label="not shown to the fit"
        )
    if sampled is not None:
        axis.fill_between(
            p.time, sampled.low, sampled.high, color=FRUIT, alpha=0.25, lw=0.0, label="posterior, 90 %"
        )
    axis.plot(p.time, p.measured, color=TEXT, lw=2.2, label="measured")
    axis.plot(p.time, fit.shared_simulated, color=SCAN, lw=1.2, label=before)
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
    figure: Any, axis: Any, model: Model, value: Array, title: str, touched: NDArray[np.bool_] | None
) -> None:
    """One value per spring on the cut surface; springs the knife never touched are hollow."""
    mesh = model.mesh
    dots = draw_springs(axis, mesh.spring_position, mesh.spring_area, value, title, full=touched)
    figure.colorbar(dots, ax=axis, orientation="horizontal", pad=0.22, shrink=0.9)
