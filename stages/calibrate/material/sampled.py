"""Sampled posterior of the material, and its predictive band of the fitted cut's force."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from disect_sim.many import force_of, simulate_many
from disect_sim.processes import Workers
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.likelihood import (
    MODEL_ERROR,
    NOISE_N,
    DepthLikelihood,
    depth_likelihood,
    noise_factor,
)
from stages.calibrate.material.unknowns import MaterialUnknowns
from stages.calibrate.methods import POSTERIORS
from stages.calibrate.problem import NORM_ROUNDING_N, Problem, TrialFailedError
from stages.calibrate.samplers.sampling import (
    Diagnostics,
    Samples,
    Sampling,
    check_installed,
    diagnose,
    sample,
)
from stages.runtime.errors import InputError
from stages.shared.library.library import AMPLITUDE_SPREAD, NINETY

# One log as 90 numbers over time: the paper's profile, its exp(-L1) likelihood, and statistics of it


_NUMBERS = 90
"""Number of equal parts of the contact whose mean force is used."""
_QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
_PARTS = 5
"""Number of parts of the contact whose mean is a statistic."""

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Profile:
    """Mean norms of the force over equal parts of the contact."""

    problem: Problem
    parts: _Array
    """Averaging matrix of the parts, shape [number_count, sample_count]."""
    factor: _Array
    """Cholesky factor of the covariance of log and model together [N], shape [number_count, number_count]."""

    @property
    def observed(self) -> _Array:
        """Profile of the log [N], shape [number_count]."""
        return self.numbers(self.problem.measured_force)

    def numbers(self, force: _Array) -> _Array:
        """Return the profile of a filtered force [N], shape [sample_count, 3]; shape [number_count]."""
        return np.asarray(self.parts @ _norm(force), float)

    def noisy(self, numbers: _Array, random: np.random.Generator) -> _Array:
        """Add the noise of a log; shape [..., number_count]."""
        return numbers + random.standard_normal(numbers.shape) @ self.factor.T

    def log_likelihood(self, force: _Array) -> tuple[float, _Array]:
        """Return log exp(-L1): minus the sum of absolute differences [N], and its derivative in the filtered force."""
        difference = self.numbers(force) - self.observed
        norm = _norm(force) + NORM_ROUNDING_N
        bar = -(self.parts.T @ np.sign(difference))[:, None] * force / norm[:, None]
        return -float(np.abs(difference).sum()), bar


def _profile_of(problem: Problem, use: NDArray[np.bool_], uncertainty_n: float) -> _Profile:
    """Return the profile over the samples in use; uncertainty_n: of the log's force [N]."""
    chosen = np.flatnonzero(use)
    parts = np.zeros((min(_NUMBERS, len(chosen)), len(use)))
    for row, samples in zip(parts, np.array_split(chosen, len(parts)), strict=True):
        row[samples] = 1.0 / len(samples)
    return _Profile(problem, parts, noise_factor(problem, parts, uncertainty_n))


def _statistics(numbers: _Array) -> _Array:
    """Return mean, spread, maximum and its position, quantiles, means of parts and of changes.

    Shape [..., number_count] → [..., 15].
    """
    count = numbers.shape[-1]
    where = numbers.argmax(axis=-1) / count
    means = [part.mean(axis=-1) for part in np.array_split(numbers, _PARTS, axis=-1)]
    levels = list(np.quantile(numbers, _QUANTILES, axis=-1))
    change = np.abs(np.diff(numbers, axis=-1)).mean(axis=-1)
    rows = [numbers.mean(axis=-1), numbers.std(axis=-1), numbers.max(axis=-1), where, *levels, *means, change]
    return np.stack(rows, axis=-1)


def _norm(force: _Array) -> _Array:
    rounded: _Array = np.sqrt((force**2).sum(axis=-1) + NORM_ROUNDING_N**2) - NORM_ROUNDING_N
    return rounded


# Target of the samplers: unknowns in, log-probability, gradient or summaries out


