"""Fit the material to recorded cuts, and forecast samples the fit has not seen."""

from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from disect_sim.laws import damage_law
from disect_sim.many import force_of, simulate_many
from disect_sim.processes import report_to_parent, run_parallel
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.discrepancy import LeftOver, left_over, scale_again
from stages.calibrate.material.likelihood import DepthLikelihood, depth_likelihood
from stages.calibrate.material.posterior import Posterior
from stages.calibrate.material.sampled import Sampled, sample_material
from stages.calibrate.material.search import Found, MaterialSearch
from stages.calibrate.material.unknowns import MaterialUnknowns, Uniform
from stages.calibrate.phase import HistoryRow, parameter_bounds
from stages.calibrate.problem import Problem, TrialFailedError, errors
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.errors import InputError
from stages.shared.fitting import run_to_end
from stages.shared.library.library import NINETY_LEARNT, RATIO_BOUNDS, SHARE_RATIOS, expected

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


_LAPLACE_SHARE, _SAMPLING_SHARE = 0.4, 0.9
"""Fractions of the time after the fit until forecasts begin, for the progress bar."""
_FORECAST_DRAWS = 8
"""Materials simulated for the band of a forecast: its ends vary by a quarter of the material's part."""
_TREND = 0.3
"""End of the seen contact from which the baseline's linear trend is taken."""


@dataclass(frozen=True)
class _TailForecast:
    """Forecast of the rest of a cut from its beginning, with baselines without a model; all NMAE [-]."""

    nmae: float
    """Of the forecast: the mean of the model's and of holding the last force."""
    nmae_model: float
    """Of the model alone."""
    nmae_hold_last: float
    nmae_trend: float
    """Of the linear trend of the last part that was seen."""
    coverage: float
    """Fraction of the samples inside the 90 % band."""
    half_width: float
    """Mean half-width of that band / mean forecast."""


@dataclass(frozen=True)
class _NextCutForecast:
    """Prediction of the last log from the others; both NMAE [-]."""

    nmae: float
    nmae_repeated: float
    """Of the mean of the others' forces at the same height."""


@dataclass(frozen=True)
class MaterialFit:
    """A finished fit."""

    posterior: Posterior
    found: Found
    expected_profile: _Array
    """Prior prediction of the first cut [N], shape [sample_count]."""
    tail: _TailForecast | None
    """Forecast of the end of the first cut from its beginning."""
    next_cut: _NextCutForecast | None
    """Prediction of the last cut from the others; None for a single log."""
    left_over: list[LeftOver]
    """Model discrepancy carried over to the next cut: of the fitted material, then of the draws."""
    sampled: Sampled | None = None
    """Samples, if the posterior was sampled."""


