"""What a simulated arm feels on the way of a cut: the force of the step that it was sent last. For simulated_arm.py.

Looked up by the joints that it was sent: a simulated arm sags by a millimetre, and where the knife is slow the nearest
place of its edge is half a second ahead.
"""

import numpy as np

NEAR_RAD, AHEAD = 0.005, 50
"""How far off its way the arm may be sent to feel the fruit, and how many samples ahead it is looked for."""
START_RAD = 1e-6
"""At the start of the cut the arm rests exactly there."""
DONE_RAD = 1e-4
"""The cut is over when the arm is sent so far from its end."""


class Fruit:
    """The force along the way of a cut, one row per millisecond; the way is gone through once, from its start."""

    def __init__(self, rows: dict) -> None:
        self.way, self.force = (np.array(rows[name]) for name in ("joints_rad", "force_n"))
        self.at = len(self.way)

    def felt(self, sent: np.ndarray) -> np.ndarray:
        """Force on the knife [N], base frame, with the arm sent there [rad]."""
        if np.abs(self.way[0] - sent).max() < START_RAD:
            self.at = 0
        off = np.abs(self.way[self.at : self.at + AHEAD] - sent).max(axis=1)
        if not len(off) or off.min() > NEAR_RAD:
            return np.zeros(3)
        self.at += int(off.argmin())
        if self.at == len(self.way) - 1 and off.min() > DONE_RAD:
            self.at += 1
            return np.zeros(3)
        return self.force[self.at]