@dataclass(frozen=True)
class MaterialTarget:
    """One or several cuts; see stages.calibrate.samplers.sampling.Target."""

    unknowns: MaterialUnknowns
    slices: Sequence[DepthLikelihood]
    profiles: Sequence[_Profile]
    likelihood: str
    """Likelihood: log or exp_l1."""
    summary: str
    """Summary: slices, profile or statistics."""

    @property
    def names(self) -> list[str]:
        """Names of the unknowns."""
        return self.unknowns.names

    def log_probability(self, t: _Array) -> tuple[float, _Array]:
        """Return the log posterior up to a constant, and its gradient.

        Minus infinity if a simulation does not finish.
        """
        value, gradient = -0.5 * float(t @ t), -t.copy()
        for cut, problem in enumerate(self._problems):
            try:
                _, result = problem.run(self.unknowns.values(t, cut), differentiable=True)
            except TrialFailedError:
                return -np.inf, np.zeros_like(t)
            amplitude = self.unknowns.amplitude(t, cut)
            force = amplitude * problem.filtered(result)
            found, bar = self._likelihoods[cut].log_likelihood(force)
            raw = amplitude * (problem.filter_matrix.numpy().T @ bar)
            back = result.gradient(raw)
            value += found
            gradient += self.unknowns.derivative(t, cut, back.parameters | back.motion)
            if self.unknowns.per_cut:
                gradient[self.unknowns.amplitude_index(cut)] += AMPLITUDE_SPREAD * float((bar * force).sum())
        return value, gradient

    def log_probabilities(self, ts: _Array, workers: Workers) -> _Array:
        """Return the log posterior of many points, without gradients, shape [point_count]."""
        out = -0.5 * (ts**2).sum(axis=1)
        for i, forces in enumerate(self._forces(ts, workers)):
            for likelihood, force in zip(self._likelihoods, forces, strict=True):
                out[i] += -np.inf if force is None else likelihood.log_likelihood(force)[0]
        return out

    def summaries(self, ts: _Array, workers: Workers) -> _Array:
        """Return summaries without noise: slices as in the likelihood, or profiles; NaN if not finished."""
        out = np.full((len(ts), len(self._shown([p.measured_force for p in self._problems]))), np.nan)
        for i, forces in enumerate(self._forces(ts, workers)):
            if all(force is not None for force in forces):
                out[i] = self._shown([force for force in forces if force is not None])
        return out

    def noisy(self, summaries: _Array, random: np.random.Generator) -> _Array:
        """Add the noise of a log."""
        if self.summary == "slices":
            return summaries + random.standard_normal(summaries.shape)
        ends = np.cumsum([len(profile.parts) for profile in self.profiles])[:-1]
        parts = [
            profile.noisy(part, random)
            for profile, part in zip(self.profiles, np.split(summaries, ends, axis=-1), strict=True)
        ]
        return np.concatenate(
            list(map(_statistics, parts)) if self.summary == "statistics" else parts, axis=-1
        )

    @property
    def observed(self) -> _Array:
        """Summary of the logs; slices are differences from them, so zero."""
        if self.summary == "slices":
            return self._shown([p.measured_force for p in self._problems])
        parts = [profile.observed for profile in self.profiles]
        return np.concatenate(list(map(_statistics, parts)) if self.summary == "statistics" else parts)

    @property
    def _problems(self) -> list[Problem]:
        return [each.problem for each in self.slices]

    @property
    def _likelihoods(self) -> Sequence[DepthLikelihood | _Profile]:
        return self.slices if self.likelihood == "log" else self.profiles

    def _shown(self, forces: list[_Array]) -> _Array:
        if self.summary == "slices":
            return np.concatenate([a.residual(force) for a, force in zip(self.slices, forces, strict=True)])
        return np.concatenate([a.numbers(force) for a, force in zip(self.profiles, forces, strict=True)])

    def _forces(self, ts: _Array, workers: Workers) -> list[list[_Array | None]]:
        """Return the filtered force of every cut at every point [N], with the cuts' amplitudes.

        None if not finished.
        """
        problems, cuts = self._problems, range(len(self.slices))
        runs = [problems[cut].cut(self.unknowns.values(t, cut)) for t in ts for cut in cuts]
        answers = iter(simulate_many(runs, of=force_of, workers=workers))
        return [
            [
                None
                if (force := next(answers).value) is None or len(force) != len(problems[cut].time)
                else self.unknowns.amplitude(t, cut) * (problems[cut].filter_matrix.numpy() @ force)
                for cut in cuts
            ]
            for t in ts
        ]


