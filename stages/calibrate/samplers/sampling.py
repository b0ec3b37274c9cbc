"""Input and result of a posterior method, convergence diagnostics, and checkpointed evaluations."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from arviz_stats.base import array_stats
from numpy.typing import NDArray

from disect_sim.processes import Workers
from stages.calibrate.methods import EXTRA, POSTERIORS
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.describe import load_named
from stages.runtime.errors import InputError

_START_SPREAD = 2.0
"""Spread of the chains' starts in Laplace standard deviations, so that R-hat detects disagreement."""

_Array = NDArray[np.float64]


class Target(Protocol):
    """A posterior of unknowns t with a standard normal prior. Picklable: chains run in processes."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the unknowns, in the order of t."""

    def log_probability(self, t: _Array) -> tuple[float, _Array]:
        """Return the log posterior up to a constant, and its gradient, shape [unknown_count].

        Minus infinity: no simulation.
        """

    def log_probabilities(self, ts: _Array, workers: Workers) -> _Array:
        """Return the same for many points, shape [point_count, unknown_count], without gradients.

        Shape [point_count].
        """

    def summaries(self, ts: _Array, workers: Workers) -> _Array:
        """Return summaries of simulations of these points, without noise, shape [point_count, summary_count].

        NaN if none.
        """

    def noisy(self, summaries: _Array, random: np.random.Generator) -> _Array:
        """Return summaries with the noise of a log."""

    @property
    def observed(self) -> _Array:
        """Summary of the log, shape [summary_count]."""


_Report = Callable[[float, str], None]
"""Called with the fraction done and a line of text."""


@dataclass(frozen=True)
class Sampling:
    """One posterior to be sampled, with budget and seed. A field named like a setting of calibrate gets its value."""

    target: Target
    centre: _Array
    """Most probable point, shape [unknown_count]."""
    covariance: _Array
    """Laplace's approximation there, shape [unknown_count, unknown_count]."""
    chains: int = 4
    samples: int = 200
    """Number of samples of every chain after its burn-in."""
    burn_in: int = 100
    sgld_step: float = 0.2
    """First step of SGLD, in squared Laplace standard deviations."""
    gradients: int = 4000
    """Number of gradients after which a chain ends early."""
    simulations: int = 500
    """Number of simulations in the first round of methods that learn from simulations; later rounds have a fifth."""
    rounds: int = 1
    seed: int = 0
    processes: int = 1
    scan_dir: Path | None = None
    """Folder of the checkpoints; None keeps none."""
    key: str = ""
    """Hash of everything the result depends on."""
    report: _Report = field(default=lambda share, text: None, compare=False)

    def checkpoint(self, part: str) -> Checkpoint:
        """Return the checkpoint file of one chain, or of the simulations."""
        return Checkpoint(self.scan_dir, self.key, stage="calibrate", part=part)

    def starts(self) -> _Array:
        """Return the starts of the chains, in Laplace standard deviations, shape [chains, unknown_count]."""
        random = np.random.default_rng([self.seed, 0])
        return _START_SPREAD * random.standard_normal((self.chains, len(self.centre)))


@dataclass(frozen=True)
class Samples:
    """Samples of the posterior."""

    t: _Array
    """Samples, shape [chain_count, sample_count, unknown_count]."""
    log_probability: _Array
    """Log-probability up to a constant, shape [chain_count, sample_count]; NaN where unknown."""
    gradients: int
    """Number of simulations with a gradient, all chains, burn-in included."""
    simulations: int
    """Number of simulations without one."""
    chained: bool
    """True if a point depends on the previous one in its chain."""
    trace: _Array
    """Burn-in and samples of every chain, shape [chain_count, iteration_count, unknown_count]; for the picture."""

    @property
    def flat(self) -> _Array:
        """All chains concatenated, shape [chain_count * sample_count, unknown_count]."""
        return self.t.reshape(-1, self.t.shape[-1])


def sample(method: str, sampling: Sampling) -> Samples:
    """Sample a posterior by a method of the table, from its start or its checkpoints.

    Every method has this signature.
    """
    check_installed(method)
    run = load_named(POSTERIORS[method].function)
    found: Samples = run(sampling)
    return found


def check_installed(method: str) -> None:
    """Reject a method whose package is not installed."""
    needs = POSTERIORS[method].needs
    if needs and find_spec(needs) is None:
        without = ", ".join(name for name, other in POSTERIORS.items() if not other.needs)
        raise InputError(
            f"calibrate.posterior is {method}, but the package {needs} is not installed. It is in the extra `bayes`. "
            f"Run {EXTRA}, or take one of {without}."
        )


# Convergence: rank-normalised R-hat and effective sample sizes


