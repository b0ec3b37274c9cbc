"""Final draw: strokes along the blade that sink from the cut's end height onto the board.

When the cut ends, the lowest springs still hold, and material below its end height is untouched. A stroke begins and
ends at rest, so it joins the cut smoothly; more follow until the simulated fruit is parted.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim import Model, RecordedMotion, simulate
from disect_sim.result import Result
from stages.optimize.constraints import RATE_HZ, Passage
from stages.optimize.description import OptimizeParams
from stages.optimize.kinematics import Trajectory
from stages.optimize.slicing_cut import LEAST_WAY_M, SlicingCut, Values
from stages.shared.cut import CutOutcome, outcome_of

PARTED = 0.995
"""Fraction of the springs' stiffness that must be gone to end the strokes. The simulator's springs release over a
millimetre, so the last of them keep a little when the edge is on the board.
"""
_USED = 0.9
"""Fraction of the limits of speed and acceleration that a stroke uses."""
_SPEED, _ACCELERATION = 1.875, 5.774
"""Peaks of a quintic step, in units of its mean speed and of distance / time²."""

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class FinalDraw:
    """Motion after the cut; empty if no draw is requested."""

    path: Trajectory
    """Path, one row per millisecond after the cut's last."""
    force: _Array
    """Force on the knife [N], one row per sample of the simulation, shape [samples, 3]."""
    torque: _Array
    """Torque on the knife [N m] over the whole motion, cut and strokes, shape [samples, 3]."""
    strokes: int
    cut_fraction: float
    """Cut fraction at the end of the whole motion."""
    outcome: CutOutcome | None = None
    """Outcome of the whole motion; None without a simulation."""

    @property
    def duration_s(self) -> float:
        """Duration [s]."""
        return len(self.path.position) / RATE_HZ

    @property
    def peak_n(self) -> float:
        """Largest force [N]."""
        return float(np.linalg.norm(self.force, axis=1).max(initial=0.0))


@dataclass(frozen=True)
class Whole:
    """A motion from start to end, final strokes included, with its force."""

    path: Trajectory
    """Path, one row per millisecond."""
    force: _Array
    """Force on the knife [N], shape [samples, 3]."""
    sample_rate_hz: float
    torque: _Array | None = None
    """Torque on the knife about the middle of the edge [N m], shape [samples, 3], where it is known."""

    @property
    def times(self) -> _Array:
        """Times of the path [s]."""
        return np.arange(len(self.path.position)) / RATE_HZ

    @property
    def norm(self) -> _Array:
        """Norm of the force [N], shape [samples]."""
        return np.asarray(np.linalg.norm(self.force, axis=1), float)

    def weights(self, over: str) -> _Array:
        """Return the weight of every sample in a mean over "time" or "depth" (the descent), shape [samples]."""
        count = len(self.force)
        if over == "time":
            return np.full(count, 1.0 / count)
        ends = np.arange(count + 1) / self.sample_rate_hz
        way = np.maximum(0.0, -np.diff(np.interp(ends, self.times, self.path.position[:, 1]))) + LEAST_WAY_M
        return np.asarray(way / way.sum(), float)

    def mean_n(self, over: str) -> float:
        """Return the mean of the norm [N]."""
        return float(self.weights(over) @ self.norm)


@dataclass(frozen=True)
class WholeCut:
    """A whole motion to be simulated, as it is sent to a process."""

    model: Model
    values: Values
    path: Trajectory
    params: OptimizeParams

    def run(self) -> tuple[_Array | None, CutOutcome]:
        """Return the force [N], shape [samples, 3], None if the cut did not finish; and the outcome."""
        result = _simulated(self.model, self.values, self.path, self.params)
        outcome = outcome_of("vertical cut", result, self.model.mesh)
        return (result.force if result.outcome.ok else None), outcome


NO_DRAW = FinalDraw(Trajectory.zeros(0), np.zeros((0, 3)), np.zeros((0, 3)), 0, np.nan)
"""No final draw."""


