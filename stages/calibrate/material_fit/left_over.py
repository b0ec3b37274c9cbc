"""What the fitted model leaves of its logs, smooth over height: the next cut of the same fruit is taken to have it too.

The likelihood expects a model error that keeps its sign over some millimetres. Its most probable course, given the
logs, is part of the prediction (Kennedy and O'Hagan 2001): a puncture, say, that a handful of numbers does not follow.
Where no log has been it fades within that length.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.calibrate.material_fit.likelihood import CORRELATION_M, MODEL_ERROR, DepthLikelihood
from stages.calibrate.recorded_cut import top_of_body
from stages.shared.fitting.correlation import correlation

SPACING_M = 1.0e-3
LEAST = 0.1
"""Of the mean force: below it the share of a small force is lost in noise."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LeftOver:
    """Measured over simulated force, as a function of the edge's height."""

    height_m: Array
    """Above the board, ascending."""
    factor: Array
    deviation: Array
    """What the model's error is known to after the logs, as a share of the mean force."""

    def at(self, height_m: Array) -> Array:
        """The factor at these heights; 1 beyond the known ones."""
        return self._at(height_m, self.factor, 1.0)

    def deviation_at(self, height_m: Array) -> Array:
        """The deviation at these heights; beyond the known ones the model's own error."""
        return self._at(height_m, self.deviation, MODEL_ERROR)

    def _at(self, height_m: Array, values: Array, beyond: float) -> Array:
        if not len(values):
            return np.full(np.shape(height_m), beyond)
        return np.interp(height_m, self.height_m, values, left=beyond, right=beyond)

    def table(self) -> pl.DataFrame:
        """The table calibrate/left_over."""
        return pl.DataFrame({"height_m": self.height_m, "factor": self.factor, "deviation": self.deviation})


NOTHING = LeftOver(np.zeros(0), np.zeros(0), np.zeros(0))
"""Without a fit of the material: the factor is 1 everywhere."""


def read_left_over(table: pl.DataFrame) -> LeftOver:
    """From the table calibrate/left_over."""
    return LeftOver(*(table[name].to_numpy() for name in ("height_m", "factor", "deviation")))


def left_over(likelihoods: Sequence[DepthLikelihood], profiles: Sequence[Array]) -> LeftOver:
    """Of fitted cuts of one body, from the profiles of the fit [N], each of shape [sample_count]."""
    heights, shares, noise, forces = [], [], [], []
    for likelihood, profile in zip(likelihoods, profiles, strict=True):
        problem, slices = likelihood.problem, likelihood.slices
        mean = float((slices @ problem.measured).mean())
        heights.append(slices @ problem.height)
        shares.append(slices @ (problem.measured - profile) / mean)
        noise.append(np.full(len(slices), (likelihood.noise_n / mean) ** 2))
        forces.append(slices @ profile / mean)
    seen = np.concatenate(heights)
    covariance = MODEL_ERROR**2 * correlation(seen, seen, CORRELATION_M) + np.diag(np.concatenate(noise))
    top = top_of_body(likelihoods[0].problem.model.mesh)
    height = np.arange(0.0, top + SPACING_M, SPACING_M)
    order = np.argsort(heights[0])
    force = np.interp(height, heights[0][order], forces[0][order])
    alike = MODEL_ERROR**2 * correlation(seen, height, CORRELATION_M)
    gain = np.linalg.solve(covariance, alike).T
    share = gain @ np.concatenate(shares)
    known = np.einsum("ij,ji->i", gain, alike)
    deviation = np.sqrt(np.maximum(0.0, MODEL_ERROR**2 - known))
    return LeftOver(height, 1.0 + share / np.maximum(force, LEAST), deviation)
