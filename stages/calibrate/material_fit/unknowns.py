"""The unknowns of a material: a handful of sizes, and how the toughness varies with depth."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.calibrate.problem import OFFSET
from stages.shared.library.library import Expected

TOUGHNESS = "edge_toughness"
LAYER = "toughness_by_depth_"
"""Unknowns of this name and a number k vary the toughness as cos(k pi s) over the relative depth s."""
LAYER_SPREAD = 0.25
"""Of the first; the k-th has 1 / k of it: fruit changes over its height by a quarter, smoothly."""
HEIGHT_SPREAD_M = 0.7e-3
"""How well the height of first touch is known from the log [m]."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MaterialUnknowns:
    """Standard normal numbers t ↔ the simulator's parameters; t = 0 is what is expected."""

    prior: dict[str, Expected]
    """Sizes: value = median exp(spread t)."""
    layers: int
    """How many modes over depth the toughness has."""
    constants: Mapping[str, float]
    """The simulator's other parameters."""
    depth: Array
    """Relative depth of every spring below the top, 0 to 1, shape [spring_count]."""

    @property
    def names(self) -> list[str]:
        """In the order of t."""
        return [*self.prior, *(f"{LAYER}{k + 1}" for k in range(self.layers)), OFFSET]

    def __len__(self) -> int:
        return len(self.prior) + self.layers + 1

    def sizes(self, t: Array) -> dict[str, float]:
        """The sizes and the height offset, in their units."""
        out = {
            name: p.median * float(np.exp(p.spread * x))
            for (name, p), x in zip(self.prior.items(), t, strict=False)
        }
        return out | {OFFSET: HEIGHT_SPREAD_M * float(t[-1])}

    def values(self, t: Array) -> dict[str, Array]:
        """Every parameter of the simulator and the height offset: one number, or one per spring."""
        out = {
            name: np.asarray(value, float) for name, value in (dict(self.constants) | self.sizes(t)).items()
        }
        if self.layers and TOUGHNESS in out:
            out[TOUGHNESS] = out[TOUGHNESS] * np.exp(self._modes() @ t[len(self.prior) : -1])
        return out

    def derivative(self, t: Array, gradient: Mapping[str, Array]) -> Array:
        """From derivatives in the simulator's parameters (by name, as `values` gave them) to those in t."""
        values = self.values(t)
        out = np.zeros(len(t))
        for i, (name, p) in enumerate(self.prior.items()):
            out[i] = p.spread * float((gradient[name] * values[name]).sum())
        if self.layers and TOUGHNESS in values:
            out[len(self.prior) : -1] = self._modes().T @ (gradient[TOUGHNESS] * values[TOUGHNESS])
        out[-1] = HEIGHT_SPREAD_M * float(gradient[OFFSET])
        return out

    def _modes(self) -> Array:
        k = np.arange(1, self.layers + 1)
        modes: Array = LAYER_SPREAD / k * np.cos(np.pi * k * self.depth[:, None])
        return modes
