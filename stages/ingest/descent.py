"""The descent of the knife: from where it leaves its highest point to its lowest."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError

START_DEPTH_M = 0.001
"""The descent counts from this depth on: above it the knife rests, and height says nothing about time."""
MIN_DEPTH_M = 0.005
"""A motion that goes down less is no cut."""


@dataclass(frozen=True)
class Descent:
    """Where a record goes down."""

    top: int
    """First sample deeper than START_DEPTH_M."""
    bottom: int
    """Lowest sample."""
    depth_m: NDArray[np.float64]
    """How far the edge is below its highest point before the cut [m], shape [n]."""

    @property
    def samples(self) -> slice:
        """From top to bottom, both included."""
        return slice(self.top, self.bottom + 1)


def find_descent(height_m: NDArray[np.float64], source: str) -> Descent:
    """The descent to the lowest point of a record, height [m] of shape [n]."""
    bottom = int(np.argmin(height_m))
    start = float(height_m[: bottom + 1].max())
    depth = start - height_m
    if depth[bottom] < MIN_DEPTH_M:
        raise InputError(
            f"{source}: the knife goes down {1e3 * depth[bottom]:.3g} mm. It must go down at least "
            f"{1e3 * MIN_DEPTH_M:g} mm in a cut. Check ingest.up_axis and ingest.length_unit, or give the log of a cut."
        )
    top = int(np.flatnonzero(depth[: bottom + 1] <= START_DEPTH_M)[-1]) + 1
    return Descent(top, bottom, depth)
