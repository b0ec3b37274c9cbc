"""Adam and Adamax in NumPy (Kingma and Ba 2015): torch's cost more time than the steps of MDMM themselves."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BETA1, BETA2, EPSILON = 0.9, 0.999, 1.0e-8
"""Memory of mean and size of the gradient, and what keeps the size from zero: the paper's, and torch's, defaults."""


class Adamax:
    """Steps of about the rate: the mean gradient over the largest one of late."""

    def __init__(self) -> None:
        self._count = 0
        self._mean: Array | float = 0.0
        self._largest: Array | float = 0.0

    def step(self, gradient: Array, rate: float) -> Array:
        """What to add to the variables."""
        self._count += 1
        self._mean = BETA1 * self._mean + (1.0 - BETA1) * gradient
        self._largest = np.maximum(BETA2 * self._largest, np.abs(gradient) + EPSILON)
        return -rate / (1.0 - BETA1**self._count) * self._mean / self._largest


class Adam:
    """Steps of about the rate: the mean gradient over its root mean square."""

    def __init__(self) -> None:
        self._count = 0
        self._mean: Array | float = 0.0
        self._square: Array | float = 0.0

    def step(self, gradient: Array, rate: float) -> Array:
        """What to add to the variables."""
        self._count += 1
        self._mean = BETA1 * self._mean + (1.0 - BETA1) * gradient
        self._square = BETA2 * self._square + (1.0 - BETA2) * gradient * gradient
        size = np.sqrt(self._square / (1.0 - BETA2**self._count)) + EPSILON
        return -rate / (1.0 - BETA1**self._count) * self._mean / size
