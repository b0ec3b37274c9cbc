"""Where the knife must go: from above the fruit down to the board, with the fruit under the blade."""

from dataclasses import dataclass

import numpy as np

from disect_sim.cut_mesh import CutMesh
from disect_sim.errors import InputError
from stages.optimize.params import OptimizeParams

RATE_HZ = 1000.0
"""Rate of the robot's controller, at which limits are checked and waypoints written."""


@dataclass(frozen=True)
class Passage:
    """The cut's frame, in which every motion of the same duration is compared."""

    start_m: float
    """Height of the edge at the start."""
    end_m: float
    """Height of the edge at the end: the clearance to the board."""
    z_m: float
    """Middle of the fruit along the blade."""
    lateral_limit_m: float
    """How far the knife may slide from z_m with the whole fruit still under the blade."""
    duration_s: float


def passage_of(mesh: CutMesh, blade_m: float, params: OptimizeParams) -> Passage:
    """The passage over the middle of a fruit; its duration is a whole number of steps and of milliseconds."""
    nodes = mesh.nodes[~mesh.node_ghost]
    low, high = nodes.min(axis=0), nodes.max(axis=0)
    length = float(high[2] - low[2])
    lateral = 0.5 * (blade_m - length) - params.blade_overlap_m
    if lateral <= 0.0:
        raise InputError(
            f"optimize: the fruit is {length:.3f} m long along the blade of {blade_m:g} m. It must fit under it with "
            f"{params.blade_overlap_m:g} m to spare on both sides. Take a longer knife (cut.knife) or turn the "
            "fruit (halve.angle_deg)."
        )
    if not params.cut.board_clearance_m < high[1]:
        raise InputError(
            f"cut.board_clearance_m is {params.cut.board_clearance_m:g} m. It must be less than the fruit's height, "
            f"{high[1]:.4g} m, or nothing is cut. Lower it."
        )
    start = float(high[1]) + params.cut.start_clearance_m
    grain = max(params.cut.dt_s, 1.0 / RATE_HZ)
    duration = grain * np.ceil((start - params.cut.board_clearance_m) / params.cut.speed_m_s / grain)
    return Passage(
        start,
        params.cut.board_clearance_m,
        float(0.5 * (low[2] + high[2])),
        lateral,
        float(round(duration, 9)),
    )
