"""How alike a smooth normal field is at two places."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def correlation(a: Array, b: Array, length: float) -> Array:
    """exp(-d² / 2 length²) of the distances between places a and b, shape [len(a), len(b)]."""
    out: Array = np.exp(-0.5 * ((a[:, None] - b) / length) ** 2)
    return out
