"""Contact with the board: a steep rise of the force at the end of the descent, which is not the fruit's."""

import numpy as np
from numpy.typing import NDArray

from stages.ingest.descent import Descent

BAND_M = 6.0e-3
"""The board is looked for so far above the lowest point [m]."""
OVER_M = 0.5e-3
"""Slopes are taken over so much depth [m]."""
STEEP_N_M = 10.0e3
"""Fruit pushes back by up to 5 N per mm; an arm that presses on a board by 20 and more [N/m]."""
STEEPER = 3.0
"""The rise must also be so much steeper than anything before it."""
LEAST_RISE_N = 8.0
"""A smaller one changes little [N]."""

Array = NDArray[np.float64]


def board_contact(upward_n: Array, descent: Descent) -> int | None:
    """First sample at which the edge presses on the board, or None; upward_n: tared and low-passed [N], shape [n]."""
    down = np.arange(descent.top, descent.bottom + 1)
    depth = np.maximum.accumulate(descent.depth_m[down])
    force = upward_n[down]
    slope = (force - np.interp(depth - OVER_M, depth, force)) / OVER_M
    low = depth > depth[-1] - BAND_M
    before = slope[~low]
    limit = max(STEEP_N_M, STEEPER * float(before.max())) if len(before) else STEEP_N_M
    steep = np.flatnonzero(low & (slope > limit))
    if not len(steep):
        return None
    # The slope looks back by OVER_M: the rise began there.
    first = int(np.searchsorted(depth, depth[steep[0]] - OVER_M))
    if force[first:].max() - force[first] < LEAST_RISE_N:
        return None
    return int(down[first])
