"""What a simulated knife feels on the way of a cut: the force of the place that it has reached. For simulated_arm.py.

A simulated arm sags by a millimetre, and where the knife is slow the nearest place of the way may be half a second
ahead: so the force of a place never comes before its time.
"""

import numpy as np

NEAR_M, AHEAD = 0.005, 50
"""How far off its way the edge may be to feel the fruit, and how many samples ahead it is looked for."""
RESTING_M = 1e-6
"""In one millisecond."""
LIFTED_M = 0.003
"""The cut is over when the edge is so far from its end."""


class Fruit:
    """The force on the edge along the way of a cut, one row per millisecond; the way is gone through once."""

    def __init__(self, rows: dict) -> None:
        self.way, self.force = (np.array(rows[name]) for name in ("position_m", "force_n"))
        moved = np.linalg.norm(np.diff(self.way, axis=0), axis=1)
        self.leaves = int((moved > RESTING_M).argmax())
        self.at = self.clock = len(self.way)
        self.edge = np.full(3, np.inf)

    def felt(self, edge: np.ndarray) -> np.ndarray:
        """Force on the knife [N] with its edge there, base frame; asked once per millisecond."""
        resting = np.linalg.norm(edge - self.edge) < RESTING_M
        self.edge = edge
        if resting and np.linalg.norm(self.way[0] - edge) < NEAR_M:
            self.at, self.clock = 0, self.leaves
            return self.force[0]
        self.clock += 1
        off = np.linalg.norm(self.way[self.at : min(self.at + AHEAD, self.clock + 1)] - edge, axis=1)
        if not len(off) or off.min() > NEAR_M:
            return np.zeros(3)
        self.at += int(off.argmin())
        if self.at == len(self.way) - 1 and off.min() > LIFTED_M:
            self.at += 1
            return np.zeros(3)
        return self.force[self.at]
