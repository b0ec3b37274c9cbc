"""Implicit steps with Newton's method: the default integrator."""

from collections.abc import Callable

import numpy as np

from disect_sim.newton import NewtonOptions, NewtonSolver
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.recorder import Recorder
from disect_sim.step_system import StepStart, StepSystem
from disect_sim.timing import Stopwatch


def start_of_step(
    system: StepSystem,
    n: int,
    poses: np.ndarray,
    x: np.ndarray,
    x_before: np.ndarray,
    stiffness: np.ndarray,
    stiffness_before: np.ndarray,
    passed: np.ndarray,
) -> StepStart:
    """What step n starts from: positions and stiffness at t_n and t_{n-1} (at n = 0 the stiffness of t_0 twice).

    Friction looks at where the nodes will be at constant velocity. Springs are felt as they will be at the end of the
    step: damage of a step uses the force at its end, so k_n belongs to the middle of the step that follows it.
    """
    model, dt = system.model, system.dt
    ahead = 2.0 * x - x_before
    predicted = ahead + dt * dt * model.gravity
    ahead[model.fixed] = x[model.fixed]
    used = np.maximum(0.0, 1.5 * stiffness - 0.5 * stiffness_before)
    swing = 0.5 * (poses[n + 1] - 2.0 * poses[n] + poses[n - 1]) if n else np.zeros(3)
    load = None
    if system.edge is not None:
        velocity = (poses[n + 1] - poses[n] + swing) / dt
        load = system.edge.load(ahead, poses[n + 1], velocity, passed)
    return StepStart(x, predicted, used, poses[n], poses[n + 1], ahead, swing, load)


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
    dt = system.dt
    x_previous = x - dt * velocity
    stiffness = stiffness_before = recorder.stiffness[0]
    passed = recorder.passed[0]
    newton = NewtonSolver(system, options)
    watch = Stopwatch()
    outcome = None
    keep_state(x_previous)
    keep_state(x)
    steps = len(poses) - 1
    for n in range(steps):
        start = start_of_step(system, n, poses, x, x_previous, stiffness, stiffness_before, passed)
        with watch("gradient"):
            system.begin(*start)
        solved = newton.solve(start.expected, recorder.statistics, watch)
        if not solved.solved:
            detail = f"At {(n + 1) * dt:.4g} s, worst at the named node."
            outcome = Outcome(OutcomeKind.NEWTON_STALLED, detail, n + 1, solved.worst_node)
            break
        damaged, passed = system.damaged(stiffness, solved.x, poses[n + 1], passed)
        outcome = recorder.step(solved.x, x, damaged, passed)
        if outcome is not None and outcome.kind is OutcomeKind.DIVERGED:
            break
        x_previous, x = x, solved.x
        stiffness_before, stiffness = stiffness, damaged
        keep_state(x)
        progress((n + 1) / steps)
        if outcome is not None:
            break
    statistics = recorder.statistics
    solver = newton.linear
    statistics.cg_iterations = solver.statistics.iterations
    statistics.factorisations = solver.statistics.factorisations
    statistics.indefinite_hessians = solver.statistics.indefinite
    seconds = watch.split()
    seconds["factorisation"] = solver.statistics.factor_seconds
    seconds["solve"] = seconds.get("solve", 0.0) - solver.statistics.factor_seconds
    statistics.seconds = seconds
    return x, outcome
