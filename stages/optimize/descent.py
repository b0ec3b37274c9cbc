"""Descent from one start: MDMM with a quadratic force model in a trust region.

Resumable, keeps the best feasible iterate.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from stages.optimize.constraints import Constraints, rules_of
from stages.optimize.description import OPTIMISERS, OptimizeParams
from stages.optimize.kinematics import Trajectory
from stages.optimize.slicing_cut import CutFailedError, SlicingCut, speed_term
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.describe import load_named
from stages.shared.fitting import run_to_end
from stages.shared.pictures import FRUIT, TEXT, WARNING, new_figure, pixels_of

# Live view of a running search


_SIZE_INCHES = (11.0, 4.5)
_MM = 1e3

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Reached:
    """Report of a descent after every simulation."""

    start: str
    simulations: int
    mean_force_n: float
    """Mean force of the last simulated motion."""
    best: _Array | None = None
    """Variables of its best motion that keeps every rule; None if there is none yet or none is needed."""
    best_mean_n: float = np.inf


@dataclass
class SoFar:
    """Reports of all descents."""

    cut: SlicingCut
    vertical_n: float
    """Mean force of the vertical cut."""
    means: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """Start → (simulation, mean force [N])."""
    best: _Array | None = None
    best_mean_n: float = np.inf

    def add(self, reached: Reached) -> None:
        """Add one report."""
        self.means.setdefault(reached.start, []).append((reached.simulations, reached.mean_force_n))
        if reached.best is not None and reached.best_mean_n < self.best_mean_n:
            self.best, self.best_mean_n = reached.best, reached.best_mean_n


def live_picture(so_far: SoFar, silhouette: _Array) -> NDArray[np.uint8]:
    """Draw the search so far; 8-bit pixels, shape [height, width, 3].

    silhouette: points (z, y) of the fruit [m], shape [n, 2].
    """
    figure, canvas = new_figure(_SIZE_INCHES)
    left, right = figure.subplots(1, 2)
    hull = _MM * silhouette[ConvexHull(silhouette).vertices]
    left.fill(hull[:, 0], hull[:, 1], color=FRUIT, alpha=0.35, lw=0)
    title = "no motion keeps every constraint yet"
    if so_far.best is not None:
        position = so_far.cut.trajectory(so_far.best).position
        left.plot(_MM * position[:, 2], _MM * position[:, 1], color=TEXT, lw=2)
        title = f"best so far: {so_far.best_mean_n:.2f} N, vertical cut {so_far.vertical_n:.2f} N"
    left.set(xlabel="along the blade, z [mm]", ylabel="height [mm]", aspect="equal")
    left.set_title(title, color=TEXT)
    for name, rows in so_far.means.items():
        right.plot(*zip(*rows, strict=True), marker=".", label=name)
    right.axhline(so_far.vertical_n, color=WARNING, lw=1, ls="--", label="vertical cut")
    right.set(xlabel="simulation", ylabel="mean force [N]")
    right.xaxis.get_major_locator().set_params(integer=True)
    right.legend(frameon=False)
    return pixels_of(canvas)


# Adam and Adamax in NumPy (Kingma and Ba 2015): torch's overhead exceeds the cost of MDMM's steps

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1.0e-8
"""Decay rates of the gradient's mean and size, and the floor of the size: defaults of the paper and of torch."""


class Adamax:
    """Steps of about the rate: the mean gradient / its recent maximum."""

    def __init__(self) -> None:
        self._count = 0
        self._mean: _Array | float = 0.0
        self._largest: _Array | float = 0.0

    def step(self, gradient: _Array, rate: float) -> _Array:
        """Return the increment of the variables."""
        self._count += 1
        self._mean = _BETA1 * self._mean + (1.0 - _BETA1) * gradient
        self._largest = np.maximum(_BETA2 * self._largest, np.abs(gradient) + _EPSILON)
        return -rate / (1.0 - _BETA1**self._count) * self._mean / self._largest


