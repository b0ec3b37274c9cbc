"""A kernel run backwards, its arguments addressed by name."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import warp as wp

from disect_sim.device_arrays import upload


class AdjointKernel:
    """A kernel with its constants, differentiable inputs and outputs, and the adjoints of the latter two.

    Names are those of the kernel's arguments without `_in` and `_out`.
    """

    def __init__(
        self,
        kernel: wp.Kernel,
        count: int,
        *,
        constants: Mapping[str, Any],
        inputs: Mapping[str, wp.array],
        outputs: Mapping[str, wp.array],
    ) -> None:
        self._kernel, self._count = kernel, count
        self._constants, self._inputs, self._outputs = dict(constants), dict(inputs), dict(outputs)
        self._input_bars = {name: wp.zeros_like(a) for name, a in inputs.items()}
        self._output_bars = {name: wp.zeros_like(a) for name, a in outputs.items()}
        named = [*constants, *(f"{n}_in" for n in inputs), *(f"{n}_out" for n in outputs)]
        wanted = list(inspect.signature(kernel.func).parameters)
        if named != wanted:
            raise TypeError(f"{kernel.key} takes {wanted} in this order, not {named}")

    def fill(self, **values: np.ndarray) -> None:
        """Set inputs by name."""
        for name, value in values.items():
            upload(self._inputs[name], value)

    def run(self, **seeds: np.ndarray) -> dict[str, np.ndarray]:
        """Gradients in the inputs, given those in the outputs; an output that is not named has none."""
        for name in (*self._output_bars, *seeds):
            bar = self._output_bars[name]
            if name in seeds:
                upload(bar, seeds[name])
            else:
                bar.zero_()
        for bar in self._input_bars.values():
            bar.zero_()
        # Structs are handed over as their own adjoints: nothing is asked of what they hold.
        constants = [None if isinstance(c, wp.array) else c for c in self._constants.values()]
        wp.launch(
            self._kernel,
            dim=self._count,
            inputs=[*self._constants.values(), *self._inputs.values()],
            outputs=list(self._outputs.values()),
            adj_inputs=[*constants, *self._input_bars.values()],
            adj_outputs=list(self._output_bars.values()),
            adjoint=True,
            device=next(iter(self._inputs.values())).device,
        )
        return {name: bar.numpy().copy() for name, bar in self._input_bars.items()}
