"""Hard constraints of the motion, for MDMM and as residuals in physical units."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from disect_sim import Knife
from disect_sim.cut_mesh import CutMesh
from stages.optimize.description import OptimizeParams
from stages.optimize.kinematics import Trajectory
from stages.runtime.errors import InputError

# Passage of the knife: from above the fruit down to the board, with the fruit under the blade


RATE_HZ = 1000.0
"""Rate of the robot's controller, at which limits are checked and waypoints written."""


@dataclass(frozen=True)
class Passage:
    """Common frame of all motions of the same duration."""

    start_m: float
    """Height of the edge at the start."""
    end_m: float
    """Height of the edge at the end: the clearance to the board."""
    z_m: float
    """Middle of the fruit along the blade."""
    lateral_limit_m: float
    """Largest displacement of the knife from z_m with the whole fruit still under the blade."""
    duration_s: float
    half_length_m: float = 0.0
    """Half the fruit's length along the blade."""
    blade: "_Blade | None" = None
    """_Blade that turns, is tilted or curved; None: the edge is straight and level at all times."""


@dataclass(frozen=True)
class _Blade:
    """Points of the blade in the knife's frame, (height, place along the blade) [m], each of shape [count, 2]."""

    edge: "_Array"
    """Edge from end to end."""
    corners: "_Array"
    """Edge and spine at both ends: where speed and acceleration are largest."""
    fixture: "_Array"
    """Low far corner of the fixture, at the heel (+z)."""
    tilt_rad: float
    """Tilt in the holder, added to the pitch."""

    def offsets(self, points: "_Array", pitch: "_Array") -> tuple["_Array", "_Array"]:
        """Return height and place along the cut of points over the knife's origin [m], shape [n, count]."""
        c, s = np.cos(pitch + self.tilt_rad)[:, None], np.sin(pitch + self.tilt_rad)[:, None]
        return points[:, 0] * c - points[:, 1] * s, points[:, 0] * s + points[:, 1] * c


_EDGE_POINTS = 33
_FIXTURE_CLEAR_M = 3.0e-3
"""Least height of the fixture above the board [m]: as the certificate's export.fixture_clearance_m."""


def _blade_of(knife: Knife, params: OptimizeParams) -> _Blade | None:
    straight = knife.belly_radius_m is None and not knife.edge_curve
    if straight and knife.tilt_deg == 0.0 and not params.rocking:
        return None
    z = np.linspace(-0.5, 0.5, _EDGE_POINTS) * knife.length_m
    edge = np.stack([knife.edge_height_m(z), z], axis=1)
    spine = np.array([[knife.height_m, z[0]], [knife.height_m, z[-1]]])
    fixture = np.array([params.fixture_corner_m])
    return _Blade(edge, np.concatenate([edge[[0, -1]], spine]), fixture, knife.tilt_rad)


def passage_of(mesh: CutMesh, knife: Knife, params: OptimizeParams) -> Passage:
    """Return the passage over the middle of a fruit; its duration is a whole number of steps and of milliseconds."""
    blade_m = knife.length_m
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
    wanted = params.duration_s or (start - params.cut.board_clearance_m) / params.cut.speed_m_s
    duration = grain * np.ceil(wanted / grain - 1e-9)
    return Passage(
        start,
        params.cut.board_clearance_m,
        float(0.5 * (low[2] + high[2])),
        lateral,
        float(round(duration, 9)),
        0.5 * length,
        _blade_of(knife, params),
    )


_Array = NDArray[np.float64]
_Y, _Z = 0, 1
"""Columns of velocities and accelerations; in positions they are one further."""


@dataclass(frozen=True)
class _Reading:
    """Value of a rule for a trajectory. It is taken at one time, so its derivatives are those of one row."""

    value: float
    quantity: str
    """Field of the trajectory."""
    row: int
    slope: _Array
    """Derivatives of the value in that row of that field."""
    turn: _Array = field(default_factory=lambda: np.zeros(3))
    """Derivatives in that row of the field `turn`."""


