"""The whole fit: shared parameters, then individual ones, then their uncertainty."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim.laws import damage_law
from disect_sim.model import Model
from disect_sim.parameters import SPRING_NAMES, SURFACE_PREFIX, expand, parameter_info
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.fit import MaterialFit, fit_material, material_unknowns
from stages.calibrate.material.posterior import KNOWN
from stages.calibrate.material.sampled import check_posterior
from stages.calibrate.material.unknowns import HEIGHT_SPREAD_M, MaterialUnknowns, relative_slope
from stages.calibrate.methods import LOSSES, METHODS
from stages.calibrate.phase import FitOutcome, HistoryRow, Report, Values, parameter_bounds, shared_unknowns
from stages.calibrate.problem import OFFSET, Problem, RecordedCut, contact_impulse, pose_problem
from stages.calibrate.springs.fit import SharedFit, fit_from_starts, fit_individual, scattered_starts
from stages.calibrate.springs.posterior import Certainty, SpringPosterior, certainties, spring_posteriors
from stages.runtime.checkpoint import remove_checkpoints
from stages.runtime.errors import InputError
from stages.shared.fitting import Bound, share_done
from stages.shared.library.library import ANY_MATERIAL, SHARE_RATIOS

_FIT_SHARE, _LAPLACE_SHARE = 0.1, 0.8
"""Fractions of the progress taken by the fit if a posterior is sampled after it, and if not."""

_Array = NDArray[np.float64]
_Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Calibration:
    """A finished fit."""

    problem: Problem
    values: Values
    """Every parameter: one number, or one per spring."""
    bounds: dict[str, Bound]
    """Bounds of the fitted shared parameters."""
    reference_values: Values
    """Values that the fit is compared with: the prior's (material), or those after the shared phase (springs)."""
    certainty: dict[str, Certainty]
    """Linear error estimate of the shared values."""
    simulated: _Array
    """Profile of the fitted model [N], shape [sample_count]."""
    reference_simulated: _Array
    """Profile with `reference_values` [N], shape [sample_count]."""
    history: list[HistoryRow]
    gradients: int
    simulations: int
    """Number of simulations, those with a gradient included."""
    outcome: FitOutcome
    impulse: _Array
    """Knife's impulse on each spring [N s], shape [spring_count]."""
    gradient_norm: _Array
    """Norm of the loss's gradient in each spring's free numbers, shape [spring_count]."""
    material: MaterialFit | None = None
    """Posterior, if the material was fitted."""
    springs: Mapping[str, SpringPosterior] = field(default_factory=dict)
    """Posterior of each spring, by parameter, if they were fitted one by one."""

    @property
    def kind(self) -> Literal["material", "springs"]:
        """Kind of the fit, as in `calibrate.fit`."""
        return "springs" if self.material is None else "material"


def calibrate(
    model: Model,
    cut: RecordedCut,
    params: CalibrateParams,
    *,
    more: Sequence[RecordedCut] = (),
    material: str = "apple",
    own: Collection[str] = (),
    scan_dir: Path | None = None,
    key: str = "",
    progress: _Progress | None = None,
    show: Callable[[Problem, str], None] = lambda problem, text: None,
) -> Calibration:
    """Fit the simulator's parameters to a recorded cut.

    `more` are further cuts of the fruit, for the fit of its material. `material` is the fruit's name in the library of
    earlier cuts, and `own` names these cuts' own entries there, which are left out. `scan_dir` is the folder of the
    checkpoints (None keeps none), `key` a hash of everything the fit depends on. `show` is called with the problem,
    which has the nearest curve so far, and a line of text after every iteration.
    """
    check_names(params)
    problem = pose_problem(model, cut, params)
    if params.fit == "material":
        problems = [problem, *(pose_problem(model, other, params) for other in more)]
        sought = material_unknowns(material, params, cuts=len(problems), leave_out=own)
        first, second = _two_parts(progress, _LAPLACE_SHARE if params.posterior == "laplace" else _FIT_SHARE)
        report = _reporting(params, first, lambda text: show(problem, text))
        return _material(problems, sought, params, scan_dir, key, report, second)
    bounds = parameter_bounds(
        params.shared,
        damage_law=params.cut.damage_law,
        offset_range_m=params.offset_range_m,
        given=params.bounds,
    )
    report = _reporting(params, progress, lambda text: show(problem, text))
    unknowns, start = shared_unknowns(params.start, bounds)
    fit = SharedFit(problem, unknowns, params, scan_dir, key)
    starts = scattered_starts(unknowns.free(start), params.starts, params.start_spread, params.seed)
    shared, history = fit_from_starts(fit, starts, report=report)
    reference_values = unknowns.values(shared.best.free)
    values, outcome = reference_values, shared.outcome
    gradients, simulations = shared.gradients, shared.history[-1].simulations
    certainty, extra = certainties(
        problem, unknowns, shared.best.free, low_pass_hz=params.reading.filter_cutoff_hz
    )
    reference_simulated = _profile(problem, reference_values)
    if params.individual and params.individual_iterations:
        refined, individual = fit_individual(
            problem, params.individual, reference_values, params, scan_dir=scan_dir, key=key, report=report
        )
        history = [*history, *refined.history]
        gradients += refined.gradients
        simulations += refined.gradients
        outcome = refined.outcome
        values = individual.values(refined.best.free)
    simulated = _profile(problem, values)
    impulse, gradient_norm, springs = _per_spring(problem, values, params)
    remove_checkpoints(scan_dir, "calibrate")
    return Calibration(
        problem,
        values,
        bounds,
        reference_values,
        certainty,
        simulated,
        reference_simulated,
        history,
        gradients,
        simulations + extra,
        outcome,
        impulse,
        gradient_norm,
        springs=springs,
    )


