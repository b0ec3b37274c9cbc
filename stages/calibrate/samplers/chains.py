"""Chains in separate processes with checkpoints, and the SGLD sampler."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from disect_sim.processes import report_to_parent, run_parallel
from stages.calibrate.samplers.sampling import RememberedGradients, Samples, Sampling
from stages.runtime.errors import InputError

_NEARER = 8
"""Number of times a start without a finished simulation is moved half-way to the centre."""
_FEWEST = 4
"""Minimum number of points per chain."""

_Array = NDArray[np.float64]


class Whitened:
    """The target in Laplace standard deviations z around the centre, where it is about standard normal."""

    def __init__(self, sampling: Sampling, ask: RememberedGradients) -> None:
        self._centre, self._ask = sampling.centre, ask
        self._factor = np.linalg.cholesky(sampling.covariance)
        self.known: dict[bytes, float] = {}
        """Log-probability of all evaluated points, by the bytes of z."""
        self._last: tuple[bytes, float, _Array] | None = None

    def __call__(self, z: _Array) -> tuple[float, _Array]:
        """Return the log-probability and its gradient in z."""
        here = z.tobytes()
        if self._last is None or self._last[0] != here:
            self._last = (here, *self._ask(self.unknowns(z)))
        _, value, gradient = self._last
        self.known[here] = value
        return value, self._factor.T @ gradient

    def unknowns(self, z: _Array) -> _Array:
        """Return t of z."""
        return self._centre + self._factor @ z

    @property
    def asked(self) -> int:
        """Number of gradients so far."""
        return self._ask.asked


@dataclass(frozen=True)
class Chain:
    """Input of a method for one chain."""

    number: int
    sampling: Sampling
    start: _Array
    """Start z, shape [unknown_count]."""
    target: Whitened

    def over(self) -> bool:
        """Return True if the budget of gradients is used."""
        return self.target.asked >= self.sampling.gradients

    def report(self, iteration: int) -> None:
        """Report the iteration, counted over burn-in and samples."""
        report_to_parent((self.number, iteration))


Points = list[tuple[_Array, float]]
"""z and log-probability of every iteration, burn-in included."""


@dataclass(frozen=True)
class _Job:
    method: str
    run: Callable[[Chain], Points]
    number: int
    sampling: Sampling


def run_chains(method: str, run: Callable[[Chain], Points], sampling: Sampling) -> Samples:
    """Call `run` for every chain; chains are cut to the length of the shortest."""
    bare = replace(sampling, report=_silent)
    jobs = [_Job(method, run, number, bare) for number in range(sampling.chains)]
    total = sampling.burn_in + sampling.samples
    far = dict.fromkeys(range(sampling.chains), 0)

    def listen(message: tuple[int, int]) -> None:
        number, iteration = message
        far[number] = iteration
        share = sum(far.values()) / (total * len(far))
        sampling.report(share, f"{method}: chain {number + 1}, iteration {iteration} of {total}")

    answers = run_parallel(_run, jobs, processes=sampling.processes, on_message=listen)
    length = min(len(points) for points, _, _ in answers)
    kept = length - sampling.burn_in
    if kept < _FEWEST:
        raise InputError(
            f"calibrate: the chains of {method} have {max(0, kept)} points after a burn-in of {sampling.burn_in}. "
            f"They need at least {_FEWEST}. Raise calibrate.gradients ({sampling.gradients}), or lower "
            "calibrate.burn_in."
        )
    trace = np.array([points[:length] for points, _, _ in answers])
    values = np.array([logs[:length] for _, logs, _ in answers])
    return Samples(
        trace[:, sampling.burn_in :],
        values[:, sampling.burn_in :],
        sum(asked for _, _, asked in answers),
        0,
        True,
        trace,
    )


def _start(job: _Job, target: Whitened) -> _Array:
    """Return the start of a chain: closer to the centre if no simulation finishes there."""
    z = job.sampling.starts()[job.number]
    for _ in range(_NEARER):
        if np.isfinite(target(z)[0]):
            return z
        z = 0.5 * z
    raise InputError(
        f"calibrate: no simulation near the most probable point finished for chain {job.number + 1} of {job.method}. A "
        "chain needs a start. Lower cut.dt_s, or change calibrate.start."
    )


def _silent(share: float, text: str) -> None:
    """Ignore progress; it is sent as messages."""


def _run(job: _Job) -> tuple[_Array, _Array, int]:
    s = job.sampling
    ask = RememberedGradients(s.target, s.checkpoint(f"{job.method}-{job.number}"))
    target = Whitened(s, ask)
    chain = Chain(job.number, s, _start(job, target), target)
    points = job.run(chain)
    t = np.array([target.unknowns(z) for z, _ in points])
    return t, np.array([value for _, value in points]), ask.asked


# SGLD: Langevin dynamics with an RMSprop preconditioner and decreasing steps (Welling and Teh 2011; Li et al. 2016)
#
# One gradient per step, no rejection: the variance is too large by about a quarter of the step, which decreases. The
# preconditioner adapts during burn-in and is then frozen: one that follows the chain would change its distribution.


_MEMORY = 0.95
"""Decay rate of the mean of squared gradients, per step."""
_TINY = 1.0e-8
"""Added to its root."""
_DECAY = 1.0 / 3.0
"""Exponent of the decreasing step size: the best rate for means of a smooth target."""
_LONGEST = 3.0
"""Maximum drift [Laplace standard deviations]; only starts far outside exceed it."""


def sample_sgld(sampling: Sampling) -> Samples:
    """Sample chains in processes."""
    return run_chains("sgld", run, sampling)


def step_size(sampling: Sampling, iteration: int) -> float:
    """Return the step size of an iteration, from 0."""
    scale: float = (1.0 + iteration / max(1, sampling.burn_in)) ** -_DECAY
    return sampling.sgld_step * scale


def run(chain: Chain) -> Points:
    """Run one chain, burn-in included."""
    s = chain.sampling
    z, count = chain.start, s.burn_in + s.samples
    value, gradient = chain.target(z)
    square, learnt, points = np.ones_like(z), np.zeros_like(z), []
    for iteration in range(count):
        if iteration < s.burn_in:
            square = _MEMORY * square + (1.0 - _MEMORY) * gradient**2
            scale = 1.0 / (np.sqrt(square) + _TINY)
            if iteration >= s.burn_in // 2:
                learnt += np.log(scale)
        elif iteration == s.burn_in:
            scale = np.exp(learnt / max(1, s.burn_in - s.burn_in // 2))
        step = step_size(s, iteration)
        random = np.random.default_rng([s.seed, 1, chain.number, iteration])
        drift = np.clip(0.5 * step * scale * gradient, -_LONGEST, _LONGEST)
        moved = z + drift + np.sqrt(step * scale) * random.standard_normal(len(z))
        new_value, new_gradient = chain.target(moved)
        if np.isfinite(new_value):  # a simulation that does not finish has no probability: stay
            z, value, gradient = moved, new_value, new_gradient
        points.append((z, value))
        chain.report(iteration + 1)
        if chain.over():
            break
    return points
