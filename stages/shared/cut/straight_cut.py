"""The straight vertical cut that forces are compared on."""

import numpy as np

from disect_sim.cut_mesh import CutMesh
from disect_sim.errors import InputError
from disect_sim.motions import ConstantVelocity
from stages.shared.cut.params import CutParams


def straight_cut(mesh: CutMesh, params: CutParams) -> tuple[ConstantVelocity, float]:
    """The motion over the fruit's z centre, and its duration [s], a whole number of steps."""
    material_nodes = mesh.nodes[~mesh.node_ghost]
    low, high = material_nodes.min(axis=0), material_nodes.max(axis=0)
    start = float(high[1]) + params.start_clearance_m
    travel = start - params.board_clearance_m
    if not params.board_clearance_m < high[1]:
        raise InputError(
            f"cut.board_clearance_m is {params.board_clearance_m:g} m. It must be less than the fruit's height, "
            f"{high[1]:.4g} m, or nothing is cut. Lower it."
        )
    duration = params.dt_s * int(np.ceil(travel / params.speed_m_s / params.dt_s - 1e-9))
    motion = ConstantVelocity(
        initial_y=start, velocity_y=-travel / duration, z=float(0.5 * (low[2] + high[2]))
    )
    return motion, duration
