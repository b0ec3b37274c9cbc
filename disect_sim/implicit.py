"""Backward Euler with Newton's method: the default integrator."""

from collections.abc import Callable

import numpy as np

from disect_sim.linear_solver import CachedCholeskySolver
from disect_sim.newton import NewtonOptions, solve_step
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.recorder import Recorder
from disect_sim.step_system import StepSystem
from disect_sim.timing import Stopwatch


def predict(x: np.ndarray, x_previous: np.ndarray, gravity: np.ndarray, dt: float) -> np.ndarray:
    """Where inertia and gravity alone take the nodes [m], shape [node_count, 3]."""
    return 2.0 * x - x_previous + dt * dt * gravity


def run_implicit(
    system: StepSystem,
    poses: np.ndarray,
    x: np.ndarray,
    velocity: np.ndarray,
    recorder: Recorder,
    options: NewtonOptions,
    keep_state: Callable[[np.ndarray], None],
    progress: Callable[[float], None],
) -> tuple[np.ndarray, Outcome | None]:
    """Step through the motion. Returns the last good positions and, if the run had to stop, why."""
    dt, fixed = system.dt, system.model.fixed
    x_previous = x - dt * velocity
    stiffness = recorder.stiffness[0]
    solver = CachedCholeskySolver(system.pattern)
    watch = Stopwatch()
    outcome = None
    keep_state(x_previous)
    keep_state(x)
    steps = len(poses) - 1
    for n in range(steps):
        predicted = predict(x, x_previous, system.model.gravity, dt)
        system.begin(x, predicted, stiffness, poses[n], poses[n + 1])
        guess = 2.0 * x - x_previous
        guess[fixed] = x[fixed]
        solved = solve_step(system, solver, guess, options, recorder.statistics, watch)
        if not solved.solved:
            detail = f"At {(n + 1) * dt:.4g} s, worst at the named node."
            outcome = Outcome(OutcomeKind.NEWTON_STALLED, detail, n + 1, solved.worst_node)
            break
        damaged = system.damaged(stiffness, solved.x)
        outcome = recorder.step(solved.x, x, damaged)
        if outcome is not None and outcome.kind is OutcomeKind.DIVERGED:
            break
        x_previous, x, stiffness = x, solved.x, damaged
        keep_state(x)
        progress((n + 1) / steps)
        if outcome is not None:
            break
    statistics = recorder.statistics
    statistics.cg_iterations = solver.statistics.iterations
    statistics.factorisations = solver.statistics.factorisations
    statistics.indefinite_hessians = solver.statistics.indefinite
    seconds = watch.split()
    seconds["factorisation"] = solver.statistics.factor_seconds
    seconds["solve"] = seconds.get("solve", 0.0) - solver.statistics.factor_seconds
    statistics.seconds = seconds
    return x, outcome
