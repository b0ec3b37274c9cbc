"""Forward kinematics and Jacobian of the Franka Panda and FR3, whose links have the same lengths."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

DH_A_M = (0.0, 0.0, 0.0, 0.0825, -0.0825, 0.0, 0.088)
DH_D_M = (0.333, 0.0, 0.316, 0.0, 0.384, 0.0, 0.0)
DH_ALPHA_RAD = (0.0, -np.pi / 2, np.pi / 2, np.pi / 2, -np.pi / 2, np.pi / 2, np.pi / 2)
"""Craig's Denavit–Hartenberg parameters, joints 1 to 7, as Franka publishes them."""
FLANGE_M = 0.107
"""From joint 7 to the flange along its axis."""


def joint_poses(joints: NDArray[Any]) -> NDArray[Any]:
    """Poses of the seven joint frames in the base frame, shape [n, 7, 4, 4], for joints [rad], shape [n, 7].

    Complex joints are allowed: the imaginary part then is a derivative (complex step).
    """
    pose = np.broadcast_to(np.eye(4), (len(joints), 4, 4))
    poses = []
    for a, d, alpha, angle in zip(DH_A_M, DH_D_M, DH_ALPHA_RAD, joints.T, strict=True):
        pose = pose @ _link(a, d, alpha, angle)
        poses.append(pose)
    return np.stack(poses, axis=1)


def flange_pose(joints: NDArray[Any]) -> NDArray[Any]:
    """Pose of the flange in the base frame [m], shape [n, 4, 4], for joints [rad], shape [n, 7]."""
    offset = np.eye(4)
    offset[2, 3] = FLANGE_M
    return joint_poses(joints)[:, -1] @ offset


def jacobian(joints: NDArray[Any], tool: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Base-frame Jacobian of the tool's origin, linear rows above angular ones, shape [n, 6, 7].

    Args:
        joints: Joint angles [rad], shape [n, 7].
        tool: Pose of the tool in the flange's frame [m], shape [4, 4]; None takes the flange.
    """
    poses = joint_poses(joints)
    offset = np.eye(4)
    offset[2, 3] = FLANGE_M
    end = poses[:, -1] @ offset @ (np.eye(4) if tool is None else tool)
    axes = poses[:, :, :3, 2]
    arms = end[:, None, :3, 3] - poses[:, :, :3, 3]
    return np.concatenate([np.cross(axes, arms), axes], axis=2).transpose(0, 2, 1)


def jacobian_rate(
    joints: NDArray[np.float64], rates: NDArray[np.float64], tool: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Time derivative of the Jacobian at joint rates [rad/s], shape [n, 6, 7].

    By complex step, which has no cancellation: exact to rounding.
    """
    step = 1e-30
    return np.asarray(jacobian(joints + 1j * step * rates, tool).imag / step)


def _link(a: float, d: float, alpha: float, angle: NDArray[Any]) -> NDArray[Any]:
    """Pose of a joint's frame in the one before it, shape [n, 4, 4]."""
    c, s = np.cos(angle), np.sin(angle)
    ca, sa = np.cos(alpha), np.sin(alpha)
    zero, one = np.zeros_like(c), np.ones_like(c)
    rows = [
        [c, -s, zero, a * one],
        [s * ca, c * ca, -sa * one, -d * sa * one],
        [s * sa, c * sa, ca * one, d * ca * one],
        [zero, zero, zero, one],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)
