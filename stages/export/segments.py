"""The whole edge motion at 1 kHz: rest, approach, rest, cut, rest, retract, rest."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.export.params import ExportParams

PERIOD_S = 1e-3
"""Of the robot's control loop."""
WAYPOINT_STRIDE = 10
"""Samples per waypoint: 100 Hz. The whole motion is a whole number of these."""
CUT = "cut"


@dataclass(frozen=True)
class EdgeMotion:
    """The edge in the cutting frame, one row per millisecond; shape [n, 3] except phase."""

    position: NDArray[np.float64]
    """[m]"""
    velocity: NDArray[np.float64]
    """[m/s]"""
    acceleration: NDArray[np.float64]
    """[m/s²]"""
    force: NDArray[np.float64]
    """Predicted force on the knife [N]."""
    phase: NDArray[np.str_]
    """rest, approach, cut or retract, shape [n]."""

    def __len__(self) -> int:
        return len(self.position)


def whole_motion(cut: EdgeMotion, params: ExportParams, *, lift_m: float = 0.0) -> EdgeMotion:
    """The cut between approach and retract, all of it raised by lift_m [m] (then without force)."""
    first, last = cut.position[0], cut.position[-1]
    top = first[1] + params.approach_height_m
    pieces = [
        _rest(np.array([first[0], top, first[2]]), params.dwell_s),
        _vertical(first, top, first[1], params, "approach"),
        _rest(first, params.dwell_s),
        cut,
        _rest(last, params.dwell_s),
        _vertical(last, last[1], top, params, "retract"),
        _rest(np.array([last[0], top, last[2]]), params.dwell_s),
    ]
    count = sum(map(len, pieces))
    missing = -(count - 1) % WAYPOINT_STRIDE
    pieces.append(_rest(pieces[-1].position[-1], missing * PERIOD_S))
    joined = EdgeMotion(
        *(np.concatenate([getattr(p, name) for p in pieces]) for name in EdgeMotion.__dataclass_fields__)
    )
    if lift_m == 0.0:
        return joined
    return EdgeMotion(
        joined.position + np.array([0.0, lift_m, 0.0]),
        joined.velocity,
        joined.acceleration,
        np.zeros_like(joined.force),
        joined.phase,
    )


def _rest(position: NDArray[np.float64], duration_s: float) -> EdgeMotion:
    count = round(duration_s / PERIOD_S)
    zero = np.zeros((count, 3))
    return EdgeMotion(np.tile(position, (count, 1)), zero, zero, zero, np.full(count, "rest"))


def _vertical(
    place: NDArray[np.float64], start_m: float, end_m: float, params: ExportParams, phase: str
) -> EdgeMotion:
    """A straight jerk-limited move in height at the place, from rest to rest; its ends belong to the neighbours."""
    import ruckig

    generator = ruckig.Ruckig(1, PERIOD_S)
    wanted = ruckig.InputParameter(1)
    wanted.current_position, wanted.target_position = [start_m], [end_m]
    wanted.max_velocity = [params.approach_speed_m_s]
    wanted.max_acceleration = [params.approach_acceleration_m_s2]
    wanted.max_jerk = [params.approach_jerk_m_s3]
    wanted.duration_discretization = ruckig.DurationDiscretization.Discrete
    found = ruckig.Trajectory(1)
    if generator.calculate(wanted, found) not in (ruckig.Result.Working, ruckig.Result.Finished):
        raise InputError(
            f"No {phase} from height {start_m:.4f} m to {end_m:.4f} m was found. Speed, acceleration and jerk of "
            "export.approach_* must allow one. Raise them."
        )
    times = PERIOD_S * np.arange(1, round(found.duration / PERIOD_S))
    height, speed, push = (np.array([found.at_time(t)[i][0] for t in times]) for i in range(3))
    zero = np.zeros((len(times), 3))
    position = np.tile(place, (len(times), 1))
    position[:, 1] = height
    up = np.array([0.0, 1.0, 0.0])
    return EdgeMotion(position, speed[:, None] * up, push[:, None] * up, zero, np.full(len(times), phase))
