"""Implicit time steps: Newton's method on the incremental energy, with a line search only where needed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from disect_sim.device_arrays import Stopwatch
from disect_sim.linear_solver import CachedCholeskySolver, IndefiniteHessianError
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.result import Recorder, Statistics
from disect_sim.step_system import StepStart, StepSystem

_SHIFTS = (1e-3, 1e-2, 1e-1, 1.0)
"""Multiples of the diagonal added in turn when the Hessian is indefinite or its direction is no descent direction."""
_ARMIJO = 1e-4
"""Armijo constant: required fraction of the predicted decrease."""
_ROUNDING = 1e-13
"""Relative accuracy of the summed energy; smaller differences are rounding."""
_MAX_HALVINGS = 12
_SMALL_MOVE_M = 1.0e-4
"""Largest correction accepted without line search [m]: the length of the contact onset."""
_SHORT_TOLERANCE = 0.1
"""Fraction of the tolerance to which a step without line search must be solved, as estimated by the old factor."""
_BEND_PER_M = 100.0
"""A correction s is solved to BEND_PER_M s² [1/m]: contacts are curved, so it leaves an error of several times that."""
_MAX_CHORDS = 3
"""Maximum number of corrections per direction: the direction itself, then chords with the old factor only."""
_POOR = 0.1
"""Fraction of the error that a correction may leave before the Hessian counts as outdated."""
_MAX_AGE = 10
"""Number of directions after which the tets' Hessian is renewed in any case."""


@dataclass(frozen=True)
class NewtonOptions:
    """Convergence criteria of a step."""

    tolerance_m: float = 1.0e-7
    """A step has converged when no node moves farther than this in the last iteration [m]."""
    cg_tolerance: float = 1.0e-3
    """Relative accuracy of the linear solves with line search."""
    max_iterations: int = 40


@dataclass(frozen=True)
class _NewtonResult:
    """State reached by Newton's method."""

    x: np.ndarray
    """Positions [m], shape [node_count, 3]."""
    solved: bool
    worst_node: int
    """Node with the largest movement in the last iteration."""


