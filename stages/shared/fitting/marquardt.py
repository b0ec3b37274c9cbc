"""The damped steps of Levenberg and Marquardt: shorter and shorter until one is better."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

FIRST_DAMPING = 1.0e-2
"""Of the curvature's scale; grows after a bad step and shrinks after a good one."""
LEAST_DAMPING = 1.0e-6
FACTOR = 5.0
TRIES = 6
"""Damped steps tried per linearisation."""

Array = NDArray[np.float64]
Place = TypeVar("Place")


class Damping:
    """How much the steps of one search are damped; goes on from linearisation to linearisation."""

    def __init__(self) -> None:
        self.value = FIRST_DAMPING

    def better(
        self,
        curvature: Array,
        slope: Array,
        scale: Array,
        longest: float,
        place: Callable[[Array], Place | None],
    ) -> Place | None:
        """The first place that is better, or None.

        Args:
            curvature: Of the linearised problem, shape [n, n].
            slope: Its gradient, shape [n].
            scale: What the damping multiplies, shape [n, n].
            longest: No number moves further than this in one step.
            place: Where a step leads, if that is better.
        """
        for _ in range(TRIES):
            step: Array = -np.asarray(np.linalg.solve(curvature + self.value * scale, slope), float)
            step *= min(1.0, longest / max(float(np.abs(step).max()), 1e-300))
            found = place(step)
            if found is not None:
                self.value = max(self.value / FACTOR, LEAST_DAMPING)
                return found
            self.value *= FACTOR
        return None
