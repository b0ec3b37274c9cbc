"""Hard constraints of the motion, for MDMM and as residuals in physical units."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


def passage_of(mesh: CutMesh, blade_m: float, params: OptimizeParams) -> Passage:
    """Return the passage over the middle of a fruit; its duration is a whole number of steps and of milliseconds."""
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


class Constraints:
    """The rules under MDMM (Platt and Barr 1988): multipliers λ, slacks, damping d.

    With i = limit - measure, in units of the rule, a rule adds scale (λ i + d i² / 2) to what the variables descend
    and the multiplier ascends. An inequality subtracts a slack from i, set to its minimiser max(0, i + λ / d): as a
    variable of the optimiser it would lag, and an inactive constraint would hold the motion back like an equality.
    """

    def __init__(self, rules: tuple[_Rule, ...], params: OptimizeParams) -> None:
        self.rules = rules
        self.multipliers: _Array = np.zeros(len(rules))
        weights = [params.constraints[rule.name] for rule in rules]
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
        return float(value.sum()), self._scale * inside

    def violation(self, residuals: dict[str, float]) -> float:
        """Return the sum of the residuals beyond their tolerances, in units of the rules; 0 is feasible."""
        return sum(max(0.0, residuals[rule.name] - rule.tolerance) / rule.unit for rule in self.rules)

    def residuals(self, trajectory: Trajectory) -> dict[str, float]:
        """Return the violation of every rule."""
        return {rule.name: rule.residual(trajectory) for rule in self.rules}
