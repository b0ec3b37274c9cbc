"""The cell: where the board stands in front of the robot, and how the knife hangs on its flange.

Frames: O is the robot's base (z up), C the cutting frame on the board (x across the cut, y up, z along the blade),
F the flange, E the knife's edge (its centre; axes parallel to C during the whole motion). A_T_B maps B to A.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.export.params import ExportParams


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


def cell_of(params: ExportParams) -> Cell:
    """The cell that the parameters describe."""
    knife = params.cut.blade
    return Cell(
        o_t_c=_upright(np.array(params.board_position_m), np.deg2rad(params.blade_yaw_deg), up=1.0),
        f_t_e=_upright(np.array(params.edge_offset_m), np.deg2rad(params.blade_angle_deg), up=-1.0),
        knife=params.cut.knife_label,
        blade_length_m=knife.length_m,
        blade_height_m=knife.height_m,
        fixture_low_m=np.array(params.fixture_low_m),
        fixture_high_m=np.array(params.fixture_high_m),
        tool_mass_kg=params.tool_mass_kg,
        tool_com_m=np.array(params.tool_com_m),
    )


def flange_targets(cell: Cell, edge: NDArray[np.float64]) -> NDArray[np.float64]:
    """Flange poses in the base frame, shape [n, 4, 4], for edge positions in the cutting frame [m], shape [n, 3]."""
    c_t_e = np.broadcast_to(np.eye(4), (len(edge), 4, 4)).copy()
    c_t_e[:, :3, 3] = edge
    return cell.o_t_c @ c_t_e @ np.linalg.inv(cell.f_t_e)


def _upright(origin: NDArray[np.float64], angle: float, *, up: float) -> NDArray[np.float64]:
    """A frame whose y axis is `up` times the outer z axis and whose z axis lies at an angle [rad] from outer x."""
    along = np.array([np.round(np.cos(angle), 15), np.round(np.sin(angle), 15), 0.0])
    along /= np.linalg.norm(along)
    upward = np.array([0.0, 0.0, up])
    pose = np.eye(4)
    pose[:3, :3] = np.stack([np.cross(upward, along), upward, along], axis=1)
    pose[:3, 3] = origin
    return pose