class Adam:
    """Steps of about the rate: the mean gradient / its root mean square."""

    def __init__(self) -> None:
        self._count = 0
        self._mean: _Array | float = 0.0
        self._square: _Array | float = 0.0

    def step(self, gradient: _Array, rate: float) -> _Array:
        """Return the increment of the variables."""
        self._count += 1
        self._mean = _BETA1 * self._mean + (1.0 - _BETA1) * gradient
        self._square = _BETA2 * self._square + (1.0 - _BETA2) * gradient * gradient
        size = np.sqrt(self._square / (1.0 - _BETA2**self._count)) + _EPSILON
        return -rate / (1.0 - _BETA1**self._count) * self._mean / size


# Curvature of the mean force, learnt from the slopes of simulated motions (damped BFGS)


_DAMPING = 0.2
"""Powell's damping: lower bound of the curvature along a step, as a fraction of the expected one."""


class Curvature:
    """A positive definite matrix over the flat variables, shape [n, n]."""

    def __init__(self, slope: _Array, radius: float) -> None:
        """Start with an isotropic matrix, such that the step down the first slope has the radius' length."""
        self.matrix: _Array = np.eye(slope.size) * (float(np.linalg.norm(slope)) / radius)

    def learn(self, step: _Array, slope_change: _Array) -> None:
        """Update with the change of the slope along a step; both of the variables' shape."""
        s, y = step.reshape(-1), slope_change.reshape(-1)
        expected = self.matrix @ s
        size = float(s @ expected)
        if size <= 0.0:
            return
        along = float(s @ y)
        if along < _DAMPING * size:
            share = (1.0 - _DAMPING) * size / (size - along)
            y = share * y + (1.0 - share) * expected
            along = float(s @ y)
        self.matrix = self.matrix - np.outer(expected, expected) / size + np.outer(y, y) / along

    def energy(self, step: _Array) -> tuple[float, _Array]:
        """Return half the quadratic form of a step [-], and the derivatives in the step."""
        flat = self.matrix @ step.reshape(-1)
        return 0.5 * float(step.reshape(-1) @ flat), flat.reshape(step.shape)


# One step of the search: MDMM on the motion, with the mean force replaced by a quadratic model
#
# A simulation with its gradient takes seconds, a trajectory a fraction of a millisecond. So between two simulations
# MDMM
# solves the whole constrained problem, hundreds of small steps, and every simulated motion is (nearly) feasible.


_STEPS_PER_RADIUS = 20.0
"""The optimiser's rate is the radius over this, so that it can cross the radius and come back."""
_LEAST_SLOPE = 1.0e-3
"""Minimum slope of the wall [-], so that it exists without a slope."""
_FAR = 1.0
"""Largest distance of a target outside the limits, in the variables' units; farther costs accuracy."""
_WALL = 10.0
"""Stiffness of the wall at the radius, in slopes per radius: the step exceeds it by at most a tenth."""


@dataclass(frozen=True)
class ForceModel:
    """Mean force near a motion / that of the vertical cut: slope · d + d · curvature d / 2 for a step d."""

    centre: _Array
    """Variables of the motion, shape [3, keyframes]."""
    slope: _Array
    """Gradient in them, same shape."""
    curvature: Curvature

    def change(self, variables: _Array) -> tuple[float, _Array]:
        """Return the change of the mean force from the centre [-], and the derivatives in the variables."""
        step = variables - self.centre
        bent, bent_slope = self.curvature.energy(step)
        return float((self.slope * step).sum()) + bent, self.slope + bent_slope


