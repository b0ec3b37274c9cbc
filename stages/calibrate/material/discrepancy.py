"""Model discrepancy carried over to the next cut, and the scale of the force reading.

The likelihood assumes a model error with a slow and a fast part over depth. Its posterior mean given the logs is part
of the prediction (Kennedy and O'Hagan 2001): for example a puncture that a handful of parameters does not follow. Away
from logged depths it decays. The same cut has all of it, another cut of the fruit a part, another body none.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.calibrate.material.likelihood import MODEL_ERROR, DepthLikelihood
from stages.calibrate.problem import top_of_body
from stages.shared.library.library import CUT_SPREAD, SCALE_SPREAD

_SPACING_M = 1.0e-3
_LEAST = 0.1
"""Minimum fraction of the mean force: below it the relative discrepancy is dominated by noise."""
_FITTED = -1
"""Index of the fitted material in the table; the draws have others."""

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class LeftOver:
    """Factor on the simulated force of a cut, as a function of the edge's height."""

    height_m: _Array
    """Height above the board, ascending."""
    factor: _Array
    deviation: _Array
    """Posterior standard deviation of the model error, as a fraction of the mean force."""

    def at(self, height_m: _Array) -> _Array:
        """Return the factor at these heights, extrapolated as constant."""
        return np.interp(height_m, self.height_m, self.factor) if len(self.factor) else np.ones(len(height_m))

    def deviation_at(self, height_m: _Array) -> _Array:
        """Return the deviation at these heights; outside the known range, the prior model error."""
        if not len(self.deviation):
            return np.full(np.shape(height_m), MODEL_ERROR.deviation)
        ends = MODEL_ERROR.deviation
        return np.interp(height_m, self.height_m, self.deviation, left=ends, right=ends)


NOTHING = LeftOver(np.zeros(0), np.zeros(0), np.zeros(0))
"""Without a fit of the material: the factor is 1 everywhere."""


def left_over_table(lefts: Sequence[LeftOver]) -> pl.DataFrame:
    """Return the table calibrate/left_over, of the fitted material and then of the draws."""
    parts = [
        pl.DataFrame(
            {
                "draw": pl.Series([_FITTED + i] * len(left.factor), dtype=pl.Int64),
                "height_m": left.height_m,
                "factor": left.factor,
                "deviation": left.deviation,
            }
        )
        for i, left in enumerate(lefts or [NOTHING])
    ]
    return pl.concat(parts)


def read_left_over(table: pl.DataFrame) -> list[LeftOver]:
    """Read that table; return NOTHING if it has no rows."""
    columns = ("height_m", "factor", "deviation")
    return [
        LeftOver(*(rows[name].to_numpy() for name in columns))
        for rows in table.partition_by("draw", maintain_order=True)
    ]


def scale_again(log_amplitudes: Sequence[float]) -> float:
    """Return the posterior mean scale of the reading [-], from the logarithms of the amplitudes of its cuts."""
    return float(np.exp(sum(log_amplitudes) * scale_variance(len(log_amplitudes)) / CUT_SPREAD**2))


def scale_variance(cuts: int) -> float:
    """Return the variance of the logarithm of the reading's scale, given the amplitudes of `cuts` cuts."""
    return float(1.0 / (SCALE_SPREAD**-2 + cuts * CUT_SPREAD**-2))


def left_over(
    likelihoods: Sequence[DepthLikelihood],
    profiles: Sequence[_Array],
    *,
    same_cut: bool = False,
    scale: float = 1.0,
) -> LeftOver:
    """Return the model discrepancy of a cut of a fruit, given fitted cuts of it.

    Args:
        likelihoods: Likelihoods of the logs.
        profiles: Profiles of the fit [N], each of shape [sample_count].
        same_cut: True for the rest of the one fitted cut, False for another cut of the fruit.
        scale: Scale of the reading, by which the factor is multiplied.
    """
    heights, shares, noise, forces = [], [], [], []
    for likelihood, profile in zip(likelihoods, profiles, strict=True):
        problem, slices = likelihood.problem, likelihood.slices
        measured, force = slices @ problem.measured, slices @ profile
        mean = float(measured.mean())
        heights.append(slices @ problem.height)
        shares.append((measured - force) / mean)
        noise.append(np.full(len(slices), (likelihood.noise_n / mean) ** 2))
        forces.append(force / mean)
    seen = np.concatenate(heights)
    cut = np.repeat(np.arange(len(heights)), [len(each) for each in heights])
    covariance = MODEL_ERROR.covariance(seen, seen, cut[:, None] == cut) + np.diag(np.concatenate(noise))
    top = top_of_body(likelihoods[0].problem.model.mesh)
    height = np.arange(0.0, top + _SPACING_M, _SPACING_M)
    order = np.argsort(heights[0])
    force = np.interp(height, heights[0][order], forces[0][order])
    alike = MODEL_ERROR.covariance(seen, height, same_cut)
    gain = np.linalg.solve(covariance, alike).T
    share = gain @ np.concatenate(shares)
    explained = np.einsum("ij,ji->i", gain, alike)
    deviation = np.sqrt(np.maximum(0.0, MODEL_ERROR.deviation**2 - explained))
    return LeftOver(height, scale * (1.0 + share / np.maximum(force, _LEAST)), deviation)
