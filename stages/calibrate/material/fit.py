"""Fit the material to recorded cuts, and forecast samples the fit has not seen."""

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh
from disect_sim.laws import damage_law
from disect_sim.many import force_of, simulate_many
from disect_sim.processes import report_to_parent, run_parallel
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.discrepancy import AGAIN, LeftOver, left_over, scale_again
from stages.calibrate.material.likelihood import DepthLikelihood, depth_likelihood
from stages.calibrate.material.posterior import Posterior
from stages.calibrate.material.sampled import Sampled, sample_material
from stages.calibrate.material.search import Found, MaterialSearch
from stages.calibrate.material.unknowns import MaterialUnknowns, Uniform
from stages.calibrate.phase import HistoryRow, parameter_bounds
from stages.calibrate.problem import Problem, TrialFailedError, errors
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.errors import InputError
from stages.shared.cut import relative_depth
from stages.shared.fitting import run_to_end
from stages.shared.library.library import RATIO_BOUNDS, SHARE_RATIOS, expected

# Baselines without a model


_Array = NDArray[np.float64]


def best_factor(profile: _Array, measured: _Array) -> float:
    """Return the factor on a profile with the least mean absolute error against a measured one [-], same shape."""
    weight = np.maximum(profile, 1e-9)
    ratio = measured / weight
    order = np.argsort(ratio)
    total = np.cumsum(weight[order])
    return float(ratio[order][np.searchsorted(total, 0.5 * total[-1])])  # the weighted median minimises it


def best_amplitude(problem: Problem, profile: _Array) -> float:
    """Return the best factor on a profile [N] for the measured force in contact [-]."""
    use = problem.contact & problem.valid
    return best_factor(profile[use], problem.measured[use])


def repeated_profile(own: Problem, height: _Array) -> _Array:
    """Return a known cut's measured force [N], repeated at the same heights."""
    use = own.contact & own.valid
    order = np.argsort(own.height[use])
    known, force = own.height[use][order], own.measured[use][order]
    return np.where(height > known[-1], 0.0, np.interp(height, known, force))


_Mask = NDArray[np.bool_]
_Report = Callable[[HistoryRow], None]


@dataclass(frozen=True)
class _Forecast:
    """Forecast of unseen force, with a baseline without a model."""

    nmae: float
    """NMAE of the forecast [-]."""
    nmae_guess: float
    """NMAE of holding the last force seen, or of repeating another cut's profile [-]."""


@dataclass(frozen=True)
class MaterialFit:
    """A finished fit."""

    posterior: Posterior
    found: Found
    expected_profile: _Array
    """Prior prediction of the first cut [N], shape [sample_count]."""
    tail: _Forecast | None
    """Forecast of the end of the first cut from its beginning; the baseline holds the last force seen."""
    next_cut: _Forecast | None
    """Forecast of the last cut from the others; the baseline repeats the cut before it. None for a single log."""
    left_over: list[LeftOver]
    """Model discrepancy carried over to the next cut: of the fitted material, then of the draws."""
    sampled: Sampled | None = None
    """Samples, if the posterior was sampled."""


def material_unknowns(
    meshes: Sequence[CutMesh], material: str, params: CalibrateParams, *, leave_out: Collection[str] = ()
) -> MaterialUnknowns:
    """Return the unknowns for cuts of these bodies, with the prior of their material without the entries in
    `leave_out`.

    With the uniform prior these are the named parameters alone, under any damage law, as in the paper.
    """
    law = damage_law(params.cut.damage_law)
    if params.prior == "uniform":
        bounds = parameter_bounds(
            [name for name in params.material if name not in SHARE_RATIOS],
            damage_law=params.cut.damage_law,
            offset_range_m=params.offset_range_m,
            given=params.bounds,
        )
        flat = {
            name: Uniform(*RATIO_BOUNDS)
            if name in SHARE_RATIOS
            else Uniform(bounds[name].low, bounds[name].high)
            for name in params.material
        }
        return MaterialUnknowns(
            flat, 0, _constants(params, flat), tuple(map(relative_depth, meshes)), per_cut=False
        )
    if not law.at_edge:
        raise InputError(
            f"calibrate.fit is material, but cut.damage_law is {params.cut.damage_law!r}. The material's numbers are "
            "those of the edge law. Set cut.damage_law to edge, or calibrate.fit to springs, or calibrate.prior to "
            "uniform."
        )
    prior = expected(params.material, material, params.cut.damage_law, leave_out=leave_out)
    return MaterialUnknowns(
        prior, params.layers, _constants(params, prior), tuple(map(relative_depth, meshes))
    )


def _constants(params: CalibrateParams, sought: Container[str]) -> dict[str, float]:
    """Return the start values that are not unknowns and have an effect under the damage law."""
    ignored = damage_law(params.cut.damage_law).ignores
    return {name: value for name, value in params.start.items() if name not in sought and name not in ignored}


@dataclass(frozen=True)
class _Job:
    """One search, in a separate process if there are several."""

    name: str
    problems: Sequence[Problem]
    unknowns: MaterialUnknowns
    masks: Sequence[_Mask]
    """Training samples of each of the first cuts."""
    params: CalibrateParams
    scan_dir: Path | None
    key: str


def _likelihoods(
    problems: Sequence[Problem], masks: Sequence[_Mask], params: CalibrateParams
) -> list[DepthLikelihood]:
    """Return the likelihoods of the first cuts, as many as there are masks."""
    return [
        depth_likelihood(problem, mask, params.force_uncertainty_n)
        for problem, mask in zip(problems, masks, strict=False)
    ]


