"""One log as 90 numbers over time: the paper's profile, its exp(-L1) likelihood, and a few statistics of it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.calibrate.material_fit.likelihood import noise_factor
from stages.calibrate.problem import NORM_ROUNDING_N, Problem

NUMBERS = 90
"""Mean forces over as many equal parts of the contact."""
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)
PARTS = 5
"""The statistics have the mean of as many parts of the contact."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Profile:
    """Mean norms of the force over equal parts of the contact."""

    problem: Problem
    parts: Array
    """Means of the samples over every part, shape [number_count, sample_count]."""
    factor: Array
    """Cholesky factor of the covariance of log and model together [N], shape [number_count, number_count]."""

    @property
    def observed(self) -> Array:
        """Of the log [N], shape [number_count]."""
        return self.numbers(self.problem.measured_force)

    def numbers(self, force: Array) -> Array:
        """Of a filtered force [N], shape [sample_count, 3]; shape [number_count]."""
        return np.asarray(self.parts @ _norm(force), float)

    def noisy(self, numbers: Array, random: np.random.Generator) -> Array:
        """As a log would show them; shape [..., number_count]."""
        return numbers + random.standard_normal(numbers.shape) @ self.factor.T

    def log_likelihood(self, force: Array) -> tuple[float, Array]:
        """exp(-L1): minus the sum of absolute differences [N], and its derivative in the filtered force."""
        difference = self.numbers(force) - self.observed
        norm = _norm(force) + NORM_ROUNDING_N
        bar = -(self.parts.T @ np.sign(difference))[:, None] * force / norm[:, None]
        return -float(np.abs(difference).sum()), bar


def profile_of(problem: Problem, use: NDArray[np.bool_], uncertainty_n: float) -> Profile:
    """The profile over the samples in use; uncertainty_n: of the log's force [N]."""
    chosen = np.flatnonzero(use)
    parts = np.zeros((min(NUMBERS, len(chosen)), len(use)))
    for row, samples in zip(parts, np.array_split(chosen, len(parts)), strict=True):
        row[samples] = 1.0 / len(samples)
    return Profile(problem, parts, noise_factor(problem, parts, uncertainty_n))


def statistics(numbers: Array) -> Array:
    """Mean, spread, largest and where, quantiles, means of parts and of changes; [..., number_count] → [..., 15]."""
    count = numbers.shape[-1]
    where = numbers.argmax(axis=-1) / count
    means = [part.mean(axis=-1) for part in np.array_split(numbers, PARTS, axis=-1)]
    levels = list(np.quantile(numbers, QUANTILES, axis=-1))
    change = np.abs(np.diff(numbers, axis=-1)).mean(axis=-1)
    rows = [numbers.mean(axis=-1), numbers.std(axis=-1), numbers.max(axis=-1), where, *levels, *means, change]
    return np.stack(rows, axis=-1)


def _norm(force: Array) -> Array:
    rounded: Array = np.sqrt((force**2).sum(axis=-1) + NORM_ROUNDING_N**2) - NORM_ROUNDING_N
    return rounded