def material_target(
    problems: Sequence[Problem],
    unknowns: MaterialUnknowns,
    *,
    uncertainty_n: float,
    likelihood: str = "log",
    summary: str = "slices",
) -> MaterialTarget:
    """Return the posterior of cuts with their valid contact as data."""
    use = [problem.contact & problem.valid for problem in problems]
    slices = [depth_likelihood(p, each, uncertainty_n) for p, each in zip(problems, use, strict=True)]
    profiles = [_profile_of(p, each, uncertainty_n) for p, each in zip(problems, use, strict=True)]
    return MaterialTarget(unknowns, slices, profiles, likelihood, summary)


@dataclass(frozen=True)
class Sampled:
    """Posterior samples and their predictive band."""

    method: str
    samples: Samples
    diagnostics: Diagnostics
    low: _Array
    """90 % band of the first cut's force: draws, model error and log error [N], shape [sample_count]."""
    high: _Array


def check_posterior(params: CalibrateParams) -> None:
    """Reject combinations of methods, priors and likelihoods that do not work, before anything is simulated."""
    if params.posterior == "laplace":
        if params.likelihood != "log":
            raise InputError(
                f"calibrate.likelihood is {params.likelihood}, which has kinks. Laplace's approximation needs a smooth "
                "one. Set calibrate.posterior to grid, sgld or nuts, or calibrate.likelihood to log."
            )
    elif params.fit != "material":
        raise InputError(
            f"calibrate.posterior is {params.posterior}, but calibrate.fit is {params.fit}. Only a handful of unknowns "
            "can be sampled. Set calibrate.fit to material (for the paper's parameters: with calibrate.prior=uniform)."
        )
    elif params.likelihood != "log" and not POSTERIORS[params.posterior].uses_likelihood:
        raise InputError(
            f"calibrate.likelihood is {params.likelihood}, but calibrate.posterior is {params.posterior}, which learns "
            "from simulations with noise. Set calibrate.likelihood to log, or take grid, sgld or nuts."
        )
    check_installed(params.posterior)


def sample_material(
    problems: Sequence[Problem],
    unknowns: MaterialUnknowns,
    centre: _Array,
    covariance: _Array,
    params: CalibrateParams,
    *,
    scan_dir: Path | None,
    key: str,
    report: Callable[[float, str], None],
) -> Sampled:
    """Sample around the most probable material by the method in params."""
    target = material_target(
        problems,
        unknowns,
        uncertainty_n=params.force_uncertainty_n,
        likelihood=params.likelihood,
        summary=params.summary,
    )
    found = sample(
        params.posterior,
        Sampling(
            target,
            centre,
            covariance,
            **{
                f.name: getattr(params, f.name)
                for f in fields(Sampling)
                if f.name in CalibrateParams.model_fields
            },
            scan_dir=scan_dir,
            key=key,
            report=report,
        ),
    )
    low, high = _expected_band(problems[0], unknowns, found.flat, params)
    return Sampled(params.posterior, found, diagnose(found), low, high)


def _expected_band(
    problem: Problem, unknowns: MaterialUnknowns, points: _Array, params: CalibrateParams
) -> tuple[_Array, _Array]:
    """Return the 90 % band of the first cut's force [N]: spread of some points, model error and log error."""
    chosen = np.random.default_rng([params.seed, 5]).choice(
        len(points), min(params.draws, len(points)), False
    )
    runs = [problem.cut(unknowns.values(t)) for t in points[chosen]]
    answers = simulate_many(runs, of=force_of, processes=params.processes)
    curves = np.array(
        [
            unknowns.amplitude(t) * problem.profile(answer)
            for t, answer in zip(points[chosen], answers, strict=True)
            if answer.value is not None
        ]
    )
    if not len(curves):
        raise InputError(
            f"calibrate: none of {len(runs)} simulations with sampled materials finished. The band of the force needs "
            "some. Lower cut.dt_s, or narrow calibrate.bounds."
        )
    middle = curves.mean(axis=0)
    model = MODEL_ERROR.deviation * float(middle[problem.contact].mean())
    half = NINETY * np.sqrt(curves.var(axis=0) + model**2 + max(params.force_uncertainty_n, NOISE_N) ** 2)
    return np.maximum(0.0, middle - half), middle + half
