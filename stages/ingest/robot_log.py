"""What a log holds, in one form for all formats: SI units, the robot's base frame, the log's own sign."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EXERTED = -1.0
"""Factor from a force that the robot exerts to the force on the knife."""
ON_KNIFE = 1.0


@dataclass(frozen=True)
class RobotLog:
    """One recording; the fields that its format lacks are None."""

    source_format: str
    time_s: NDArray[np.float64]
    """Time [s], shape [n]."""
    clock: str
    """What the clock is called in the file."""
    time_unit: str
    """Unit of the clock in the file: s, ms, us or ns."""
    position_m: NDArray[np.float64] | None = None
    """Measured position of the end effector in the base frame [m], shape [n, 3]."""
    rotation: NDArray[np.float64] | None = None
    """Its orientation in the base frame, shape [n, 3, 3]."""
    force_n: NDArray[np.float64] | None = None
    """Force at the end effector in the base frame, sign as logged [N], shape [n, 3]."""
    force_factor: float = EXERTED
    """EXERTED or ON_KNIFE: what the logged force and torque have to be multiplied with."""
    joints_rad: NDArray[np.float64] | None = None
    """Measured joint angles [rad], shape [n, 7]."""
    external_torque_nm: NDArray[np.float64] | None = None
    """Estimated external joint torques [N m], shape [n, 7]."""
    tool: NDArray[np.float64] | None = None
    """Pose of the end effector in the flange's frame [m], shape [4, 4]."""
    robot: str = "Franka Panda"


def pose_parts(column_major: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positions [n, 3] and rotations [n, 3, 3] of column-major 4×4 poses, shape [n, 16]."""
    poses = column_major.reshape(-1, 4, 4).transpose(0, 2, 1)
    return poses[:, :3, 3], poses[:, :3, :3]