def _run(job: _Job) -> Found:
    likelihoods = _likelihoods(job.problems, job.masks, job.params)
    search = MaterialSearch(
        job.name, job.unknowns.only(len(job.masks)), likelihoods, job.params.shared_iterations
    )
    checkpoint = Checkpoint(job.scan_dir, job.key, stage="calibrate", part=job.name)
    return run_to_end(
        search, checkpoint, lambda s: report_to_parent((s.history[-1], s.present().cuts[0].profile))
    ).found()


def fit_material(
    problems: Sequence[Problem],
    unknowns: MaterialUnknowns,
    params: CalibrateParams,
    *,
    scan_dir: Path | None,
    key: str,
    report: _Report | None,
    on_sampling: Callable[[float, str], None] = lambda share, text: None,
) -> MaterialFit:
    """Return the most probable material, its uncertainty, and forecast errors on the known logs."""
    use = [problem.contact & problem.valid for problem in problems]
    time = problems[0].time[use[0]]
    seen = use[0] & (problems[0].time <= time[0] + params.forecast_from * (time[-1] - time[0]))
    shown = {"material": use}
    if params.forecast_from:
        shown["beginning"] = [seen]
        if len(problems) > 1:
            shown["others"] = use[:-1]
    jobs = [_Job(name, problems, unknowns, masks, params, scan_dir, key) for name, masks in shown.items()]

    def listen(message: tuple[HistoryRow, _Array]) -> None:
        row, profile = message
        problems[0].nearest.offer(profile, problems[0].measured, use[0])
        if report is not None:
            report(row)

    found = dict(
        zip(shown, run_parallel(_run, jobs, processes=params.processes, on_message=listen), strict=True)
    )
    best = found["material"]
    before, _ = problems[0].run(unknowns.values(np.zeros(len(unknowns))), differentiable=False)
    sampled = None
    if params.posterior != "laplace":
        sampled = sample_material(
            problems,
            unknowns,
            best.t,
            best.covariance,
            params,
            scan_dir=scan_dir,
            key=key,
            report=on_sampling,
        )
    posterior = Posterior(
        unknowns, best.t, best.covariance, None if sampled is None else sampled.samples.flat
    )
    likelihoods = {name: _likelihoods(problems, masks, params) for name, masks in shown.items()}
    tail = next_cut = None
    if "beginning" in found:
        left = left_over(likelihoods["beginning"], found["beginning"].profiles)
        tail = _tail(problems[0], found["beginning"], left, seen, use[0] & ~seen)
    if "others" in found:
        others = found["others"]
        left = left_for_next(likelihoods["others"], unknowns, others.t, others.profiles)
        next_cut = _next_cut(problems, unknowns, others, left)
    draws = posterior.draws(params.draws, params.seed)
    drawn = profiles_of_draws(problems, unknowns, draws, params.processes)
    lefts = [
        left_for_next(likelihoods["material"], unknowns, t, profiles or best.profiles)
        for t, profiles in zip((best.t, *draws), (best.profiles, *drawn), strict=True)
    ]
    return MaterialFit(posterior, best, before, tail, next_cut, lefts, sampled)


def profiles_of_draws(
    problems: Sequence[Problem], unknowns: MaterialUnknowns, draws: _Array, processes: int
) -> list[list[_Array]]:
    """Simulate the fitted cuts with possible unknowns, shape [draw_count, unknown_count]; return their profiles [N].

    None for a draw if one of its cuts does not finish.
    """
    cuts = [problem.cut(unknowns.values(t, i)) for t in draws for i, problem in enumerate(problems)]
    answers = simulate_many(cuts, of=force_of, processes=processes)
    out = []
    for k, t in enumerate(draws):
        own = answers[k * len(problems) : (k + 1) * len(problems)]
        try:
            out.append([unknowns.amplitude(t, i) * p.profile(own[i]) for i, p in enumerate(problems)])
        except TrialFailedError:
            out.append([])
    return out


def left_for_next(
    likelihoods: Sequence[DepthLikelihood], unknowns: MaterialUnknowns, t: _Array, profiles: Sequence[_Array]
) -> LeftOver:
    """Return the discrepancy of another cut of the fruit, given the unknowns t and the fitted profiles [N]."""
    amplitudes = [unknowns.amplitude(t, cut) for cut in range(len(likelihoods))]
    return left_over(likelihoods, profiles, again=AGAIN, scale=scale_again(list(np.log(amplitudes))))


def _tail(problem: Problem, found: Found, left: LeftOver, seen: _Mask, rest: _Mask) -> _Forecast:
    held = np.full_like(found.profiles[0], problem.measured[seen][-1])
    return _forecast(problem, left.at(problem.height) * found.profiles[0], held, rest)


def _next_cut(
    problems: Sequence[Problem], unknowns: MaterialUnknowns, found: Found, left: LeftOver
) -> _Forecast:
    last = problems[-1]
    simulated, _ = last.run(unknowns.next_cut(found.t, len(problems) - 1), differentiable=False)
    profile = left.at(last.height) * simulated
    return _forecast(last, profile, repeated_profile(problems[-2], last.height), last.contact & last.valid)


def _forecast(problem: Problem, profile: _Array, guess: _Array, where: _Mask) -> _Forecast:
    mean = float(problem.measured[where].mean())
    return _Forecast(*(errors(each, problem.measured, where, mean).nmae for each in (profile, guess)))
