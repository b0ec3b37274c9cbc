"""Moving numbers between NumPy and the device."""

from typing import Any

import numpy as np
import warp as wp


def zeros(shape: int | tuple[int, ...], dtype: Any) -> wp.array:
    """An array of zeros on the present Warp device.

    On the CPU its memory belongs to a NumPy array, which `host` then finds without making a view each time.
    """
    if not wp.get_device().is_cpu:
        return wp.zeros(shape, dtype=dtype)
    rows = shape if isinstance(shape, tuple) else (shape,)
    inner = getattr(dtype, "_shape_", ())
    scalar = wp.dtype_to_numpy(getattr(dtype, "_wp_scalar_type_", dtype))
    memory = np.zeros((*rows, *inner), scalar)
    array = wp.array(memory, dtype=dtype, ndim=len(rows), copy=False)
    array.host_view = memory
    return array


def host(array: wp.array) -> np.ndarray:
    """The array's values: the memory itself on the CPU, else a copy.

    A view of Warp's own memory keeps the array alive, so it must not be kept at the array: neither would ever be freed.
    """
    memory: np.ndarray | None = getattr(array, "host_view", None)
    if memory is not None:
        return memory
    return np.asarray(array) if array.device.is_cpu else array.numpy()


def upload(array: wp.array, values: np.ndarray) -> None:
    """Copy values into the beginning of a device array; in place, without a temporary, where memory is shared."""
    memory: np.ndarray | None = getattr(array, "host_view", None)
    if memory is not None or array.device.is_cpu:
        (host(array) if memory is None else memory)[: len(values)] = values
        return
    given = wp.array(values, dtype=array.dtype, ndim=array.ndim, device=array.device)
    wp.copy(array, given, count=given.size)


def clear(array: wp.array) -> None:
    """Set all to zero."""
    memory: np.ndarray | None = getattr(array, "host_view", None)
    if memory is not None:
        memory.fill(0.0)
    else:
        array.zero_()