def material_unknowns(
    material: str, params: CalibrateParams, *, cuts: int = 1, leave_out: Collection[str] = ()
) -> MaterialUnknowns:
    """Return the unknowns for cuts of a fruit, with the prior of its material without the entries in `leave_out`.

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
        return MaterialUnknowns(flat, _constants(params, flat), cuts, per_cut=False)
    if not law.at_edge:
        raise InputError(
            f"calibrate.fit is material, but cut.damage_law is {params.cut.damage_law!r}. The material's numbers are "
            "those of the edge law. Set cut.damage_law to edge, or calibrate.fit to springs, or calibrate.prior to "
            "uniform."
        )
    cut = params.cut
    prior = expected(params.material, material, cut.damage_law, knife=cut.knife_label, leave_out=leave_out)
    return MaterialUnknowns(prior, _constants(params, prior), cuts)


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
    until = _LAPLACE_SHARE if params.posterior == "laplace" else _SAMPLING_SHARE
    on_sampling(0.0, "posterior")
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
            report=lambda share, text: on_sampling(until * share, text),
        )
    on_sampling(until, "forecast the rest of the cut")
    posterior = Posterior(
        unknowns, best.t, best.covariance, None if sampled is None else sampled.samples.flat
    )
    likelihoods = {name: _likelihoods(problems, masks, params) for name, masks in shown.items()}
    tail = next_cut = None
    if "beginning" in found:
        tail = _tail(likelihoods["beginning"][0], unknowns.only(1), found["beginning"], seen, params)
    if "others" in found:
        others = found["others"]
        left = left_for_next(likelihoods["others"], unknowns, others.t, others.profiles)
        next_cut = _next_cut(problems, unknowns, others, left)
    on_sampling(0.5 * (1.0 + until), "simulate the draws of the posterior")
    draws = posterior.draws(params.draws, params.seed)
    drawn = _profiles_of_draws(problems, unknowns, draws, params.processes)
    lefts = [
        left_for_next(likelihoods["material"], unknowns, t, profiles or best.profiles)
        for t, profiles in zip((best.t, *draws), (best.profiles, *drawn), strict=True)
    ]
    on_sampling(1.0, "fitted")
    return MaterialFit(posterior, best, before, tail, next_cut, lefts, sampled)


def _profiles_of_draws(
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
    return left_over(likelihoods, profiles, scale=scale_again(list(np.log(amplitudes))))


def _tail(
    likelihood: DepthLikelihood,
    unknowns: MaterialUnknowns,
    found: Found,
    seen: _Mask,
    params: CalibrateParams,
) -> _TailForecast | None:
    """Return the forecast of the samples in contact that were not seen; None if there are none.

    The mean of two forecasts, the model with its discrepancy and the last force seen: on real cuts, whose bodies are
    not known exactly, each fails where the other does not. Their difference is part of the band.
    """
    problem = likelihood.problem
    rest = problem.contact & problem.valid & ~seen
    if not rest.any():
        return None
    draws = Posterior(unknowns, found.t, found.covariance).draws(_FORECAST_DRAWS, params.seed)
    drawn = [each[0] for each in _profiles_of_draws([problem], unknowns, draws, params.processes) if each]
    lefts = [left_over([likelihood], [profile], same_cut=True) for profile in (found.profiles[0], *drawn)]
    model, *others = (
        left.at(problem.height) * profile
        for left, profile in zip(lefts, (found.profiles[0], *drawn), strict=True)
    )
    held = np.full_like(model, problem.measured[seen][-1])
    forecast = 0.5 * (model + held)
    mean = float(problem.measured[seen].mean())
    variance = (
        (np.var(others, axis=0) if len(others) > 1 else 0.0)
        + (mean * lefts[0].deviation_at(problem.height)) ** 2
        + 0.25 * (model - held) ** 2
        + likelihood.noise_n**2
    )
    half = NINETY_LEARNT * np.sqrt(variance)
    return _TailForecast(
        nmae=_nmae(problem, forecast, rest),
        nmae_model=_nmae(problem, model, rest),
        nmae_hold_last=_nmae(problem, held, rest),
        nmae_trend=_nmae(problem, _trend(problem, seen), rest),
        coverage=float((np.abs(problem.measured - forecast) <= half)[rest].mean()),
        half_width=float(half[rest].mean() / forecast[rest].mean()),
    )


def _trend(problem: Problem, seen: _Mask) -> _Array:
    """Return the linear trend of the last force that was seen, continued [N], shape [sample_count]."""
    time = problem.time[seen]
    last = seen & (problem.time >= time[-1] - _TREND * (time[-1] - time[0]))
    slope, level = np.polyfit(problem.time[last] - time[-1], problem.measured[last], 1)
    return np.asarray(np.maximum(0.0, level + slope * (problem.time - time[-1])))


def _next_cut(
    problems: Sequence[Problem], unknowns: MaterialUnknowns, found: Found, left: LeftOver
) -> _NextCutForecast:
    last, where = problems[-1], problems[-1].contact & problems[-1].valid
    simulated, _ = last.run(unknowns.next_cut(found.t, len(problems) - 1), differentiable=False)
    repeated = np.mean([repeated_profile(each, last.height) for each in problems[:-1]], axis=0)
    return _NextCutForecast(
        *(_nmae(last, profile, where) for profile in (left.at(last.height) * simulated, repeated))
    )


def _nmae(problem: Problem, profile: _Array, where: _Mask) -> float:
    return errors(profile, problem.measured, where, float(problem.measured[where].mean())).nmae
