"""The arm in the replay: its links as capsules and the knife's fixture, in the cutting frame, frame by frame."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.shared.kinematics import joint_poses
from stages.shared.robots.robot import load_robot

CUT = "cut"
DIGITS = 4
"""Of the places: tenths of a millimetre."""


def arm_of(document: dict[str, Any], times_s: list[float]) -> dict[str, Any] | None:
    """What the page draws of the arm at times of the cut [s]; None if the document has no motion of a known robot.

    `ends` has shape [frames, capsules, 2, 3] and `box` is the fixture's, relative to the knife's edge; all in metres in
    the cutting frame. The first capsule is the base.
    """
    try:
        robot = load_robot(document["robot"]["name"])
        start = next(p["start_s"] for p in document["timing"]["phases"] if p["phase"] == CUT)
        rows = document["waypoints"]
        known = np.array([row["time_s"] for row in rows], float)
        joints = np.array([row["q_rad"] for row in rows], float)
        o_t_c = np.array(document["frames"]["O_T_C"], float)
        box = [document["tool"][key] for key in ("fixture_low_m", "fixture_high_m")]
        at = np.array(times_s) + start
        q = np.stack([np.interp(at, known, column) for column in joints.T], axis=1)
        poses = joint_poses(robot.table, q)
    except (KeyError, TypeError, ValueError, IndexError, StopIteration, InputError):
        return None
    still = np.broadcast_to(np.eye(4), (len(q), 4, 4))
    capsules = (robot.base, *robot.capsules)
    ends = [
        [_moved(still if c.link == 0 else poses[:, c.link - 1], end) for end in (c.from_m, c.to_m)]
        for c in capsules
    ]
    placed = (np.moveaxis(np.array(ends), 2, 0) - o_t_c[:3, 3]) @ o_t_c[:3, :3]
    return {
        "title": robot.title,
        "ends": np.round(placed, DIGITS).tolist(),
        "radius": [c.radius_m for c in capsules],
        "box": box,
    }


def _moved(poses: NDArray[np.float64], place: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(poses[:, :3, :3] @ place + poses[:, :3, 3])
