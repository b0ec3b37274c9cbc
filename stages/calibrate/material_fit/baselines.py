"""What anybody could guess without a model."""

import numpy as np
from numpy.typing import NDArray

from stages.calibrate.problem import Problem

Array = NDArray[np.float64]


def best_amplitude(problem: Problem, profile: Array) -> float:
    """The one factor on a profile [N] that brings it nearest to the measured force [-]."""
    use = problem.contact & problem.valid
    a, b = profile[use], problem.measured[use]
    return float(a @ b / (a @ a))


def repeated_profile(own: Problem, height: Array) -> Array:
    """A known cut's measured force [N], repeated at the same heights."""
    use = own.contact & own.valid
    order = np.argsort(own.height[use])
    known, force = own.height[use][order], own.measured[use][order]
    return np.where(height > known[-1], 0.0, np.interp(height, known, force))
