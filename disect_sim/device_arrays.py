"""NumPy and device memory, recorded kernel launches, and timing by activity."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import warp as wp


class Stopwatch:
    """Accumulates wall-clock time by name; the clock is cheap to read, CPU time would need a system call."""

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
        """Return seconds by activity; the unnamed remainder is "other"."""
        total = time.perf_counter() - self._started
        return self.seconds | {"other": max(0.0, total - sum(self.seconds.values()))}


class Launches:
    """A sequence of kernel launches with fixed arguments. On the CPU they become one graph, called once per run."""

    def __init__(self, device: wp.Device) -> None:
        self._device = device
        self._recorded: list[wp.Launch] = []
        self._graph: wp.Graph | None = None

    def add(self, kernel: wp.Kernel, count: int, inputs: list[Any]) -> None:
        """Append a launch; its input arrays are read and written at every run."""
        if count:
            self._recorded.append(
                wp.launch(kernel, dim=count, inputs=inputs, device=self._device, record_cmd=True)
            )

    def run(self) -> None:
        """Run all launches."""
        if not self._device.is_cpu:
            self.enqueue()
        elif self._recorded:
            if self._graph is None:
                with wp.ScopedCapture(device=self._device) as capture:
                    self.enqueue()
                self._graph = capture.graph
            wp.capture_launch(self._graph)

    def enqueue(self) -> None:
        """Launch one by one, directly or into the graph being captured."""
        for launch in self._recorded:
            launch.launch()


def zeros(shape: int | tuple[int, ...], dtype: Any) -> wp.array:
    """Return an array of zeros on the current Warp device.

    On the CPU its memory belongs to a NumPy array, so that `host` needs no new view each time.
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
    """Return the array's values: its memory on the CPU, otherwise a copy.

    A view of Warp's own memory keeps the array alive, so it must not be stored on the array: neither would ever be
    freed.
    """
    memory: np.ndarray | None = getattr(array, "host_view", None)
    if memory is not None:
        return memory
    return np.asarray(array) if array.device.is_cpu else array.numpy()


def upload(array: wp.array, values: np.ndarray) -> None:
    """Copy values into the beginning of a device array; in place where memory is shared."""
    memory: np.ndarray | None = getattr(array, "host_view", None)
    if memory is not None or array.device.is_cpu:
        (host(array) if memory is None else memory)[: len(values)] = values
        return
    given = wp.array(values, dtype=array.dtype, ndim=array.ndim, device=array.device)
    wp.copy(array, given, count=given.size)


def clear(array: wp.array) -> None:
    """Set all values to zero."""
    memory: np.ndarray | None = getattr(array, "host_view", None)
    if memory is not None:
        memory.fill(0.0)
    else:
        array.zero_()