@dataclass(frozen=True)
class _Rule:
    """One constraint: a measure and its limit."""

    name: str
    """Name with the unit of its measure."""
    unit: float
    """Scale of the optimiser, so that all residuals are comparable."""
    measure: Callable[[Trajectory], _Reading]
    limit: float
    equality: bool
    tolerance: float
    """Residual up to which a motion counts as feasible, in the measure's unit."""

    def residual(self, trajectory: Trajectory) -> float:
        """Return the violation of the rule, >= 0, in the measure's unit."""
        beyond = self.measure(trajectory).value - self.limit
        return abs(beyond) if self.equality else max(0.0, beyond)


def rules_of(passage: Passage, params: OptimizeParams) -> tuple[_Rule, ...]:
    """Return the rules: end height, fruit under the blade, speed, acceleration, board clearance; maxima over all t."""
    p = passage
    if p.blade is not None:
        return _turning_rules(p, p.blade, params)
    return (
        _Rule("end_height_m", 0.01, _last_height, p.end_m, True, 0.5e-3),
        _Rule("lateral_m", 0.01, lambda t: _lateral(t, p.z_m), p.lateral_limit_m, False, 0.5e-3),
        _Rule("speed_m_s", 0.1, _fastest, params.max_speed_m_s, False, 1e-3),
        _Rule(
            "acceleration_along_m_s2",
            2.0,
            lambda t: _largest_acceleration(t, _Z),
            params.max_acceleration_along_m_s2,
            False,
            0.05,
        ),
        _Rule(
            "acceleration_vertical_m_s2",
            1.0,
            lambda t: _largest_acceleration(t, _Y),
            params.max_acceleration_vertical_m_s2,
            False,
            0.05,
        ),
        _Rule("board_m", 0.01, lambda t: _below(t, p.end_m), 0.0, False, 0.5e-3),
    )


def _last_height(t: Trajectory) -> _Reading:
    row = len(t.position) - 1
    return _Reading(float(t.position[row, 1]), "position", row, np.array([0.0, 1.0, 0.0]))


def _lateral(t: Trajectory, middle_m: float) -> _Reading:
    beside = t.position[:, 2] - middle_m
    row = int(np.argmax(np.abs(beside)))
    return _Reading(abs(float(beside[row])), "position", row, np.array([0.0, 0.0, np.sign(beside[row])]))


def _fastest(t: Trajectory) -> _Reading:
    row = int(np.argmax((t.velocity**2).sum(axis=1)))
    speed = float(np.sqrt((t.velocity[row] ** 2).sum() + 1e-12))
    return _Reading(speed, "velocity", row, t.velocity[row] / speed)


def _largest_acceleration(t: Trajectory, column: int) -> _Reading:
    row = int(np.argmax(np.abs(t.acceleration[:, column])))
    value, slope = float(t.acceleration[row, column]), np.zeros(2)
    slope[column] = np.sign(value)
    return _Reading(abs(value), "acceleration", row, slope)


def _below(t: Trajectory, end_m: float) -> _Reading:
    row = int(np.argmin(t.position[:, 1]))
    return _Reading(end_m - float(t.position[row, 1]), "position", row, np.array([0.0, -1.0, 0.0]))


# The same rules for a blade that turns, is tilted or curved: of its whole edge and of its corners


_ENDS = {"tip": 0, "heel": -1}
"""Point of _Blade.edge by the name of the end: the fixture is at the heel."""


