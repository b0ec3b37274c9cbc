"""Heights of a log over those of the body: where the measured and the simulated force set in together."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from stages.calibrate.problem import OFFSET, Problem
from stages.calibrate.recorded_cut import find_onset

SETS_IN_N = 2.0
"""A force that passes this is no dent and no noise [N]."""
FURTHEST_M = 2.0e-3
"""Fruit dents by less than this before it is cut [m]."""

Array = NDArray[np.float64]


def setting_in(problem: Problem, values: Mapping[str, Array]) -> float:
    """How far to move the recorded heights [m] so that both forces pass SETS_IN_N at the same moment.

    Real fruit dents before it is cut, by a millimetre or less; the simulated edge cuts where it touches. So first touch
    alone would let the simulated force set in too early.
    """
    use = problem.contact & problem.valid
    profile, _ = problem.run({**values, OFFSET: np.asarray(0.0)}, differentiable=False)
    measured, simulated = (
        find_onset(problem.time[use], force[use], SETS_IN_N) for force in (problem.measured, profile)
    )
    if measured is None or simulated is None:
        return 0.0
    early = np.interp(simulated, problem.time, problem.height) - np.interp(
        measured, problem.time, problem.height
    )
    return float(np.clip(early, -FURTHEST_M, FURTHEST_M))
