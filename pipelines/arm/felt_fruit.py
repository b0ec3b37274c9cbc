"""Force on a simulated arm along a cut, and the reflex that it triggers; used by simulated_arm.py.

The force is looked up by the commanded joint positions, not the measured ones: a simulated arm sags by a millimetre,
and where the knife is slow the nearest point of the path is half a second ahead.
"""

import numpy as np

NEAR_RAD, AHEAD = 0.005, 50
"""Largest distance of the command from the path, and number of samples searched ahead."""
_START_RAD = 1e-6
"""Distance at which the arm counts as being at the start of the cut."""
_DONE_RAD = 1e-4
"""Distance from the end of the path at which the cut is over."""


class Reflex:
    """Collision thresholds as the client set them with set_collision_behavior; trips once per motion into them."""

    def __init__(self) -> None:
        self.force_n = np.full(3, np.inf)
        self.tripped = False

    def set(self, payload: bytes) -> None:
        """Take the nominal upper force thresholds [N], the last six of the command's 52 numbers."""
        self.force_n = np.frombuffer(payload, "<f8", 52)[-6:-3].copy()

    def trips(self, force: np.ndarray) -> bool:
        """Return True if the reading [N], base frame, newly exceeds a threshold."""
        beyond, before = bool((np.abs(force) > self.force_n).any()), self.tripped
        self.tripped = beyond
        return beyond and not before


class Fruit:
    """Force along the path of a cut, one row per millisecond; the path is traversed once, from its start."""

    def __init__(self, rows: dict) -> None:
        self.path, self.force = (np.array(rows[name]) for name in ("joints_rad", "force_n"))
        self.at = len(self.path)

    def felt(self, command: np.ndarray) -> np.ndarray:
        """Return the force on the knife [N], base frame, for the commanded joint positions [rad]."""
        if np.abs(self.path[0] - command).max() < _START_RAD:
            self.at = 0
        distance = np.abs(self.path[self.at : self.at + AHEAD] - command).max(axis=1)
        if not len(distance) or distance.min() > NEAR_RAD:
            return np.zeros(3)
        self.at += int(distance.argmin())
        if self.at == len(self.path) - 1 and distance.min() > _DONE_RAD:
            self.at += 1
            return np.zeros(3)
        return self.force[self.at]


class Fruits:
    """Force along the paths of several cuts, such as the slices of a programme."""

    def __init__(self, cuts: list) -> None:
        self.cuts = [Fruit(rows) for rows in cuts]

    def felt(self, command: np.ndarray) -> np.ndarray:
        """Return the force on the knife [N], base frame; the paths of two cuts are far apart."""
        forces = [cut.felt(command) for cut in self.cuts]
        return max(forces, key=lambda force: float(np.abs(force).max()))
