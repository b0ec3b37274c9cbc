"""Curvature of the mean force, learnt from the slopes of simulated motions (damped BFGS)."""

import torch

DAMPING = 0.2
"""Powell's: a step along which the slope hardly changes, or falls, counts as this share of what was expected."""


class Curvature:
    """A positive definite matrix over the flat variables, shape [n, n]."""

    def __init__(self, slope: torch.Tensor, radius: float) -> None:
        """At first the same in all directions, so that the step down the first slope has the radius' length."""
        self.matrix = torch.eye(slope.numel(), dtype=slope.dtype) * (float(slope.norm()) / radius)

    def learn(self, step: torch.Tensor, slope_change: torch.Tensor) -> None:
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
        self.matrix = self.matrix - torch.outer(expected, expected) / size + torch.outer(y, y) / along

    def energy(self, step: torch.Tensor) -> torch.Tensor:
        """Half the matrix applied twice to a step [-]."""
        s = step.reshape(-1)
        return 0.5 * s @ (self.matrix @ s)
