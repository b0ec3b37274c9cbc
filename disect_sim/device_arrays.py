"""Moving numbers between NumPy and the device."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import warp as wp

# Seconds by activity.


class Stopwatch:
    """Adds up time under names: the clock's, which costs nothing to ask; the CPU's own is a system call."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time spent in the `with` block under this name."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def split(self) -> dict[str, float]:
        """Seconds by activity, with what was not named as "other"."""
        total = time.perf_counter() - self._started
        return self.seconds | {"other": max(0.0, total - sum(self.seconds.values()))}


# Kernel launches with fixed arguments, made once and run many times.


class Launches:
    """Launches in their order. On the CPU they become one graph: a run costs one call, not one per kernel."""

    def __init__(self, device: wp.Device) -> None:
        self._device = device
        self._recorded: list[wp.Launch] = []
        self._graph: wp.Graph | None = None

    def add(self, kernel: wp.Kernel, count: int, inputs: list[Any]) -> None:
        """Append a launch; the arrays among its inputs are read and written anew at every run."""
        if count:
            self._recorded.append(
                wp.launch(kernel, dim=count, inputs=inputs, device=self._device, record_cmd=True)
            )

    def run(self) -> None:
        """Run all of them."""
        if not self._device.is_cpu:
            self.enqueue()
        elif self._recorded:
            if self._graph is None:
                with wp.ScopedCapture(device=self._device) as capture:
                    self.enqueue()
                self._graph = capture.graph
            wp.capture_launch(self._graph)

    def enqueue(self) -> None:
        """Launch them one by one: as they are, or into the graph that is being captured."""
        for launch in self._recorded:
            launch.launch()


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
