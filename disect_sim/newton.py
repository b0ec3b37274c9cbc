"""One implicit step: Newton's method on the incremental energy, with a short way for the steps that need no care."""

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
SMALL_MOVE_M = 1.0e-4
"""A correction beyond this is left to the line search [m]: contact sets in over this length."""
SHORT_TOLERANCE = 0.1
"""Share of the tolerance within which a step must be solved without line search, by the old factor's estimate."""
MAX_SHORT_ITERATIONS = 6
MAX_CHORDS = 3
"""Corrections by the old factor alone after every direction."""
POOR = 0.1
"""Share of an error that a correction may leave before the Hessian counts as too old."""
MAX_AGE = 10
"""Directions after which the tets' Hessian is renewed anyhow."""


@dataclass(frozen=True)
class NewtonOptions:
    """When a step counts as solved."""

    tolerance_m: float = 1.0e-7
    """A step is solved when no node moves further than this in the last iteration [m]."""
    cg_tolerance: float = 1.0e-3
    """Relative accuracy of the linear solves with line search."""
    max_iterations: int = 40


@dataclass(frozen=True)
class NewtonResult:
    """Where Newton's method got to."""

    x: np.ndarray
    """Positions [m], shape [node_count, 3]."""
    solved: bool
    worst_node: int
    """Node that moved most in the last iteration."""


class NewtonSolver:
    """Solves the steps of one run, one after the other; keeps factor and tet Hessian from step to step."""

    def __init__(self, system: StepSystem, options: NewtonOptions) -> None:
        self.linear = CachedCholeskySolver(system.pattern)
        self._system, self._options = system, options
        self._free = ~system.model.fixed
        self._age = 0

    def solve(self, x: np.ndarray, statistics: Statistics, watch: Stopwatch) -> NewtonResult:
        """Positions at the end of the step that the system has begun, starting from the guess x."""
        found = self._short_way(x, statistics, watch)
        return self._with_line_search(x, statistics, watch) if found is None else NewtonResult(found, True, 0)

    def _short_way(self, x: np.ndarray, statistics: Statistics, watch: Stopwatch) -> np.ndarray | None:
        """From a guess that is nearly right: no energies, no line search, an old tet Hessian as long as it serves.

        None if the corrections are large or do not shrink: then the energy must decide.
        """
        linear, tolerance = self.linear, SHORT_TOLERANCE * self._options.tolerance_m
        x = x.copy()
        gradient = self._gradient(x, watch)
        fresh = linear.must_renew or self._age >= MAX_AGE
        before = np.inf
        for _ in range(min(MAX_SHORT_ITERATIONS, self._options.max_iterations)):
            statistics.newton_iterations += 1
            self._assemble(fresh, watch)
            try:
                with watch("solve"):
                    correction = linear.solve_within(gradient, 0.5 * tolerance)
            except IndefiniteHessianError:
                return None
            size = np.abs(correction).max()
            if not size < min(SMALL_MOVE_M, 0.5 * before):
                return None
            for chord in range(MAX_CHORDS):
                x[self._free] -= correction.reshape(-1, 3)
                gradient = self._gradient(x, watch)
                with watch("solve"):
                    correction = linear.approximate(gradient)
                error = np.abs(correction).max()
                if error < tolerance:
                    return x
                if error > POOR * size or chord == MAX_CHORDS - 1:
                    break
                size = error
            before, fresh = size, True
        return None

    def _gradient(self, x: np.ndarray, watch: Stopwatch) -> np.ndarray:
        """On the free nodes [N], shape [3 free_count]."""
        with watch("gradient"):
            return self._system.gradient(x)[self._free].reshape(-1)

    def _assemble(self, fresh: bool, watch: Stopwatch) -> None:
        with watch("hessian"):
            self.linear.set_matrix(self._system.hessian(fresh=fresh))
        self._age = 0 if fresh else self._age + 1

    def _with_line_search(self, x: np.ndarray, statistics: Statistics, watch: Stopwatch) -> NewtonResult:
        free, options = self._free, self._options
        at = self._evaluate(x.copy(), watch)
        worst = 0
        for _ in range(options.max_iterations):
            statistics.newton_iterations += 1
            self._assemble(True, watch)
            for shift in (0.0, *SHIFTS):
                with watch("solve"):
                    direction = self._direction(at.gradient, shift)
                if direction is None:
                    continue
                moved = np.abs(direction).max(axis=1)
                solved = shift == 0.0 and moved.max() < options.tolerance_m
                worst = int(np.flatnonzero(free)[moved.argmax()])
                after = self._line_search(at, direction, solved, statistics, watch)
                if after is not None:
                    break
            else:
                return NewtonResult(at.x, False, worst)
            at = after
            if solved:
                return NewtonResult(at.x, True, worst)
        return NewtonResult(at.x, False, worst)

    def _evaluate(self, x: np.ndarray, watch: Stopwatch) -> "_Point":
        gradient = self._gradient(x, watch).reshape(-1, 3)
        with watch("gradient"):
            return _Point(x, gradient, self._system.energies().total)

    def _direction(self, gradient: np.ndarray, shift: float) -> np.ndarray | None:
        """Newton direction [m], shape [free_count, 3], or None where the (shifted) Hessian is indefinite."""
        tolerance = self._options.cg_tolerance
        try:
            return -self.linear.solve(gradient.reshape(-1), tolerance=tolerance, shift=shift).reshape(-1, 3)
        except IndefiniteHessianError:
            return None

    def _line_search(
        self,
        at: "_Point",
        direction: np.ndarray,
        take_whole: bool,
        statistics: Statistics,
        watch: Stopwatch,
    ) -> "_Point | None":
        """The first point on the way that lowers the energy enough, halving each time; None if there is none."""
        slope = float((at.gradient * direction).sum())
        length = 1.0
        for _ in range(MAX_HALVINGS):
            x = at.x.copy()
            x[self._free] += length * direction
            after = self._evaluate(x, watch)
            rounding = ROUNDING * (abs(at.energy) + abs(after.energy))
            if take_whole or after.energy <= at.energy + ARMIJO * length * slope + rounding:
                return after
            length *= 0.5
            statistics.line_search_cuts += 1
        return None


@dataclass(frozen=True)
class _Point:
    x: np.ndarray
    gradient: np.ndarray
    """On the free nodes [N], shape [free_count, 3]."""
    energy: float
