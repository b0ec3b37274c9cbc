"""The material's posterior as the samplers see it: unknowns in, log-probability, gradient or summaries out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.many import force_of, simulate_many
from stages.calibrate.material_fit.likelihood import DepthLikelihood, depth_likelihood
from stages.calibrate.material_fit.profile import Profile, profile_of, statistics
from stages.calibrate.material_fit.unknowns import MaterialUnknowns
from stages.calibrate.problem import Problem, TrialFailedError
from stages.runtime.parallel import Workers
from stages.shared.library.library import AMPLITUDE_SPREAD

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MaterialTarget:
    """One or several cuts; see stages.calibrate.samplers.sampling.Target."""

    unknowns: MaterialUnknowns
    slices: Sequence[DepthLikelihood]
    profiles: Sequence[Profile]
    likelihood: str
    """log or exp_l1."""
    summary: str
    """slices, profile or statistics."""

    @property
    def names(self) -> list[str]:
        """Of the unknowns."""
        return self.unknowns.names

    def log_probability(self, t: Array) -> tuple[float, Array]:
        """Log posterior up to a constant, and its gradient; minus infinity where a simulation does not finish."""
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

    def log_probabilities(self, ts: Array, workers: Workers) -> Array:
        """Of many points, without gradients, shape [point_count]."""
        out = -0.5 * (ts**2).sum(axis=1)
        for i, forces in enumerate(self._forces(ts, workers)):
            for likelihood, force in zip(self._likelihoods, forces, strict=True):
                out[i] += -np.inf if force is None else likelihood.log_likelihood(force)[0]
        return out

    def summaries(self, ts: Array, workers: Workers) -> Array:
        """Without noise: slices as they are in the likelihood, or the numbers of the profiles; NaN: not finished."""
        out = np.full((len(ts), len(self._shown([p.measured_force for p in self._problems]))), np.nan)
        for i, forces in enumerate(self._forces(ts, workers)):
            if all(force is not None for force in forces):
                out[i] = self._shown([force for force in forces if force is not None])
        return out

    def noisy(self, summaries: Array, random: np.random.Generator) -> Array:
        """As logs would show them."""
        if self.summary == "slices":
            return summaries + random.standard_normal(summaries.shape)
        ends = np.cumsum([len(profile.parts) for profile in self.profiles])[:-1]
        parts = [
            profile.noisy(part, random)
            for profile, part in zip(self.profiles, np.split(summaries, ends, axis=-1), strict=True)
        ]
        return np.concatenate(
            list(map(statistics, parts)) if self.summary == "statistics" else parts, axis=-1
        )

    @property
    def observed(self) -> Array:
        """Of the logs; slices are differences from them, so zero."""
        if self.summary == "slices":
            return self._shown([p.measured_force for p in self._problems])
        parts = [profile.observed for profile in self.profiles]
        return np.concatenate(list(map(statistics, parts)) if self.summary == "statistics" else parts)

    @property
    def _problems(self) -> list[Problem]:
        return [each.problem for each in self.slices]

    @property
    def _likelihoods(self) -> Sequence[DepthLikelihood | Profile]:
        return self.slices if self.likelihood == "log" else self.profiles

    def _shown(self, forces: list[Array]) -> Array:
        if self.summary == "slices":
            return np.concatenate([a.residual(force) for a, force in zip(self.slices, forces, strict=True)])
        return np.concatenate([a.numbers(force) for a, force in zip(self.profiles, forces, strict=True)])

    def _forces(self, ts: Array, workers: Workers) -> list[list[Array | None]]:
        """Filtered force of every cut at every point [N], with the cuts' amplitudes; None: not finished."""
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
    """The posterior of cuts whose valid contact is shown."""
    use = [problem.contact & problem.valid for problem in problems]
    slices = [depth_likelihood(p, each, uncertainty_n) for p, each in zip(problems, use, strict=True)]
    profiles = [profile_of(p, each, uncertainty_n) for p, each in zip(problems, use, strict=True)]
    return MaterialTarget(unknowns, slices, profiles, likelihood, summary)
