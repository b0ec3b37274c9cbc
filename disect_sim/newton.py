"""One backward Euler step: Newton's method with line search on the incremental energy."""

from dataclasses import dataclass

import numpy as np

from disect_sim.linear_solver import CachedCholeskySolver, IndefiniteHessianError
from disect_sim.result import Statistics
from disect_sim.step_system import StepSystem
from disect_sim.timing import Stopwatch

SHIFTS = (1e-3, 1e-2, 1e-1, 1.0)
"""Multiples of the diagonal added, in turn, when the Hessian is indefinite or its direction does not descend."""
ARMIJO = 1e-4
"""Share of the promised decrease that a step must bring."""
ROUNDING = 1e-13
"""Relative accuracy of the summed energy: smaller differences mean nothing."""
MAX_HALVINGS = 12


@dataclass(frozen=True)
class NewtonOptions:
    """When a step counts as solved."""

    tolerance_m: float = 1.0e-7
    """A step is solved when no node moves further than this in the last iteration [m]."""
    cg_tolerance: float = 1.0e-3
    """Relative accuracy of the linear solves in the forward run."""
    max_iterations: int = 40


@dataclass(frozen=True)
class NewtonResult:
    """Where Newton's method got to."""

    x: np.ndarray
    """Positions [m], shape [node_count, 3]."""
    solved: bool
    worst_node: int
    """Node that moved most in the last iteration."""


def solve_step(
    system: StepSystem,
    solver: CachedCholeskySolver,
    x: np.ndarray,
    options: NewtonOptions,
    statistics: Statistics,
    watch: Stopwatch,
) -> NewtonResult:
    """Positions at the end of the step that `system` has begun, starting from the guess x."""
    free = ~system.model.fixed
    at = _Point(x.copy(), *_evaluate(system, x, free, watch))
    worst = 0
    for _ in range(options.max_iterations):
        statistics.newton_iterations += 1
        with watch("hessian"):
            solver.set_matrix(system.hessian())
        for shift in (0.0, *SHIFTS):
            with watch("solve"):
                direction = _direction(solver, at.gradient, options.cg_tolerance, shift)
            if direction is None:
                continue
            moved = np.abs(direction).max(axis=1)
            solved = shift == 0.0 and moved.max() < options.tolerance_m
            worst = int(np.flatnonzero(free)[moved.argmax()])
            after = _line_search(system, at, direction, free, solved, statistics, watch)
            if after is not None:
                break
        else:
            return NewtonResult(at.x, False, worst)
        at = after
        if solved:
            return NewtonResult(at.x, True, worst)
    return NewtonResult(at.x, False, worst)


@dataclass(frozen=True)
class _Point:
    x: np.ndarray
    gradient: np.ndarray
    """On the free nodes [N], shape [free_count, 3]."""
    energy: float


def _evaluate(
    system: StepSystem, x: np.ndarray, free: np.ndarray, watch: Stopwatch
) -> tuple[np.ndarray, float]:
    with watch("gradient"):
        gradient = system.gradient(x)[free]
        return gradient, system.energies().total


def _direction(
    solver: CachedCholeskySolver, gradient: np.ndarray, tolerance: float, shift: float
) -> np.ndarray | None:
    """Newton direction [m], shape [free_count, 3], or None where the (shifted) Hessian is indefinite."""
    try:
        return -solver.solve(gradient.reshape(-1), tolerance=tolerance, shift=shift).reshape(-1, 3)
    except IndefiniteHessianError:
        return None


def _line_search(
    system: StepSystem,
    at: _Point,
    direction: np.ndarray,
    free: np.ndarray,
    take_whole: bool,
    statistics: Statistics,
    watch: Stopwatch,
) -> _Point | None:
    """The first point on the way that lowers the energy enough, halving the step each time; None if there is none."""
    slope = float((at.gradient * direction).sum())
    length = 1.0
    for _ in range(MAX_HALVINGS):
        x = at.x.copy()
        x[free] += length * direction
        gradient, energy = _evaluate(system, x, free, watch)
        rounding = ROUNDING * (abs(at.energy) + abs(energy))
        if take_whole or energy <= at.energy + ARMIJO * length * slope + rounding:
            return _Point(x, gradient, energy)
        length *= 0.5
        statistics.line_search_cuts += 1
    return None
