"""How alike a normal field is at two places."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def correlation(a: Array, b: Array, length: float) -> Array:
    """exp(-d² / 2 length²) of the distances between places a and b, shape [len(a), len(b)]."""
    out: Array = np.exp(-0.5 * ((a[:, None] - b) / length) ** 2)
    return out


def rough_correlation(a: Array, b: Array, length: float) -> Array:
    """The same of a field that has kinks: Matérn's with 3/2, (1 + √3 d / length) exp(-√3 d / length)."""
    far = np.sqrt(3.0) * np.abs(a[:, None] - b) / length
    out: Array = (1.0 + far) * np.exp(-far)
    return out
