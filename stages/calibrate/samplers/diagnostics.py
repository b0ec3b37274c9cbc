"""Are there enough points, and did the chains find the same posterior? Rank-normalised R-hat and effective sizes."""

from dataclasses import dataclass

import numpy as np
from arviz_stats.base import array_stats
from numpy.typing import NDArray

from stages.calibrate.samplers.sampling import Samples

WORST_RHAT = 1.05
"""Above this the chains have not met."""
FEWEST_EFFECTIVE = 50.0
"""Below this a 90 % interval is a guess: its ends have an error of a fifth of a standard deviation."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Diagnostics:
    """Per unknown."""

    rhat: Array
    """1 if all chains agree, shape [unknown_count]; NaN for independent points or a single chain."""
    effective: Array
    """Independent points that would say as much of the mean, shape [unknown_count]."""

    @property
    def warning(self) -> str:
        """What is wrong and what helps; empty if nothing is."""
        found = []
        if np.nanmax(self.rhat, initial=0.0) > WORST_RHAT:
            found.append(
                f" The chains do not agree (R-hat {np.nanmax(self.rhat):.2f}, above {WORST_RHAT}): raise "
                "calibrate.burn_in and calibrate.samples."
            )
        if self.effective.min() < FEWEST_EFFECTIVE:
            found.append(
                f" The posterior rests on {self.effective.min():.0f} independent points (fewer than "
                f"{FEWEST_EFFECTIVE:.0f}): raise calibrate.samples."
            )
        return "".join(found)


def diagnose(samples: Samples) -> Diagnostics:
    """Of the points after burn-in; independent ones need no asking."""
    chains, length, count = samples.t.shape
    if not samples.chained:
        return Diagnostics(np.full(count, np.nan), np.full(count, float(chains * length)))
    columns = np.moveaxis(samples.t, -1, 0)
    effective = np.array([float(array_stats.ess(column, method="bulk")) for column in columns])
    rhat = np.full(count, np.nan)
    if chains > 1:
        rhat = np.array([float(array_stats.rhat(column, method="rank")) for column in columns])
    return Diagnostics(rhat, effective)


def mean_error(samples: Samples) -> Array:
    """Monte-Carlo standard error of the means, shape [unknown_count]."""
    return np.asarray(samples.flat.std(axis=0) / np.sqrt(diagnose(samples).effective), float)