def _material(
    problems: list[Problem],
    sought: MaterialUnknowns,
    params: CalibrateParams,
    scan_dir: Path | None,
    key: str,
    report: Report | None,
    on_sampling: _Progress,
) -> Calibration:
    """Fit the material and return it as a Calibration."""
    problem = problems[0]
    found = fit_material(
        problems, sought, params, scan_dir=scan_dir, key=key, report=report, on_sampling=on_sampling
    )
    best, posterior = found.found, found.posterior
    unknowns = posterior.unknowns
    values = unknowns.values(best.t)
    sizes = unknowns.parameters(best.t) | {OFFSET: unknowns.height(best.t)}
    bounds = parameter_bounds(
        [*sizes] if unknowns.per_cut else [*unknowns.parameters(best.t)],
        damage_law=params.cut.damage_law,
        offset_range_m=params.offset_range_m,
        given=params.bounds,
    )
    certainty = {}
    for name, deviation, t in zip(unknowns.names, posterior.deviation, best.t, strict=True):
        if name in sizes:
            spread = HEIGHT_SPREAD_M
            if name in unknowns.prior:
                spread = relative_slope(unknowns.prior[name], float(t)) * sizes[name]
            certainty[name] = Certainty(float(deviation) * spread, deviation < KNOWN)
    if unknowns.seeks_shares:
        known = all(posterior.deviation[unknowns.names.index(name)] < KNOWN for name in SHARE_RATIOS)
        certainty |= {name: Certainty(error, known) for name, error in posterior.share_errors().items()}
    remove_checkpoints(scan_dir, "calibrate")
    gradients, simulations = best.gradients, best.simulations
    if found.sampled is not None:
        samples = found.sampled.samples
        gradients += samples.gradients
        simulations += samples.gradients + samples.simulations
    return Calibration(
        problem,
        values,
        bounds,
        {name: np.asarray(value) for name, value in sizes.items()},
        certainty,
        best.profiles[0],
        found.expected_profile,
        best.history,
        gradients,
        simulations,
        best.outcome,
        best.impulse,
        np.zeros(problem.model.spring_count),
        found,
    )


def scalar_values(fit: Calibration) -> dict[str, float]:
    """Return the fitted parameters as one number each: that of the first phase where springs differ."""
    out = {}
    for name in fit.bounds:
        last = fit.values.get(name)
        out[name] = float(fit.reference_values[name] if last is None or last.ndim else last)
    return out


def check_names(params: CalibrateParams) -> None:
    """Reject parameters the simulator does not have, and individual ones that are not per spring."""
    for name in (*params.start, *params.shared, *params.individual, *params.bounds):
        if name != OFFSET:
            parameter_info(name, damage_law=params.cut.damage_law)
    check_posterior(params)
    if params.fit == "material":
        _check_material(params)
        return
    for name in (*params.shared, *params.individual):
        if name.removeprefix(SURFACE_PREFIX) in damage_law(params.cut.damage_law).ignores:
            raise InputError(
                f"calibrate fits {name!r}, which has no effect with cut.damage_law {params.cut.damage_law!r}. Take it "
                "out of calibrate.shared and calibrate.individual, or set calibrate.fit to material."
            )
    for name in params.individual:
        if name not in SPRING_NAMES:
            raise InputError(
                f"calibrate.individual names {name!r}. Only {', '.join(SPRING_NAMES)} have one value per spring "
                "(skin springs are among them). Take it out."
            )
    for optimiser, loss, key in (
        (params.shared_optimiser, params.shared_loss, "shared_loss"),
        (params.individual_optimiser, params.loss, "loss"),
    ):
        if METHODS[optimiser].loss == "smooth" and not LOSSES[loss].smooth:
            others = ", ".join(name for name, method in METHODS.items() if method.loss == "any")
            raise InputError(
                f"calibrate.{key} is {loss}, which has a kink where the fit is perfect. {optimiser} needs a smooth "
                f"loss. Take pseudo_huber, or {others} as the optimiser."
            )
    for name in (*params.shared, *params.individual):
        bare = name.removeprefix(SURFACE_PREFIX)
        if name != OFFSET and bare not in params.start:
            raise InputError(
                f"calibrate fits {name!r}, but calibrate.start has no {bare!r}. A fit needs a start. Add it."
            )