def _turning_rules(p: Passage, blade: _Blade, params: OptimizeParams) -> tuple[_Rule, ...]:
    along, vertical = params.max_acceleration_along_m_s2, params.max_acceleration_vertical_m_s2
    fixture = p.end_m + _FIXTURE_CLEAR_M
    rules: tuple[_Rule, ...] = (
        _Rule("end_height_m", 0.01, lambda t: _end_height(t, blade), p.end_m, True, 0.5e-3),
        _Rule("lateral_m", 0.01, lambda t: _uncovered(t, blade, p.z_m), p.lateral_limit_m, False, 0.5e-3),
        _Rule("speed_m_s", 0.1, lambda t: _fastest_corner(t, blade), params.max_speed_m_s, False, 1e-3),
        _Rule("acceleration_along_m_s2", 2.0, lambda t: _corner_push(t, blade, _Z), along, False, 0.05),
        _Rule("acceleration_vertical_m_s2", 1.0, lambda t: _corner_push(t, blade, _Y), vertical, False, 0.05),
        _Rule("board_m", 0.01, lambda t: _deepest(t, blade, blade.edge, p.end_m), 0.0, False, 0.5e-3),
    )
    if not params.rocking:
        return rules
    largest = float(np.radians(params.max_pitch_deg))
    rules += (
        _Rule("pitch_rad", 0.1, lambda t: _steepest(t, blade), largest, False, 2e-3),
        _Rule("fixture_m", 0.01, lambda t: _deepest(t, blade, blade.fixture, fixture), 0.0, False, 0.5e-3),
    )
    if params.on_board is None:
        return rules
    end = blade.edge[[_ENDS[params.on_board]]]
    return (*rules, _Rule("on_board_m", 0.01, lambda t: _highest(t, blade, end, p.end_m), 0.0, False, 1e-3))


def _height_reading(t: Trajectory, row: int, up: float, along: float, base: float, sign: float) -> _Reading:
    """Return sign × (height of a point of the blade - base); up, along: its offsets from the knife's origin."""
    value = sign * (float(t.position[row, 1]) + up - base)
    slope, turn = np.array([0.0, sign, 0.0]), np.array([-sign * along, 0.0, 0.0])
    return _Reading(value, "position", row, slope, turn)


def _end_height(t: Trajectory, blade: _Blade) -> _Reading:
    """Height of the lowest point of the edge at the end."""
    up, along = blade.offsets(blade.edge, t.turn[-1:, 0])
    point = int(up[0].argmin())
    return _height_reading(t, len(t.position) - 1, float(up[0, point]), float(along[0, point]), 0.0, 1.0)


def _deepest(t: Trajectory, blade: _Blade, points: _Array, limit_m: float) -> _Reading:
    """Largest depth of the points below a height."""
    up, along = blade.offsets(points, t.turn[:, 0])
    row, point = np.unravel_index(int((t.position[:, 1:2] + up).argmin()), up.shape)
    return _height_reading(t, int(row), float(up[row, point]), float(along[row, point]), limit_m, -1.0)


def _highest(t: Trajectory, blade: _Blade, points: _Array, limit_m: float) -> _Reading:
    """Largest height of the points above a height."""
    up, along = blade.offsets(points, t.turn[:, 0])
    row, point = np.unravel_index(int((t.position[:, 1:2] + up).argmax()), up.shape)
    return _height_reading(t, int(row), float(up[row, point]), float(along[row, point]), limit_m, 1.0)


def _uncovered(t: Trajectory, blade: _Blade, middle_m: float) -> _Reading:
    """Displacement of the knife that would cover the fruit as little as its corners do; level: |z - middle|."""
    up, along = blade.offsets(blade.corners, t.turn[:, 0])
    side = np.sign(blade.corners[:, 1])
    short = np.abs(blade.corners[:, 1]) - side * (t.position[:, 2:] - middle_m + along)
    row, point = np.unravel_index(int(short.argmax()), short.shape)
    slope = np.array([0.0, 0.0, -side[point]])
    turn = np.array([-side[point] * up[row, point], 0.0, 0.0])
    return _Reading(float(short[row, point]), "position", int(row), slope, turn)


def _fastest_corner(t: Trajectory, blade: _Blade) -> _Reading:
    """Speed of the fastest corner: velocity + rate × arm."""
    up, along = blade.offsets(blade.corners, t.turn[:, 0])
    rate = t.turn[:, 1:2]
    vy, vz = t.velocity[:, :1] - rate * along, t.velocity[:, 1:] + rate * up
    row, point = np.unravel_index(int((vy**2 + vz**2).argmax()), up.shape)
    y, z, u, a, w = vy[row, point], vz[row, point], up[row, point], along[row, point], rate[row, 0]
    speed = float(np.sqrt(y * y + z * z + 1e-12))
    turn = np.array([-w * (u * y + a * z), u * z - a * y, 0.0]) / speed
    return _Reading(speed, "velocity", int(row), np.array([y, z]) / speed, turn)