def solve(
    cut: SlicingCut, constraints: Constraints, model: ForceModel, radius: float, params: OptimizeParams
) -> _Array:
    """Return the variables that minimise the model of the mean force plus the speed term under the rules.

    A steep wall limits the step to the radius. With a slope of 0 the result is the feasible motion nearest to the
    centre. The multipliers start from the last call.
    """
    variables = model.centre.copy()
    optimiser = load_named(OPTIMISERS[params.optimiser])()
    for number in range(params.inner_iterations):
        rate = 0.5 * radius / _STEPS_PER_RADIUS * (1.0 + np.cos(np.pi * number / params.inner_iterations))
        _, gradient, ascent = lagrangian(cut, constraints, model, radius, params, variables)
        variables = variables + optimiser.step(gradient, rate)
        constraints.multipliers = constraints.multipliers + params.multiplier_rate * ascent
    return variables


def lagrangian(
    cut: SlicingCut,
    constraints: Constraints,
    model: ForceModel,
    radius: float,
    params: OptimizeParams,
    variables: _Array,
) -> tuple[float, _Array, _Array]:
    """Return the Lagrangian that MDMM descends [-], its derivatives in the variables, and those in the multipliers."""
    trajectory, pullback = cut.coarse_trajectory(variables)
    bar = Trajectory.zeros(len(trajectory.velocity))
    force, force_slope = model.change(variables)
    beyond, beyond_slope = _wall(variables - model.centre, model.slope, radius)
    speed = speed_term(trajectory, params, bar)
    rules, ascent = constraints.lagrangian(trajectory, bar)
    return force + beyond + speed + rules, force_slope + beyond_slope + pullback(bar), ascent


def _wall(step: _Array, slope: _Array, radius: float) -> tuple[float, _Array]:
    """Return the energy of a step beyond the radius [-], and its derivatives in the step."""
    stiffness = _WALL * max(float(np.linalg.norm(slope)), _LEAST_SLOPE) / radius
    length = float(np.sqrt((step * step).sum() + 1e-12))
    beyond = max(0.0, length - radius)
    return 0.5 * stiffness * beyond * beyond, stiffness * beyond / length * step


def nearest_feasible(
    cut: SlicingCut, constraints: Constraints, wish: _Array, params: OptimizeParams
) -> _Array:
    """Return the motion inside all limits that is nearest to the target."""
    flat = Curvature(np.full_like(wish, _LEAST_SLOPE / wish.size**0.5), _FAR)
    return solve(cut, constraints, ForceModel(wish, np.zeros_like(wish), flat), _FAR, params)


def feasible_start(cut: SlicingCut, wish: _Array, params: OptimizeParams) -> _Array:
    """Return a wished motion that ends at its height: unchanged if it keeps every rule, else the nearest that does."""
    constraints, start = Constraints(rules_of(cut.passage, params), params), cut.at_end_height(wish)
    if constraints.violation(constraints.residuals(cut.trajectory(start))) > 0.0:
        return nearest_feasible(cut, constraints, start, params)
    return start


_GROW, _SHRINK = 1.5, 0.4
"""Factors on the radius after a step that was better, or was not."""
_CONVERGED = "converged"
_NO_GAIN = "no step promises more than least_gain"
LEFT_BEHIND = "left behind by a better start"
"""Possible ends of a descent."""


@dataclass
class Point:
    """A simulated motion."""

    variables: _Array
    """Shape [3, keyframes]."""
    slope: _Array
    """Gradient of mean force / that of the vertical cut, same shape."""
    objective: float
    mean_force_n: float
    residuals: dict[str, float]
    violation: float
    """0 if every rule holds within its tolerance."""

    def better_than(self, other: "Point | None") -> bool:
        """Compare feasibility first, then the objective."""
        if other is None:
            return True
        return (self.violation, self.objective) < (other.violation, other.objective)


@dataclass
class Descent:
    """Result of one start."""

    best: Point | None = None
    history: list[dict[str, Any]] = field(default_factory=list)
    """Per simulation: objective, mean force, radius, feasible, better, residual of every rule."""
    ended: str = "budget used"
    state: dict[str, Any] = field(default_factory=dict)
    """State from which another search can resume."""

    @property
    def feasible(self) -> bool:
        """True if the best motion keeps every rule."""
        return self.best is not None and self.best.violation == 0.0

    def best_after(self, simulations: int) -> float:
        """Return the lowest objective among the first `simulations` feasible motions; infinite if there was none."""
        rows = self.history[:simulations]
        return min((row["objective"] for row in rows if row["feasible"]), default=np.inf)


