"""Answers of a target that are kept on disk: a killed run asks again from its seed and gets them for nothing.

So a sampler of another package, which can't be stopped and saved, ends with the same points all the same.
"""

import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from stages.calibrate.samplers.sampling import Target
from stages.runtime.checkpoint import Checkpoint

SAVE_S = 1.0
"""Gradients are saved when the last save is so long ago [s]: what a kill may lose."""
BATCH = 16
"""Simulations between two saves."""

Array = NDArray[np.float64]


class RememberedGradients:
    """Log-probability and gradient of a target, kept in the order in which they were asked."""

    def __init__(self, target: Target, checkpoint: Checkpoint) -> None:
        self._target, self._checkpoint = target, checkpoint
        saved = checkpoint.load()
        self._known: list[Array] = [] if saved is None else list(saved["known"].numpy())
        """One row per question: t, log-probability, gradient."""
        self.asked = 0
        """Gradients that the run has used, remembered ones included."""
        self._saved = time.monotonic()

    def __call__(self, t: Array) -> tuple[float, Array]:
        """Log-probability and gradient."""
        count = len(t)
        if self.asked < len(self._known):
            row = self._known[self.asked]
            if np.array_equal(row[:count], t):
                self.asked += 1
                return float(row[count]), row[count + 1 :].copy()
            del self._known[self.asked :]
        value, gradient = self._target.log_probability(t)
        self._known.append(np.concatenate([t, [value], gradient]))
        self.asked += 1
        if time.monotonic() - self._saved >= SAVE_S:
            self._checkpoint.save({"known": torch.as_tensor(np.array(self._known))})
            self._saved = time.monotonic()
        return value, gradient


class RememberedSimulations:
    """A function of many points, shape [point_count, unknown_count] → [point_count, ...], kept batch by batch."""

    def __init__(self, work: Callable[[Array], Array], checkpoint: Checkpoint) -> None:
        self._work, self._checkpoint = work, checkpoint
        saved = checkpoint.load()
        self._points: list[Array] = [] if saved is None else list(saved["points"].numpy())
        self._answers: list[Array] = [] if saved is None else list(saved["answers"].numpy())
        self.asked = 0

    def __call__(self, points: Array, report: Callable[[int], None] = lambda done: None) -> Array:
        """The answers of all points; `report` gets how many there are."""
        first = self.asked
        known = self._points[first : first + len(points)]
        if not all(np.array_equal(a, b) for a, b in zip(known, points, strict=False)):
            del self._points[first:], self._answers[first:]
            known = []
        for low in range(len(known), len(points), BATCH):
            batch = points[low : low + BATCH]
            self._answers += list(self._work(batch))
            self._points += list(batch)
            self._checkpoint.save(
                {
                    "points": torch.as_tensor(np.array(self._points)),
                    "answers": torch.as_tensor(np.array(self._answers)),
                }
            )
            report(low + len(batch))
        self.asked = first + len(points)
        return np.array(self._answers[first : self.asked])
