"""Moving numbers between NumPy and the device."""

import numpy as np
import warp as wp


def host(array: wp.array) -> np.ndarray:
    """The array's values: the memory itself on the CPU (the view is made once and kept), else a copy."""
    if not array.device.is_cpu:
        return array.numpy()
    view: np.ndarray | None = getattr(array, "host_view", None)
    if view is None:
        view = array.host_view = array.numpy()
    return view


def upload(array: wp.array, values: np.ndarray) -> None:
    """Copy values into the beginning of a device array; in place, without a temporary, where memory is shared."""
    if array.device.is_cpu:
        host(array)[: len(values)] = values
        return
    given = wp.array(values, dtype=array.dtype, ndim=array.ndim, device=array.device)
    wp.copy(array, given, count=given.size)


def clear(array: wp.array) -> None:
    """Set all to zero."""
    if array.device.is_cpu:
        host(array)[...] = 0.0
    else:
        array.zero_()
