"""One backward Euler step: Newton's method with line search on the incremental energy."""

from dataclasses import dataclass

import numpy as np

from disect_sim.linear_solver import CachedCholeskySolver, IndefiniteHessianError
from disect_sim.result import Statistics
from disect_sim.step_system import StepSystem
from disect_sim.timing import Stopwatch

SHIFTS = (1e-3, 1e-2, 1e-1, 1.0)
"""Multiples of the diagonal tried, in turn, when the Hessian is indefinite."""
ARMIJO = 1e-4
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
    x = x.copy()
    with watch("gradient"):
        grad = system.gradient(x)[free]
        energy = system.energies().total
    worst = 0
    for _ in range(options.max_iterations):
        statistics.newton_iterations += 1
        with watch("hessian"):
            solver.set_matrix(system.hessian())
        with watch("solve"):
            direction = -_solve(solver, grad.reshape(-1), options.cg_tolerance).reshape(-1, 3)
        moved = np.abs(direction).max(axis=1)
        last = moved.max() < options.tolerance_m
        worst = int(moved.argmax())
        slope = float((grad * direction).sum())
        length = 1.0
        for _ in range(MAX_HALVINGS):
            trial = x.copy()
            trial[free] += length * direction
            with watch("gradient"):
                trial_grad = system.gradient(trial)[free]
                trial_energy = system.energies().total
            noise = 1e-13 * (abs(energy) + abs(trial_energy))
            if last or trial_energy <= energy + ARMIJO * length * slope + noise:
                break
            length *= 0.5
            statistics.line_search_cuts += 1
        else:
            return NewtonResult(x, False, int(np.flatnonzero(free)[worst]))
        x, grad, energy = trial, trial_grad.copy(), trial_energy
        if last:
            return NewtonResult(x, True, int(np.flatnonzero(free)[worst]))
    return NewtonResult(x, False, int(np.flatnonzero(free)[worst]))


def _solve(solver: CachedCholeskySolver, b: np.ndarray, tolerance: float) -> np.ndarray:
    """H^-1 b, with H shifted to be positive definite where it is not."""
    try:
        return solver.solve(b, tolerance=tolerance)
    except IndefiniteHessianError:
        pass
    for shift in SHIFTS:
        try:
            return solver.solve(b, tolerance=tolerance, shift=shift)
        except IndefiniteHessianError:
            continue
    return b / np.abs(solver.diagonal())
