"""Residuals of a fit and their Jacobian by differences: for Gauss-Newton and for the error estimate."""

import numpy as np
import torch
from numpy.typing import NDArray

from stages.calibrate.problem import Problem, TrialFailedError
from stages.calibrate.unknowns import Unknowns

DIFFERENCE = 0.02
"""Step of the one-sided differences, in free numbers: half a per cent of a middle value's range."""

Array = NDArray[np.float64]


class Residuals:
    """Residuals of the training samples over the mean force, and their Jacobian in the free numbers."""

    def __init__(self, problem: Problem, unknowns: Unknowns) -> None:
        self.problem, self.unknowns = problem, unknowns
        self._seen = problem.training.numpy()
        self.simulations = 0

    def profile(self, free: torch.Tensor) -> Array | None:
        """Simulated profile [N], or None if the simulation did not finish."""
        self.simulations += 1
        with torch.no_grad():
            try:
                return self.problem.simulate(*self.unknowns.tensors(free))[0].numpy()
            except TrialFailedError:
                return None

    def residual(self, profile: Array) -> Array:
        """Shape [training sample count]."""
        return ((profile - self.problem.measured) / self.problem.mean_force)[self._seen]

    def jacobian(self, free: torch.Tensor, profile: Array) -> Array:
        """d residual / d free, shape [training sample count, unknown count]; a column that fails twice is zero."""
        columns = []
        for i in range(len(free)):
            column = np.zeros(len(self._seen))
            for step in (DIFFERENCE, -DIFFERENCE):
                moved = free.clone()
                moved[i] += step
                other = self.profile(moved)
                if other is not None:
                    column = (self.residual(other) - self.residual(profile)) / step
                    break
            columns.append(column)
        return np.stack(columns, axis=1)
