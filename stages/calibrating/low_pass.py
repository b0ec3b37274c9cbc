"""The low-pass that both the measured and the simulated force go through."""

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, sosfiltfilt

ORDER = 2
"""Of the Butterworth filter that runs forwards and backwards, so that nothing is shifted in time."""


def low_pass(values: NDArray[np.float64], rate_hz: float, cutoff_hz: float) -> NDArray[np.float64]:
    """Zero-phase low-pass of evenly sampled values, shape [count, ...]; constants pass unchanged."""
    if cutoff_hz >= 0.5 * rate_hz:
        return np.array(values)
    sections = butter(ORDER, cutoff_hz, fs=rate_hz, output="sos")
    padding = min(len(values) - 1, int(3.0 * rate_hz / cutoff_hz))
    filtered = sosfiltfilt(sections, values, axis=0, padtype="odd", padlen=padding)
    return np.ascontiguousarray(filtered)


def low_pass_matrix(count: int, rate_hz: float, cutoff_hz: float) -> NDArray[np.float64]:
    """The same low-pass as a matrix, shape [count, count]: it is linear, and a matrix has a transpose."""
    return low_pass(np.eye(count), rate_hz, cutoff_hz)
