"""Moving numbers between NumPy and the device."""

import numpy as np
import warp as wp


def upload(array: wp.array, values: np.ndarray) -> None:
    """Copy values into a device array of the same shape; in place, without a temporary, where memory is shared."""
    if array.device.is_cpu:
        array.numpy()[...] = values
    else:
        array.assign(values)