class _NewtonSolver:
    """Solves the steps of one run in sequence; keeps factor and tet Hessian from step to step."""

    def __init__(self, system: StepSystem, options: NewtonOptions) -> None:
        self.linear = CachedCholeskySolver(system.pattern, system.switches.directions)
        self._system, self._options = system, options
        self._free = ~system.model.fixed
        self._free_nodes = np.flatnonzero(self._free)
        self._age = 0

    def solve(self, x: np.ndarray, statistics: Statistics, watch: Stopwatch) -> _NewtonResult:
        """Return the positions at the end of the step begun by the system, starting from the guess x.

        A correction that is small and less than half the previous one is accepted; others must lower the energy.
        """
        tolerance, options = _SHORT_TOLERANCE * self._options.tolerance_m, self._options
        gradient = self._gradient(x, watch)
        fresh = self.linear.must_renew or self._age >= _MAX_AGE
        smallest, worst = np.inf, 0
        for _ in range(options.max_iterations):
            statistics.newton_iterations += 1
            self._assemble(fresh, watch)
            fresh = True
            with watch("solve"):
                direction = self._direction(gradient, tolerance)
            size = np.inf
            if direction is not None:
                moved = np.abs(direction).ravel()
                most = int(moved.argmax())
                size, worst = moved[most], int(self._free_nodes[most // 3])
            if direction is not None and size < min(_SMALL_MOVE_M, 0.5 * smallest):
                x, gradient, solved = self._take(x, direction, tolerance, watch)
            else:
                solved = size < options.tolerance_m
                at = _Point(x, gradient, self._system.energies().total)
                after = self._descend(at, direction, solved, statistics, watch)
                if after is None:
                    return _NewtonResult(x, False, worst)
                x, gradient = after.x, after.gradient
            if solved:
                return _NewtonResult(x, True, worst)
            smallest = min(smallest, size)
        return _NewtonResult(x, False, worst)

    def _take(
        self, x: np.ndarray, direction: np.ndarray, tolerance: float, watch: Stopwatch
    ) -> tuple[np.ndarray, np.ndarray, bool]:
        """Apply the whole direction, then corrections by the old factor as long as they help, without energies.

        Returns positions, their gradient, and whether the step has converged.
        """
        x = x.copy()
        size = np.abs(direction).max()
        for _ in range(_MAX_CHORDS):
            x[self._free] += direction
            gradient = self._gradient(x, watch)
            with watch("solve"):
                direction = -self.linear.approximate(gradient.reshape(-1)).reshape(-1, 3)
            error = np.abs(direction).max()
            if error < tolerance:
                return x, gradient, True
            if error > _POOR * size:
                break
            size = error
        return x, gradient, False

    def _gradient(self, x: np.ndarray, watch: Stopwatch) -> np.ndarray:
        """Return the gradient on the free nodes [N], shape [free_count, 3]."""
        with watch("gradient"):
            return self._system.gradient(x)[self._free]

    def _assemble(self, fresh: bool, watch: Stopwatch) -> None:
        with watch("hessian"):
            self.linear.use_hessian(self._system, fresh=fresh)
        self._age = 0 if fresh else self._age + 1

    def _evaluate(self, x: np.ndarray, watch: Stopwatch) -> "_Point":
        gradient = self._gradient(x, watch)
        with watch("gradient"):
            return _Point(x, gradient, self._system.energies().total)

    def _direction(self, gradient: np.ndarray, tolerance: float, shift: float = 0.0) -> np.ndarray | None:
        """Return the Newton direction [m], shape [free_count, 3], or None if the (shifted) Hessian is indefinite."""
        linear, right = self.linear, gradient.reshape(-1)
        try:
            if shift > 0.0:
                solution = linear.solve(right, tolerance=self._options.cg_tolerance, shift=shift)
            else:
                solution = linear.solve_within(right, 0.5 * tolerance, _BEND_PER_M)
        except IndefiniteHessianError:
            return None
        return -solution.reshape(-1, 3)

    def _descend(
        self,
        at: "_Point",
        direction: np.ndarray | None,
        take_whole: bool,
        statistics: Statistics,
        watch: Stopwatch,
    ) -> "_Point | None":
        """Return a point with lower energy along the direction or, failing that, along those of shifted Hessians."""
        for shift in (0.0, *_SHIFTS):
            if shift > 0.0:
                with watch("solve"):
                    direction = self._direction(at.gradient, 0.0, shift)
            if direction is None:
                continue
            after = self._line_search(at, direction, take_whole and shift == 0.0, statistics, watch)
            if after is not None:
                return after
        return None

    def _line_search(
        self,
        at: "_Point",
        direction: np.ndarray,
        take_whole: bool,
        statistics: Statistics,
        watch: Stopwatch,
    ) -> "_Point | None":
        """Return the first point, halving the step each time, that lowers the energy enough; None if there is none."""
        slope = float((at.gradient * direction).sum())
        length = 1.0
        for _ in range(_MAX_HALVINGS):
            x = at.x.copy()
            x[self._free] += length * direction
            after = self._evaluate(x, watch)
            rounding = _ROUNDING * (abs(at.energy) + abs(after.energy))
            if take_whole or after.energy <= at.energy + _ARMIJO * length * slope + rounding:
                return after
            length *= 0.5
            statistics.line_search_cuts += 1
        return None


@dataclass(frozen=True)
class _Point:
    x: np.ndarray
    gradient: np.ndarray
    """Gradient on the free nodes [N], shape [free_count, 3]."""
    energy: float


# Time stepping


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
    """Return the start of step n from positions and stiffness at t_n and t_{n-1} (at n = 0 the stiffness of t_0 twice).

    Friction uses node positions predicted at constant velocity. Springs act with the stiffness extrapolated to the end
    of the step: the damage of a step uses the force at its end, so k_n belongs to the middle of the step that follows
    it.
    """
    model, dt = system.model, system.dt
    ahead = 2.0 * x - x_before
    predicted = ahead + dt * dt * model.gravity
    ahead[model.fixed] = x[model.fixed]
    used = np.maximum(0.0, 1.5 * stiffness - 0.5 * stiffness_before)
    swing = 0.5 * (poses[n + 1] - 2.0 * poses[n] + poses[n - 1]) if n else np.zeros_like(poses[0])
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
    """Step through the motion. Return the last good positions and, if the run had to stop, the outcome."""
    dt = system.dt
    x_previous = x - dt * velocity
    stiffness = stiffness_before = recorder.stiffness[0]
    passed = recorder.passed[0]
    newton = _NewtonSolver(system, options)
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
            detail = f"At {(n + 1) * dt:.4g} s; the given node has the largest error."
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
