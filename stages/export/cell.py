"""The cell: position of the board in front of the robot, mounting of the knife on the flange, and collision geometry.

Frames: O is the robot's base (z up), C the cutting frame on the board (x across the cut, y up, z along the blade),
F the flange, E the knife's edge (its centre; axes parallel to C, or turned about x by the motion's pitch). A_T_B maps B
to A.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stages.export.description import ExportParams
from stages.shared.knives.knife_file import edge_points
from stages.shared.robots.robot import Robot, flange_pose, joint_poses


@dataclass(frozen=True)
class Cell:
    """Placement, tool and blade."""

    o_t_c: NDArray[np.float64]
    """Pose of the cutting frame in the base frame [m], shape [4, 4]."""
    f_t_e: NDArray[np.float64]
    """Pose of the edge in the flange's frame [m], shape [4, 4]."""
    knife: str
    blade_length_m: float
    blade_height_m: float
    fixture_low_m: NDArray[np.float64]
    """Corner of the fixture's box in the edge's frame [m], shape [3]."""
    fixture_high_m: NDArray[np.float64]
    tool_mass_kg: float
    tool_com_m: NDArray[np.float64]
    """Centre of mass of knife and fixture in the flange's frame [m], shape [3]."""
    edge_m: NDArray[np.float64] = field(default_factory=lambda: np.zeros((0, 3)))
    """Points of the edge from end to end in the edge's frame [m], shape [n, 3]; of a straight one its ends."""

    @property
    def level(self) -> bool:
        """Whether the edge is straight and along the edge's frame."""
        return not self.edge_m[:, 1].any()


def cell_of(params: ExportParams) -> Cell:
    """Return the cell described by the parameters."""
    tool = params.cut.tool
    return Cell(
        o_t_c=_upright(np.array(params.board_position_m), np.deg2rad(params.blade_yaw_deg), up=1.0),
        f_t_e=_upright(np.array(params.edge_offset_m), np.deg2rad(params.blade_angle_deg), up=-1.0),
        knife=params.cut.knife_label,
        blade_length_m=tool.blade.length_m,
        blade_height_m=tool.blade.height_m,
        fixture_low_m=np.array(params.fixture_low_m),
        fixture_high_m=np.array(params.fixture_high_m),
        tool_mass_kg=tool.mass_kg if params.tool_mass_kg is None else params.tool_mass_kg,
        tool_com_m=np.array(tool.com_m if params.tool_com_m is None else params.tool_com_m),
        edge_m=edge_points(tool.blade),
    )


def flange_targets(
    cell: Cell, edge: NDArray[np.float64], pitch: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Return flange poses in the base frame, shape [n, 4, 4], for poses of the edge in the cutting frame.

    edge: positions [m], shape [n, 3]. pitch: angles about x [rad], shape [n]; None: upright.
    """
    c_t_e = np.broadcast_to(np.eye(4), (len(edge), 4, 4)).copy()
    if pitch is not None:
        c_t_e[:, :3, :3] = pitched(pitch)
    c_t_e[:, :3, 3] = edge
    return cell.o_t_c @ c_t_e @ np.linalg.inv(cell.f_t_e)


def pitched(pitch: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rotations about x, shape [n, 3, 3]: positive angles [rad] lower what lies at +z."""
    turn = np.broadcast_to(np.eye(3), (len(pitch), 3, 3)).copy()
    turn[:, 1, 1] = turn[:, 2, 2] = np.cos(pitch)
    turn[:, 1, 2], turn[:, 2, 1] = -np.sin(pitch), np.sin(pitch)
    return turn


def _upright(origin: NDArray[np.float64], angle: float, *, up: float) -> NDArray[np.float64]:
    """Return a frame with its y axis along `up` times the outer z axis and its z axis at an angle [rad] from outer
    x.
    """
    along = np.array([np.round(np.cos(angle), 15), np.round(np.sin(angle), 15), 0.0])
    along /= np.linalg.norm(along)
    upward = np.array([0.0, 0.0, up])
    pose = np.eye(4)
    pose[:3, :3] = np.stack([np.cross(upward, along), upward, along], axis=1)
    pose[:3, 3] = origin
    return pose


# Links, knife and fixture as capsules and corners in the base frame


def link_heights(robot: Robot, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lowest point of the links in the base frame [m], shape [n], for joints [n, joint_count]."""
    ends = _link_ends(robot, q)
    radius = np.array([capsule.radius_m for capsule in robot.capsules])
    return np.asarray((ends[..., 2].min(axis=2) - radius).min(axis=1))


def _link_ends(robot: Robot, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the ends of the links' capsules in the base frame [m], shape [n, capsule_count, 2, 3]."""
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
    """Return the smallest gap between the arm's base and its wrist, knife and fixture [m].

    The base is an upright column: the gap is horizontal below its top, and measured to its rounded top above.
    """
    ends = _link_ends(robot, q)
    gaps = [
        _from_column(robot, ends[:, i].reshape(-1, 3)) - capsule.radius_m
        for i, capsule in enumerate(robot.capsules)
        if capsule.link >= robot.wrist
    ]
    gaps.append(_from_column(robot, tool_corners(robot, cell, q).reshape(-1, 3)))
    return float(min(gap.min() for gap in gaps))


def tool_corners(robot: Robot, cell: Cell, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the corners of the blade's and the fixture's box in the base frame [m], shape [n, 16, 3]."""
    poses = flange_pose(robot.table, q) @ cell.f_t_e
    corners = np.concatenate(
        [corners_of(*blade_box(cell)), corners_of(cell.fixture_low_m, cell.fixture_high_m)]
    )
    return np.einsum("nij,cj->nci", poses[:, :3, :3], corners) + poses[:, None, :3, 3]


def blade_box(cell: Cell) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return low and high corner of the blade in the edge's frame [m]; its thickness is ignored."""
    half, up = 0.5 * cell.blade_length_m, np.array([0.0, cell.blade_height_m, 0.0])
    low, high = np.array([0.0, 0.0, -half]), np.array([0.0, 0.0, half])
    return np.minimum(low, cell.edge_m.min(axis=0)), np.maximum(high, cell.edge_m.max(axis=0)) + up


def corners_of(low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the corners of a box, shape [8, 3]."""
    pick = np.array([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)])
    return np.where(pick == 1, high, low)


def _from_column(robot: Robot, points: NDArray[np.float64]) -> NDArray[np.float64]:
    top = float(robot.base.to_m[2])
    over = np.maximum(points[:, 2] - top, 0.0)
    return np.asarray(np.sqrt((points[:, :2] ** 2).sum(axis=1) + over**2) - robot.base.radius_m)
