"""Forward kinematics and Jacobian of a serial arm of turning joints, from its Denavit–Hartenberg table."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class LinkTable:
    """Craig's (modified) Denavit–Hartenberg parameters, one number per joint, shape [joint_count] each."""

    a_m: NDArray[np.float64]
    d_m: NDArray[np.float64]
    alpha_rad: NDArray[np.float64]
    theta_rad: NDArray[np.float64]
    """Added to each joint's angle."""
    flange_m: float
    """From the last joint's frame to the flange, along its axis."""

    def __len__(self) -> int:
        return len(self.a_m)


def joint_poses(table: LinkTable, joints: NDArray[Any]) -> NDArray[Any]:
    """Poses of the joint frames in the base frame, shape [n, joint_count, 4, 4], for joints [rad], [n, joint_count].

    Complex joints are allowed: the imaginary part then is a derivative (complex step).
    """
    pose = np.broadcast_to(np.eye(4), (len(joints), 4, 4))
    poses = []
    rows = zip(table.a_m, table.d_m, table.alpha_rad, table.theta_rad, joints.T, strict=True)
    for a, d, alpha, offset, angle in rows:
        pose = pose @ _link(a, d, alpha, angle + offset)
        poses.append(pose)
    return np.stack(poses, axis=1)


def flange_pose(table: LinkTable, joints: NDArray[Any]) -> NDArray[Any]:
    """Pose of the flange in the base frame [m], shape [n, 4, 4], for joints [rad], shape [n, joint_count]."""
    return joint_poses(table, joints)[:, -1] @ _flange(table)


def jacobian(table: LinkTable, joints: NDArray[Any], tool: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Base-frame Jacobian of the tool's origin, linear rows above angular ones, shape [n, 6, joint_count].

    Args:
        table: The arm.
        joints: Joint angles [rad], shape [n, joint_count].
        tool: Pose of the tool in the flange's frame [m], shape [4, 4]; None takes the flange.
    """
    poses = joint_poses(table, joints)
    end = poses[:, -1] @ _flange(table) @ (np.eye(4) if tool is None else tool)
    axes = poses[:, :, :3, 2]
    arms = end[:, None, :3, 3] - poses[:, :, :3, 3]
    return np.concatenate([np.cross(axes, arms), axes], axis=2).transpose(0, 2, 1)


def jacobian_rate(
    table: LinkTable,
    joints: NDArray[np.float64],
    rates: NDArray[np.float64],
    tool: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Time derivative of the Jacobian at joint rates [rad/s], shape [n, 6, joint_count].

    By complex step, which has no cancellation: exact to rounding.
    """
    step = 1e-30
    return np.asarray(jacobian(table, joints + 1j * step * rates, tool).imag / step)


def _flange(table: LinkTable) -> NDArray[np.float64]:
    offset = np.eye(4)
    offset[2, 3] = table.flange_m
    return offset


def _link(a: float, d: float, alpha: float, angle: NDArray[Any]) -> NDArray[Any]:
    """Pose of a joint's frame in the one before it, shape [n, 4, 4]."""
    c, s = np.cos(angle), np.sin(angle)
    ca, sa = np.cos(alpha), np.sin(alpha)
    pose = np.zeros((len(angle), 4, 4), c.dtype)
    pose[:, 0, 0], pose[:, 0, 1], pose[:, 0, 3] = c, -s, a
    pose[:, 1, 0], pose[:, 1, 1], pose[:, 1, 2], pose[:, 1, 3] = s * ca, c * ca, -sa, -d * sa
    pose[:, 2, 0], pose[:, 2, 1], pose[:, 2, 2], pose[:, 2, 3] = s * sa, c * sa, ca, d * ca
    pose[:, 3, 3] = 1.0
    return pose