_WORST_RHAT = 1.05
"""R-hat above which the chains disagree."""
_FEWEST_EFFECTIVE = 50.0
"""Effective size below which the ends of a 90 % interval have an error of a fifth of a standard deviation."""


@dataclass(frozen=True)
class Diagnostics:
    """Diagnostics per unknown."""

    rhat: _Array
    """1 if all chains agree, shape [unknown_count]; NaN for independent points or a single chain."""
    effective: _Array
    """Effective sample size of the mean, shape [unknown_count]."""

    @property
    def warning(self) -> str:
        """Return the warning with its remedy; empty if there is none."""
        found = []
        if np.nanmax(self.rhat, initial=0.0) > _WORST_RHAT:
            found.append(
                f" The chains do not agree (R-hat {np.nanmax(self.rhat):.2f}, above {_WORST_RHAT}): raise "
                "calibrate.burn_in and calibrate.samples."
            )
        if self.effective.min() < _FEWEST_EFFECTIVE:
            found.append(
                f" The posterior rests on {self.effective.min():.0f} independent points (fewer than "
                f"{_FEWEST_EFFECTIVE:.0f}): raise calibrate.samples."
            )
        return "".join(found)


def diagnose(samples: Samples) -> Diagnostics:
    """Diagnose the points after burn-in; independent ones need no test."""
    chains, length, count = samples.t.shape
    if not samples.chained:
        return Diagnostics(np.full(count, np.nan), np.full(count, float(chains * length)))
    columns = np.moveaxis(samples.t, -1, 0)
    effective = np.array([float(array_stats.ess(column, method="bulk")) for column in columns])
    rhat = np.full(count, np.nan)
    if chains > 1:
        rhat = np.array([float(array_stats.rhat(column, method="rank")) for column in columns])
    return Diagnostics(rhat, effective)


# Checkpointed evaluations: a resumed run starts from its seed and gets stored evaluations from disk, so that a sampler
# of another package, which can't be saved, ends with the same points.


_SAVE_S = 1.0
"""Interval at which gradients are saved [s]; the most a kill may lose."""
_BATCH = 16
"""Number of simulations between two saves."""


class RememberedGradients:
    """Log-probability and gradient of a target, stored in the order of evaluation."""

    def __init__(self, target: Target, checkpoint: Checkpoint) -> None:
        self._target, self._checkpoint = target, checkpoint
        saved = checkpoint.load()
        self._known: list[_Array] = [] if saved is None else list(saved["known"].numpy())
        """One row per evaluation: t, log-probability, gradient."""
        self.asked = 0
        """Number of gradients used by the run, stored ones included."""
        self._saved = time.monotonic()

    def __call__(self, t: _Array) -> tuple[float, _Array]:
        """Return log-probability and gradient."""
        count = len(t)
        if self.asked < len(self._known):
            row = self._known[self.asked]
            if np.array_equal(row[:count], t):
                self.asked += 1
                return float(row[count]), row[count + 1 :].copy()
            del self._known[self.asked :]
        value, gradient = self._target.log_probability(t)
        self._known.append(np.concatenate([t, [value], gradient]))
        self.asked += 1
        if time.monotonic() - self._saved >= _SAVE_S:
            self._checkpoint.save({"known": torch.as_tensor(np.array(self._known))})
            self._saved = time.monotonic()
        return value, gradient


class RememberedSimulations:
    """A function of many points, shape [point_count, unknown_count] → [point_count, ...], stored batch by batch."""

    def __init__(self, work: Callable[[_Array], _Array], checkpoint: Checkpoint) -> None:
        self._work, self._checkpoint = work, checkpoint
        saved = checkpoint.load()
        self._points: list[_Array] = [] if saved is None else list(saved["points"].numpy())
        self._answers: list[_Array] = [] if saved is None else list(saved["answers"].numpy())
        self.asked = 0

    def __call__(self, points: _Array, report: Callable[[int], None] = lambda done: None) -> _Array:
        """Return the values at all points; `report` is called with the number done."""
        first = self.asked
        known = self._points[first : first + len(points)]
        if not all(np.array_equal(a, b) for a, b in zip(known, points, strict=False)):
            del self._points[first:], self._answers[first:]
            known = []
        for low in range(len(known), len(points), _BATCH):
            batch = points[low : low + _BATCH]
            self._answers += list(self._work(batch))
            self._points += list(batch)
            self._checkpoint.save(
                {
                    "points": torch.as_tensor(np.array(self._points)),
                    "answers": torch.as_tensor(np.array(self._answers)),
                }
            )
            report(low + len(batch))
        self.asked = first + len(points)
        return np.array(self._answers[first : self.asked])
