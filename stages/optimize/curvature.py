"""Curvature of the mean force, learnt from the slopes of simulated motions (damped BFGS)."""

import numpy as np
from numpy.typing import NDArray

DAMPING = 0.2
"""Powell's: a step along which the slope hardly changes, or falls, counts as this share of what was expected."""

Array = NDArray[np.float64]


class Curvature:
    """A positive definite matrix over the flat variables, shape [n, n]."""

    def __init__(self, slope: Array, radius: float) -> None:
        """At first the same in all directions, so that the step down the first slope has the radius' length."""
        self.matrix: Array = np.eye(slope.size) * (float(np.linalg.norm(slope)) / radius)

    def learn(self, step: Array, slope_change: Array) -> None:
        """Take in how the slope changed along a step; both of the variables' shape."""
        s, y = step.reshape(-1), slope_change.reshape(-1)
        expected = self.matrix @ s
        size = float(s @ expected)
        if size <= 0.0:
            return
        along = float(s @ y)
        if along < DAMPING * size:
            share = (1.0 - DAMPING) * size / (size - along)
            y = share * y + (1.0 - share) * expected
            along = float(s @ y)
        self.matrix = self.matrix - np.outer(expected, expected) / size + np.outer(y, y) / along

    def energy(self, step: Array) -> tuple[float, Array]:
        """Half the matrix applied twice to a step [-], and the derivatives in the step."""
        flat = self.matrix @ step.reshape(-1)
        return 0.5 * float(step.reshape(-1) @ flat), flat.reshape(step.shape)