class Search:
    """State of one descent: a trust region around the best motion so far."""

    def __init__(
        self, cut: SlicingCut, start: _Array, params: OptimizeParams, *, scale_n: float, constrained: bool
    ) -> None:
        self._cut, self._params, self._scale, self._constrained = cut, params, scale_n, constrained
        rules = rules_of(cut.passage, params)
        self._rules = Constraints(rules, params)
        self._active = Constraints(rules if constrained else (), params)
        self._next = start.copy()
        self._gain = np.inf
        """Expected gain of the next motion by the force model, as a fraction of the mean force."""
        self._radius = params.start_radius
        self._curvature: Curvature | None = None
        self.run = Descent()

    def over(self) -> bool:
        """Return True if the descent has ended."""
        if self._radius < self._params.least_radius:
            best, promises = self.run.best, self._gain >= self._params.least_gain
            self.run.ended = (
                "the simulations do not finish" if best is None else _CONVERGED if promises else _NO_GAIN
            )
            return True
        return len(self.run.history) >= self._params.iterations

    def step(self) -> None:
        """Simulate once with gradient, then compute the next motion by MDMM."""
        point = self._simulate(self._next)
        better = point is not None and point.better_than(self.run.best)
        self._note(point, better)
        if point is not None:
            self._learn(point)
        if better:
            self.run.best = point
        self._radius *= _GROW if better else _SHRINK
        centre = self.run.best
        if centre is None or self._curvature is None:
            self._next, self._gain = self._next * 0.5 + self._cut.straight() * 0.5, np.inf
        else:
            self._choose_next(centre, ForceModel(centre.variables, centre.slope, self._curvature))

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume, as plain values."""
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
        """Resume from a saved state."""
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
        """Update the curvature with the change of the slope from the best motion so far to this one, better or not."""
        best = self.run.best
        if self._curvature is None or best is None:
            self._curvature = Curvature(point.slope, self._params.start_radius)
        else:
            self._curvature.learn(point.variables - best.variables, point.slope - best.slope)

    def _choose_next(self, centre: Point, model: ForceModel) -> None:
        """Compute the next motion by MDMM. One with too little expected gain is not simulated; a shorter step is tried.

        A shorter one may promise more, because MDMM does not find the exact minimum, and less so over a larger radius.
        """
        while True:
            self._next = solve(self._cut, self._active, model, self._radius, self._params)
            self._gain = self._expected_gain(centre, model)
            hopeless = self._gain < self._params.least_gain and self.run.feasible
            if not hopeless or self._radius < self._params.least_radius:
                return
            self._radius *= _SHRINK

    def _expected_gain(self, centre: Point, model: ForceModel) -> float:
        """Return the expected decrease of the objective by the next motion / the best motion's mean force."""
        change, _ = model.change(self._next)
        speeds = [speed_term(self._cut.trajectory(v), self._params) for v in (centre.variables, self._next)]
        return float(speeds[0] - speeds[1] - change) * self._scale / centre.mean_force_n

    def _simulate(self, at: _Array) -> Point | None:
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
    start: _Array,
    params: OptimizeParams,
    *,
    scale_n: float,
    constrained: bool = True,
    checkpoint: Checkpoint,
    report: Callable[[Descent], None] = lambda run: None,
    state: dict[str, Any] | None = None,
) -> Descent:
    """Minimise the objective under the constraints, or without them for the ablation.

    Resume from `state` if given.
    """
    search = Search(cut, start, params, scale_n=scale_n, constrained=constrained)
    if state:
        search.restore(state)
    run = run_to_end(search, checkpoint, lambda search: report(search.run)).run
    run.state = search.state()
    return run
