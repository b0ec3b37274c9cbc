"""The zero-phase low-pass that is applied alike to a measured and to a simulated force."""

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError

ORDER = 2
"""Of the Butterworth filter, which runs forwards and backwards."""
PADDING_PERIODS = 3.0
"""How far each end is extended before filtering, in periods of the cutoff, so that the filter has settled."""
MIN_SAMPLES = 12
"""A shorter record is all edge."""


def low_pass(
    time_s: NDArray[np.float64], values: NDArray[np.float64], cutoff_hz: float
) -> NDArray[np.float64]:
    """Low-pass without delay, for samples at uneven times.

    The samples are put on an even grid of the same mean rate, filtered forwards and backwards, and taken back
    to their own times.

    Args:
        time_s: Strictly increasing times [s], shape [n].
        values: What to filter, shape [n] or [n, k].
        cutoff_hz: Frequency at which the amplitude is halved [Hz].
    """
    from scipy.signal import butter, sosfiltfilt

    count = len(time_s)
    if count < MIN_SAMPLES:
        raise InputError(
            f"The low-pass got {count} samples. It needs at least {MIN_SAMPLES}. Give a longer record."
        )
    rate_hz = (count - 1) / (time_s[-1] - time_s[0])
    if not cutoff_hz < 0.5 * rate_hz:
        raise InputError(
            f"The low-pass's cutoff is {cutoff_hz:g} Hz, the record has {rate_hz:.4g} samples a second. The cutoff "
            f"must be below half of that, {0.5 * rate_hz:.4g} Hz. Lower filter_cutoff_hz."
        )
    even = np.linspace(time_s[0], time_s[-1], count)
    columns = values.reshape(count, -1)
    gridded = np.stack([np.interp(even, time_s, column) for column in columns.T], axis=1)
    padding = int(np.ceil(PADDING_PERIODS * rate_hz / cutoff_hz))
    sections = butter(ORDER, cutoff_hz, fs=rate_hz, output="sos")
    smooth = sosfiltfilt(sections, gridded, axis=0, padlen=min(count - 1, padding))
    back = np.stack([np.interp(time_s, even, column) for column in smooth.T], axis=1)
    return back.reshape(values.shape)
