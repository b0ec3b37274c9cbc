"""A kernel run backwards for many gradients at once, its arguments addressed by name."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

import numpy as np
import warp as wp

from disect_sim.device_arrays import clear, host, upload, zeros


class AdjointKernel:
    """A kernel with its constants, differentiable inputs and outputs, and the adjoints of the latter two.

    Names are those of the kernel's arguments without `_in` and `_out`. Every element stands in the arrays once per
    column, so that each gradient has adjoints of its own: [all elements of column 0, all of column 1, ...].
    Values have the shape [count, ...], adjoints [count, ..., columns]; count may be smaller than the capacity.
    """

    def __init__(
        self,
        kernel: wp.Kernel,
        capacity: int,
        columns: int,
        *,
        constants: Mapping[str, Any],
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> None:
        """constants: name → value. inputs, outputs: name → Warp type (or a pair of type and row length)."""
        self._columns = columns
        size = capacity * columns
        self._inputs = {name: _zeros(size, kind) for name, kind in inputs.items()}
        self._outputs = {name: _zeros(size, kind) for name, kind in outputs.items()}
        self._input_bars = {name: _zeros(size, kind) for name, kind in inputs.items()}
        self._output_bars = {name: _zeros(size, kind) for name, kind in outputs.items()}
        named = [*constants, *(f"{n}_in" for n in inputs), *(f"{n}_out" for n in outputs)]
        wanted = list(signature(kernel.func).parameters)
        if named != wanted:
            raise TypeError(f"{kernel.key} takes {wanted} in this order, not {named}")
        self._launch: wp.Launch | None = None
        if size:
            # Structs are handed over as their own adjoints: nothing is asked of what they hold.
            no_adjoints = [None if isinstance(c, wp.array) else c for c in constants.values()]
            self._launch = wp.launch(
                kernel,
                dim=size,
                inputs=[*constants.values(), *self._inputs.values()],
                outputs=list(self._outputs.values()),
                adj_inputs=[*no_adjoints, *self._input_bars.values()],
                adj_outputs=list(self._output_bars.values()),
                adjoint=True,
                record_cmd=True,
            )

    def fill(self, **values: np.ndarray) -> None:
        """Set inputs by name."""
        for name, value in values.items():
            upload(self._inputs[name], repeated(value, self._columns))

    def run(self, count: int, **seeds: np.ndarray) -> dict[str, np.ndarray]:
        """Gradients in the inputs of `count` elements, given those in the outputs; what is not named has none."""
        size = count * self._columns
        for name in (*self._output_bars, *seeds):
            bar = self._output_bars[name]
            if name in seeds:
                upload(bar, _one_block_per_column(seeds[name]))
            else:
                clear(bar)
        for bar in self._input_bars.values():
            clear(bar)
        if self._launch is not None and size:
            self._launch.set_dim(size)
            self._launch.launch()
        return {name: self._by_column(host(bar)[:size], count) for name, bar in self._input_bars.items()}

    def _by_column(self, values: np.ndarray, count: int) -> np.ndarray:
        """A copy of the shape [count, ..., columns]."""
        if self._columns == 1:
            return values[..., None].copy()
        split = values.reshape(self._columns, count, *values.shape[1:])
        return np.ascontiguousarray(np.moveaxis(split, 0, -1))


def _one_block_per_column(values: np.ndarray) -> np.ndarray:
    """From [count, ..., columns] to [columns count, ...]."""
    if values.shape[-1] == 1:
        return values[..., 0]
    return np.moveaxis(values, -1, 0).reshape(-1, *values.shape[1:-1])


def repeated(values: np.ndarray, columns: int) -> np.ndarray:
    """The values once per column, one block after the other."""
    return values if columns == 1 else np.concatenate([values] * columns)


def _zeros(size: int, kind: Any) -> wp.array:
    if isinstance(kind, tuple):
        return zeros((size, kind[1]), dtype=kind[0])
    return zeros(size, dtype=kind)