def _corner_push(t: Trajectory, blade: _Blade, column: int) -> _Reading:
    """Largest acceleration of a corner along one axis: acceleration + angular acceleration × arm - rate² arm."""
    up, along = blade.offsets(blade.corners, t.turn[:, 0])
    rate, push = t.turn[:, 1:2], t.turn[:, 2:3]
    # d(up)/d(pitch) = -along, d(along)/d(pitch) = up
    across, outward = (-along, up) if column == _Y else (up, along)
    pushed = t.acceleration[:, column : column + 1] + push * across - rate**2 * outward
    row, point = np.unravel_index(int(np.abs(pushed).argmax()), pushed.shape)
    value, slope = float(pushed[row, point]), np.zeros(2)
    sign = float(np.sign(value))
    slope[column] = sign
    w, b, u, a = rate[row, 0], push[row, 0], up[row, point], along[row, point]
    by_pitch = -b * u + w * w * a if column == _Y else -b * a - w * w * u
    turn = sign * np.array([by_pitch, -2.0 * w * outward[row, point], across[row, point]])
    return _Reading(abs(value), "acceleration", int(row), slope, turn)


def _steepest(t: Trajectory, blade: _Blade) -> _Reading:
    """Largest size of the edge's inclination."""
    inclined = t.turn[:, 0] + blade.tilt_rad
    row = int(np.abs(inclined).argmax())
    turn = np.array([np.sign(inclined[row]), 0.0, 0.0])
    return _Reading(abs(float(inclined[row])), "position", row, np.zeros(3), turn)


class Constraints:
    """The rules under MDMM (Platt and Barr 1988): multipliers λ, slacks, damping d.

    With i = limit - measure, in units of the rule, a rule adds scale (λ i + d i² / 2) to what the variables descend
    and the multiplier ascends. An inequality subtracts a slack from i, set to its minimiser max(0, i + λ / d): as a
    variable of the optimiser it would lag, and an inactive constraint would hold the motion back like an equality.
    """

    def __init__(self, rules: tuple[_Rule, ...], params: OptimizeParams) -> None:
        self.rules = rules
        self.multipliers: _Array = np.zeros(len(rules))
        weights = [params.weight_of(rule.name) for rule in rules]
        self._scale = np.array([weight.scale for weight in weights])
        self._damping = np.array([weight.damping for weight in weights])
        self._equality = np.array([rule.equality for rule in rules], dtype=bool)

    def lagrangian(self, trajectory: Trajectory, bar: Trajectory) -> tuple[float, _Array]:
        """Return the rules' contribution to the objective [-], and the derivatives in the multipliers.

        The derivatives in the trajectory are added to `bar`.
        """
        if not self.rules:
            return 0.0, np.zeros(0)
        readings = [rule.measure(trajectory) for rule in self.rules]
        room = np.array([(r.limit - m.value) / r.unit for r, m in zip(self.rules, readings, strict=True)])
        slack = np.maximum(0.0, room + self.multipliers / self._damping)
        inside = np.where(self._equality, room, room - slack)
        value = self._scale * (self.multipliers * inside + 0.5 * self._damping * inside**2)
        pull = -self._scale * (self.multipliers + self._damping * inside)
        for rule, reading, strength in zip(self.rules, readings, pull, strict=True):
            getattr(bar, reading.quantity)[reading.row] += strength / rule.unit * reading.slope
            bar.turn[reading.row] += strength / rule.unit * reading.turn
        return float(value.sum()), self._scale * inside

    def violation(self, residuals: dict[str, float]) -> float:
        """Return the sum of the residuals beyond their tolerances, in units of the rules; 0 is feasible."""
        return sum(max(0.0, residuals[rule.name] - rule.tolerance) / rule.unit for rule in self.rules)

    def residuals(self, trajectory: Trajectory) -> dict[str, float]:
        """Return the violation of every rule."""
        return {rule.name: rule.residual(trajectory) for rule in self.rules}
