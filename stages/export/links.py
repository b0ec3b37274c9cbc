"""Where the arm's links, the knife and its fixture are: capsules and corners in the base frame."""

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import Cell
from stages.shared.kinematics import flange_pose, joint_poses
from stages.shared.robots.robot import Robot


def link_heights(robot: Robot, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Lowest point of the links in the base frame [m], shape [n], for joints [n, joint_count]."""
    ends = link_ends(robot, q)
    radius = np.array([capsule.radius_m for capsule in robot.capsules])
    return np.asarray((ends[..., 2].min(axis=2) - radius).min(axis=1))


def link_ends(robot: Robot, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ends of the links' capsules in the base frame [m], shape [n, capsule_count, 2, 3]."""
    poses = joint_poses(robot.table, q)
    ends = []
    for capsule in robot.capsules:
        pose = poses[:, capsule.link - 1]
        ends.append(
            np.stack(
                [pose[:, :3, :3] @ end + pose[:, :3, 3] for end in (capsule.from_m, capsule.to_m)], axis=1
            )
        )
    return np.stack(ends, axis=1)


def base_distance(robot: Robot, cell: Cell, q: NDArray[np.float64]) -> float:
    """Smallest gap between the arm's base and its wrist, knife and fixture [m].

    The base is an upright column, so the gap is sideways below its top, and straight to its rounded top above.
    """
    ends = link_ends(robot, q)
    gaps = [
        _from_column(robot, ends[:, i].reshape(-1, 3)) - capsule.radius_m
        for i, capsule in enumerate(robot.capsules)
        if capsule.link >= robot.wrist
    ]
    gaps.append(_from_column(robot, tool_corners(robot, cell, q).reshape(-1, 3)))
    return float(min(gap.min() for gap in gaps))


def tool_corners(robot: Robot, cell: Cell, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Corners of the blade's and the fixture's box in the base frame [m], shape [n, 16, 3]."""
    poses = flange_pose(robot.table, q) @ cell.f_t_e
    corners = np.concatenate([_corners(*blade_box(cell)), _corners(cell.fixture_low_m, cell.fixture_high_m)])
    return np.einsum("nij,cj->nci", poses[:, :3, :3], corners) + poses[:, None, :3, 3]


def blade_box(cell: Cell) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Low and high corner of the blade in the edge's frame [m]; its thickness is left out."""
    half = 0.5 * cell.blade_length_m
    return np.array([0.0, 0.0, -half]), np.array([0.0, cell.blade_height_m, half])


def _corners(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    pick = np.array([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)])
    return np.where(pick == 1, high, low)


def _from_column(robot: Robot, points: NDArray[np.float64]) -> NDArray[np.float64]:
    top = float(robot.base.to_m[2])
    over = np.maximum(points[:, 2] - top, 0.0)
    return np.asarray(np.sqrt((points[:, :2] ** 2).sum(axis=1) + over**2) - robot.base.radius_m)
