"""What a posterior method gets, and what it gives back."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.calibrate.samplers.table import EXTRA, POSTERIORS
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.named import load
from stages.runtime.parallel import Workers

START_SPREAD = 2.0
"""Chains start this many Laplace standard deviations around the centre, so that R-hat can see if they do not meet."""

Array = NDArray[np.float64]


class Target(Protocol):
    """A posterior of unknowns t whose prior is standard normal. Picklable: chains run in processes."""

    @property
    def names(self) -> Sequence[str]:
        """Of the unknowns, in the order of t."""

    def log_probability(self, t: Array) -> tuple[float, Array]:
        """Log posterior up to a constant, and its gradient, shape [unknown_count]; minus infinity: no simulation."""

    def log_probabilities(self, ts: Array, workers: Workers) -> Array:
        """The same of many points, shape [point_count, unknown_count], without gradients; shape [point_count]."""

    def summaries(self, ts: Array, workers: Workers) -> Array:
        """What simulations of these points show, without noise, shape [point_count, summary_count]; NaN if none."""

    def noisy(self, summaries: Array, random: np.random.Generator) -> Array:
        """Summaries as a log would show them, with its noise."""

    @property
    def observed(self) -> Array:
        """What the log shows, shape [summary_count]."""


Report = Callable[[float, str], None]
"""Gets the share that is done and a line of text."""


@dataclass(frozen=True)
class Sampling:
    """One posterior to be sampled, how long, from which seed."""

    target: Target
    centre: Array
    """Most probable point, shape [unknown_count]."""
    covariance: Array
    """Laplace's approximation there, shape [unknown_count, unknown_count]."""
    chains: int = 4
    samples: int = 200
    """Of every chain after its burn-in."""
    burn_in: int = 100
    step: float = 0.2
    """First step of SGLD, in squared Laplace standard deviations."""
    gradients: int = 4000
    """A chain ends early when it has used so many."""
    simulations: int = 500
    """First round of the methods that learn from simulations; later rounds have a fifth as many."""
    rounds: int = 1
    seed: int = 0
    processes: int = 1
    scan_dir: Path | None = None
    """Where checkpoints go; None keeps none."""
    key: str = ""
    """A hash of everything the work depends on."""
    report: Report = field(default=lambda share, text: None, compare=False)

    def checkpoint(self, part: str) -> Checkpoint:
        """The file of one chain, or of the simulations."""
        return Checkpoint(self.scan_dir, self.key, stage="calibrate", part=part)

    def starts(self) -> Array:
        """Where the chains start, in Laplace standard deviations from the centre, shape [chains, unknown_count]."""
        random = np.random.default_rng([self.seed, 0])
        return START_SPREAD * random.standard_normal((self.chains, len(self.centre)))


@dataclass(frozen=True)
class Samples:
    """Points of the posterior."""

    t: Array
    """Shape [chain_count, sample_count, unknown_count]."""
    log_probability: Array
    """Up to a constant, shape [chain_count, sample_count]; NaN where the method does not know it."""
    gradients: int
    """Simulations with a gradient, all chains, burn-in included."""
    simulations: int
    """Simulations without one."""
    chained: bool
    """True if a point depends on the one before it in its chain."""
    trace: Array
    """Burn-in and samples of every chain, shape [chain_count, iteration_count, unknown_count]; for the picture."""

    @property
    def flat(self) -> Array:
        """All chains one after the other, shape [chain_count * sample_count, unknown_count]."""
        return self.t.reshape(-1, self.t.shape[-1])


def sample(method: str, sampling: Sampling) -> Samples:
    """Sample a posterior by a method of the table, from its start or its checkpoints. Every method is like this."""
    check_installed(method)
    run = load(POSTERIORS[method].function)
    found: Samples = run(sampling)
    return found


def check_installed(method: str) -> None:
    """Refuse a method whose package is not there."""
    needs = POSTERIORS[method].needs
    if needs and find_spec(needs) is None:
        without = ", ".join(name for name, other in POSTERIORS.items() if not other.needs)
        raise InputError(
            f"calibrate.posterior is {method}, but the package {needs} is not installed. It is in the extra `bayes`. "
            f"Run {EXTRA}, or take one of {without}."
        )
