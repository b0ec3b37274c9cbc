"""A second judge of an export, for tests only: reads the joint file itself and shares no code with the stage.

Own limits (typed in from the specification), own forward kinematics (screws), own differences.
"""

import csv
from pathlib import Path

import numpy as np

from tests.stages.franka_reference import flange, smallest_singular_value

LOW = np.array([-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973])
HIGH = np.array([2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973])
SPEED = np.array([2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61])
ACCELERATION = np.array([15, 7.5, 10, 12.5, 15, 20, 20])
JERK = np.array([7500, 3750, 5000, 6250, 7500, 10000, 10000])
"""Of the Panda."""


def violations(
    folder: Path, *, board: np.ndarray, edge_in_flange: np.ndarray, reach_m: float, fruit: tuple[float, float]
) -> list[str]:
    """What is wrong with the Panda export in the folder, by name; both the cut and the air cut.

    The board's origin in the base frame [m] (blade along y), the edge's centre in the flange's frame [m], half the
    blade [m], and the fruit from .. to along the blade [m].
    """
    found = []
    for name in ("motion_1khz.csv", "air_cut/motion_1khz.csv"):
        with (folder / name).open() as file:
            rows = np.array([[float(v) for v in row] for row in list(csv.reader(file))[1:]])
        time, q = rows[:, 0], rows[:, 1:]
        if np.abs(np.diff(time) - 1e-3).max() > 1e-9:
            found.append(f"{name}: grid")
        rest = np.concatenate([np.repeat(q[:1], 4, axis=0), q, np.repeat(q[-1:], 4, axis=0)])
        for order, limit, share in ((1, SPEED, 0.5), (2, ACCELERATION, 0.6), (3, JERK, 0.2)):
            if (np.abs(np.diff(rest, n=order, axis=0) * 1e3**order) > share * limit).any():
                found.append(f"{name}: derivative {order}")
        if (q - LOW < 0.1).any() or (HIGH - q < 0.1).any():
            found.append(f"{name}: range")
        if (np.abs(q[[1, -2]] - q[[0, -1]]) > 1e-9).any():
            found.append(f"{name}: not at rest at its ends")
        poses = flange(q)
        if smallest_singular_value(q[::50]).min() < 0.08 - 1e-8:
            found.append(f"{name}: near a singularity")
        edge = poses[:, :3, :3] @ edge_in_flange + poses[:, :3, 3] - board
        if np.abs(edge[:, 0]).max() > 1e-6:
            found.append(f"{name}: leaves the plane")
        if edge[:, 2].min() < -1e-6:
            found.append(f"{name}: board")
        if np.linalg.norm(np.diff(edge, axis=0), axis=1).max() / 1e-3 > 0.25 + 1e-9:
            found.append(f"{name}: knife speed")
        low = edge[:, 2] < 0.06
        if (edge[low, 1] - reach_m > fruit[0]).any() or (edge[low, 1] + reach_m < fruit[1]).any():
            found.append(f"{name}: fruit leaves the blade")
        if np.abs(poses[:, :3, 2] - [0.0, 0.0, -1.0]).max() > 1e-6:
            found.append(f"{name}: tilted")
    return found
