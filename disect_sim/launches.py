"""Kernel launches with fixed arguments, made once and run many times."""

from typing import Any

import warp as wp


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