def final_draw(
    model: Model, values: Values, cut: SlicingCut, variables: _Array, params: OptimizeParams
) -> FinalDraw:
    """Return the strokes after the motion of these variables, as many as needed, at most params.final_strokes.

    All strokes are simulated at once. A simulation that stops in a stroke is repeated without the last one: the
    certificate judges what is left uncut.
    """
    before = cut.trajectory(variables)
    path, ends = Trajectory.zeros(0), [0]
    for _ in range(params.final_strokes):
        last = path.position[-1] if len(path.position) else before.position[-1]
        next_stroke = stroke(last, cut.passage, params)
        next_stroke.turn[:, 0] = before.turn[-1, 0]
        path = joined(path, next_stroke)
        ends.append(len(path.position))
    for strokes in range(params.final_strokes, -1, -1):
        result = _simulated(model, values, joined(before, path.until(ends[strokes])), params)
        if result.outcome.ok or strokes == 0:
            break
    parted = [
        float(result.cut_fraction[_step_after(result, len(before.position) + end, params)])
        for end in ends[: strokes + 1]
    ]
    strokes = next((i for i, share in enumerate(parted) if share >= PARTED), strokes)
    first, last = (round(n / RATE_HZ * cut.sample_rate_hz) for n in (len(before.position) - 1, ends[strokes]))
    end = _step_after(result, len(before.position) + ends[strokes], params)
    return FinalDraw(
        path.until(ends[strokes]),
        result.force[first : first + last],
        result.torque[: first + last],
        strokes,
        parted[strokes],
        outcome_of("optimised cut", result, model.mesh, step=end),
    )


def _step_after(result: Result, rows: int, params: OptimizeParams) -> int:
    """Return the step after `rows` rows of the motion, or the last one if the simulation stopped before."""
    step = int(np.ceil((rows - 1) / RATE_HZ / params.cut.dt_s - 1e-6))
    return min(step, len(result.cut_fraction) - 1)


def stroke(start: _Array, passage: Passage, params: OptimizeParams) -> Trajectory:
    """Return a stroke from a point [m], shape [3], across the fruit to the other side as far as limits and time allow.

    It sinks to params.final_height_m in its first half, so that the second half runs along the board.
    """
    drop = max(0.0, float(start[1]) - params.final_height_m)
    sink_s = max(
        drop / params.cut.speed_m_s,
        np.sqrt(_ACCELERATION * drop / (_USED * params.max_acceleration_vertical_m_s2)),
    )
    grain = max(params.cut.dt_s, 1.0 / RATE_HZ)
    duration = grain * np.ceil(max(params.final_stroke_s, 2.0 * sink_s) / grain - 1e-6)
    side = np.sign(float(start[2]) - passage.z_m) or 1.0
    aside = passage.lateral_limit_m + side * (float(start[2]) - passage.z_m)
    speed = np.sqrt(max(0.0, (_USED * params.max_speed_m_s) ** 2 - (2.0 * _SPEED * drop / duration) ** 2))
    way = min(
        max(0.0, aside),
        speed * duration / _SPEED,
        _USED * params.max_acceleration_along_m_s2 * duration**2 / _ACCELERATION,
    )
    times = np.arange(1, round(duration * RATE_HZ) + 1) / RATE_HZ
    path = Trajectory.zeros(len(times))
    path.position[:, 0] = start[0]
    for axis, distance, seconds in ((1, -drop, 0.5 * duration), (2, -side * way, duration)):
        steps, rates, pushes = _quintic(np.minimum(times / seconds, 1.0))
        path.position[:, axis] = start[axis] + distance * steps
        path.velocity[:, axis - 1] = distance * rates / seconds
        path.acceleration[:, axis - 1] = distance * pushes / seconds**2
    return path


def joined(first: Trajectory, second: Trajectory) -> Trajectory:
    """Concatenate two trajectories."""
    return Trajectory(
        np.concatenate([first.position, second.position]),
        np.concatenate([first.velocity, second.velocity]),
        np.concatenate([first.acceleration, second.acceleration]),
        np.concatenate([first.turn, second.turn]),
    )


def _simulated(model: Model, values: Values, path: Trajectory, params: OptimizeParams) -> Result:
    """Simulate the whole motion."""
    times = np.arange(len(path.position)) / RATE_HZ
    steps = int(np.ceil(times[-1] / params.cut.dt_s - 1e-6))
    pose, velocity = path.position, np.concatenate([np.zeros((len(times), 1)), path.velocity], axis=1)
    if path.turn.any():
        pose = np.concatenate([pose, path.turn[:, :1]], axis=1)
        velocity = np.concatenate([velocity, path.turn[:, 1:2]], axis=1)
    return simulate(
        model,
        RecordedMotion(times, pose, velocities=velocity),
        values,
        duration=steps * params.cut.dt_s,
        dt=params.cut.dt_s,
        sample_rate_hz=min(RATE_HZ, 1.0 / params.cut.dt_s),
        force_limit_n=params.cut.force_limit_n,
    )


def _quintic(s: _Array) -> tuple[_Array, _Array, _Array]:
    """Return a step from 0 to 1 over s in [0, 1], at rest at both ends, and its two derivatives in s."""
    return (
        s**3 * (10.0 + s * (6.0 * s - 15.0)),
        30.0 * s**2 * (1.0 - s) ** 2,
        60.0 * s * (1.0 - s) * (1.0 - 2.0 * s),
    )
