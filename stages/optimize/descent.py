"""The descent from one start: keeps the best feasible iterate, not the last, and can be resumed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.optimize.constraints import Constraints, rules_of
from stages.optimize.curvature import Curvature
from stages.optimize.inner_problem import ForceModel, solve
from stages.optimize.params import OptimizeParams
from stages.optimize.slicing_cut import CutFailedError, SlicingCut, speed_term
from stages.runtime.checkpoint import Checkpoint
from stages.shared.fitting.resumable import run_to_end

GROW, SHRINK = 1.5, 0.4
"""What a step that was better, or was not, does to the radius of the next one."""
CONVERGED = "converged"
NO_GAIN = "no step promises more than least_gain"
LEFT_BEHIND = "left behind by a better start"
"""How a descent may end."""

Array = NDArray[np.float64]


@dataclass
class Point:
    """A simulated motion."""

    variables: Array
    """Shape [3, keyframes]."""
    slope: Array
    """Gradient of the mean force over that of the vertical cut, same shape."""
    objective: float
    mean_force_n: float
    residuals: dict[str, float]
    violation: float
    """0 if every rule holds within its tolerance."""

    def better_than(self, other: "Point | None") -> bool:
        """Feasibility first, then the objective."""
        if other is None:
            return True
        return (self.violation, self.objective) < (other.violation, other.objective)


@dataclass
class Descent:
    """What one start gave."""

    best: Point | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    """Per simulation: objective, mean force, radius, whether feasible, whether better, residual of every rule."""
    ended: str = "budget used"
    state: dict[str, Any] = field(default_factory=dict)
    """What another search needs to go on from here."""

    @property
    def feasible(self) -> bool:
        """Whether the best motion keeps every rule."""
        return self.best is not None and self.best.violation == 0.0

    def best_after(self, simulations: int) -> float:
        """Least objective among the first so many motions that kept every rule; infinite if there was none."""
        rows = self.history[:simulations]
        return min((row["objective"] for row in rows if row["feasible"]), default=np.inf)


class Search:
    """The state of one descent: a trust region around the best motion so far."""

    def __init__(
        self, cut: SlicingCut, start: Array, params: OptimizeParams, *, scale_n: float, constrained: bool
    ) -> None:
        self._cut, self._params, self._scale, self._constrained = cut, params, scale_n, constrained
        rules = rules_of(cut.passage, params)
        self._rules = Constraints(rules, params)
        self._active = Constraints(rules if constrained else (), params)
        self._next = start.copy()
        self._gain = np.inf
        """What the model of the force expects of the next motion, as a share of the mean force."""
        self._radius = params.start_radius
        self._curvature: Curvature | None = None
        self.run = Descent()

    def over(self) -> bool:
        """Whether to stop."""
        if self._radius < self._params.least_radius:
            best, promises = self.run.best, self._gain >= self._params.least_gain
            self.run.ended = (
                "the simulations do not finish" if best is None else CONVERGED if promises else NO_GAIN
            )
            return True
        return len(self.run.history) >= self._params.iterations

    def step(self) -> None:
        """One simulation with its gradient, then MDMM for the next motion."""
        point = self._simulate(self._next)
        better = point is not None and point.better_than(self.run.best)
        self._note(point, better)
        if point is not None:
            self._learn(point)
        if better:
            self.run.best = point
        self._radius *= GROW if better else SHRINK
        centre = self.run.best
        if centre is None or self._curvature is None:
            self._next, self._gain = self._next * 0.5 + self._cut.straight() * 0.5, np.inf
        else:
            self._choose_next(centre, ForceModel(centre.variables, centre.slope, self._curvature))

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, as plain values."""
        best = self.run.best
        return {
            "next": self._next.tolist(),
            "gain": float(self._gain),
            "radius": self._radius,
            "curvature": None if self._curvature is None else self._curvature.matrix.tolist(),
            "multipliers": self._active.multipliers.tolist(),
            "best": None
            if best is None
            else {**vars(best), "variables": best.variables.tolist(), "slope": best.slope.tolist()},
            "history": self.run.history,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self._next, self._gain, self._radius = np.array(state["next"]), state["gain"], state["radius"]
        self._active.multipliers = np.array(state["multipliers"])
        best = None
        if state["best"] is not None:
            arrays = {name: np.array(state["best"][name]) for name in ("variables", "slope")}
            best = Point(**{**state["best"], **arrays})
        if best is not None and state["curvature"] is not None:
            self._curvature = Curvature(best.slope, self._params.start_radius)
            self._curvature.matrix = np.array(state["curvature"])
        self.run = Descent(best, list(state["history"]))

    def _learn(self, point: Point) -> None:
        """How the slope changed from the best motion so far to this one, better or not."""
        best = self.run.best
        if self._curvature is None or best is None:
            self._curvature = Curvature(point.slope, self._params.start_radius)
        else:
            self._curvature.learn(point.variables - best.variables, point.slope - best.slope)

    def _choose_next(self, centre: Point, model: ForceModel) -> None:
        """The next motion, by MDMM. One that promises too little is not simulated: a shorter step is asked for.

        A shorter one may promise more, because MDMM does not find the very minimum, and less so the farther it may go.
        """
        while True:
            self._next = solve(self._cut, self._active, model, self._radius, self._params)
            self._gain = self._expected_gain(centre, model)
            hopeless = self._gain < self._params.least_gain and self.run.feasible
            if not hopeless or self._radius < self._params.least_radius:
                return
            self._radius *= SHRINK

    def _expected_gain(self, centre: Point, model: ForceModel) -> float:
        """By how much the objective should fall with the next motion, over the best motion's mean force."""
        change, _ = model.change(self._next)
        speeds = [speed_term(self._cut.trajectory(v), self._params) for v in (centre.variables, self._next)]
        return float(speeds[0] - speeds[1] - change) * self._scale / centre.mean_force_n

    def _simulate(self, at: Array) -> Point | None:
        try:
            mean, slope = self._cut.mean_force_and_slope(at)
        except CutFailedError:
            return None
        trajectory = self._cut.trajectory(at)
        objective = mean / self._scale + speed_term(trajectory, self._params)
        residuals = self._rules.residuals(trajectory)
        violation = self._rules.violation(residuals) if self._constrained else 0.0
        return Point(at.copy(), slope / self._scale, objective, mean, residuals, violation)

    def _note(self, point: Point | None, better: bool) -> None:
        nothing = float("nan")
        residuals = {rule.name: nothing for rule in self._rules.rules} if point is None else point.residuals
        row = {
            "objective": nothing if point is None else point.objective,
            "mean_force_n": nothing if point is None else point.mean_force_n,
            "radius": self._radius,
            "feasible": point is not None and self._rules.violation(point.residuals) == 0.0,
            "better": better,
        }
        self.run.history.append({**row, **residuals})


def descend(
    cut: SlicingCut,
    start: Array,
    params: OptimizeParams,
    *,
    scale_n: float,
    constrained: bool = True,
    checkpoint: Checkpoint,
    report: Callable[[Descent], None] = lambda run: None,
    state: dict[str, Any] | None = None,
) -> Descent:
    """Minimise the objective under the constraints, or without them for the ablation; from `state` if one is given."""
    search = Search(cut, start, params, scale_n=scale_n, constrained=constrained)
    if state:
        search.restore(state)
    run = run_to_end(search, checkpoint, lambda search: report(search.run)).run
    run.state = search.state()
    return run