def _check_material(params: CalibrateParams) -> None:
    ratios = [name for name in SHARE_RATIOS if name in params.material]
    if len(ratios) == 1:
        raise InputError(
            f"calibrate.material names {ratios[0]} alone. The shares of the edge toughness need both ratios, "
            f"{' and '.join(SHARE_RATIOS)}. Name both, or none to keep the shares of calibrate.start."
        )
    if params.prior == "uniform":
        _check_uniform(params)
        return
    unknown = [name for name in params.material if name not in ANY_MATERIAL]
    if unknown or not params.material:
        raise InputError(
            f"calibrate.material names {', '.join(unknown) or 'nothing'}. It takes {', '.join(ANY_MATERIAL)}, "
            "which have a prior. Correct it, or set calibrate.prior to uniform."
        )


def _check_uniform(params: CalibrateParams) -> None:
    law = damage_law(params.cut.damage_law)
    ignored = law.ignores if law.at_edge else (*law.ignores, *SHARE_RATIOS)
    for name in params.material:
        if name not in SHARE_RATIOS:
            parameter_info(name, damage_law=params.cut.damage_law)
    without = [name for name in params.material if name.removeprefix(SURFACE_PREFIX) in ignored]
    if without or not params.material:
        raise InputError(
            f"calibrate.material names {', '.join(without) or 'nothing'}, but cut.damage_law is "
            f"{params.cut.damage_law!r}. It must name parameters of that law. Correct one of them."
        )


def spring_values(model: Model, values: Values) -> dict[str, _Array]:
    """Return every spring parameter, one value per spring, shape [spring_count]."""
    given = {name: value for name, value in values.items() if name != OFFSET}
    expanded = expand(given, model.material, model.surface, model.damage_law)
    return {name: expanded.row(name).copy() for name in SPRING_NAMES}


def _profile(problem: Problem, values: Values) -> _Array:
    parameters = {name: torch.as_tensor(value) for name, value in values.items()}
    motion = {OFFSET: parameters.pop(OFFSET)} if OFFSET in parameters else {}
    return problem.simulate(parameters, motion)[0].numpy()


def _per_spring(
    problem: Problem, values: Values, params: CalibrateParams
) -> tuple[_Array, _Array, dict[str, SpringPosterior]]:
    """Return the knife's impulse on each spring, the gradient norm in its free numbers, and its posterior."""
    rows = spring_values(problem.model, values)
    names = [name for name in SPRING_NAMES if name in params.individual or name in params.shared]
    bounds = parameter_bounds(
        names, damage_law=params.cut.damage_law, offset_range_m=params.offset_range_m, given=params.bounds
    )
    free = {name: bounds[name].free(torch.as_tensor(rows[name])).requires_grad_(True) for name in names}
    parameters = {name: torch.as_tensor(row) for name, row in rows.items()}
    parameters |= {name: bounds[name].value(free[name]) for name in names}
    others = {name: torch.as_tensor(v) for name, v in values.items() if not _is_spring_parameter(name)}
    motion = {OFFSET: others.pop(OFFSET)} if OFFSET in others else {}
    simulated, result = problem.simulate(parameters | others, motion)
    seen = problem.training
    loss = LOSSES[params.loss](simulated[seen], torch.as_tensor(problem.measured)[seen], problem.mean_force)
    loss.backward()
    squares = [part.grad.numpy() ** 2 for part in free.values() if part.grad is not None]
    known = {}
    if params.individual_iterations and params.individual:
        own = {name: bounds[name] for name in params.individual}
        known = spring_posteriors(problem, result, rows, own, params.force_uncertainty_n)
    return contact_impulse(result), np.sqrt(np.sum(squares, axis=0)), known


def _is_spring_parameter(name: str) -> bool:
    return name.removeprefix(SURFACE_PREFIX) in SPRING_NAMES


def _two_parts(progress: _Progress | None, first: float) -> tuple[_Progress | None, _Progress]:
    """Split the progress between the fit, which is the fraction `first`, and the sampling after it."""
    if progress is None:
        return None, lambda share, text: None
    return (
        lambda share, text: progress(first * share, text),
        lambda share, text: progress(first + (1.0 - first) * share, text),
    )


def _reporting(
    params: CalibrateParams, progress: _Progress | None, show: Callable[[str], None]
) -> Report | None:
    """Combine the rows of all phases into one progress."""
    if progress is None:
        return None
    springs = params.fit == "springs" and params.individual
    total = params.shared_iterations + (params.individual_iterations if springs else 0)
    far = 0

    def report(row: HistoryRow) -> None:
        nonlocal far
        done = far = max(far, row.iteration + (params.shared_iterations if row.phase == "individual" else 0))
        text = f"{row.phase} {row.iteration}: loss {row.best_loss:.4f}, NMAE {100.0 * row.nmae:.1f} %"
        progress(share_done(done, total) if params.fit == "material" else done / total, text)
        show(text)

    return report
