"""One phase of the fit: unknowns, residuals, objective, and input and result of a fitting method."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim.parameters import SURFACE_PREFIX, parameter_info
from stages.calibrate.description import CalibrateParams
from stages.calibrate.methods import METHODS, Loss
from stages.calibrate.problem import OFFSET, Problem, TrialFailedError, errors
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.describe import load_named
from stages.runtime.errors import InputError
from stages.shared.fitting import Bound, make_bound

# Unknowns: one flat vector of free numbers ↔ the simulator's named parameters


Values = dict[str, NDArray[np.float64]]
"""Parameter name → value, shape [] or [spring_count]."""


@dataclass(frozen=True)
class Unknowns:
    """Unknown parameters and their bounds; the others are constants."""

    bounds: dict[str, Bound]
    sizes: dict[str, int]
    """1 for a shared parameter, the number of springs for an individual one."""
    constants: Values
    """All other parameters of the simulator."""

    def free(self, values: Mapping[str, NDArray[np.float64]]) -> torch.Tensor:
        """Return the flat vector for given values, shape [unknown_count]."""
        parts = [
            bound.free(torch.as_tensor(np.broadcast_to(values[name], (self.sizes[name],)).copy()))
            for name, bound in self.bounds.items()
        ]
        return torch.cat(parts)

    def parts(self, free: torch.Tensor) -> dict[str, torch.Tensor]:
        """Split the flat vector by name, each of shape [size]."""
        return dict(zip(self.bounds, torch.split(free, list(self.sizes.values())), strict=True))

    def tensors(self, free: torch.Tensor) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Return (parameters, motion) for the simulator, differentiable in the flat vector."""
        all_values = {name: torch.as_tensor(value) for name, value in self.constants.items()}
        for name, part in self.parts(free).items():
            value = self.bounds[name].value(part)
            all_values[name] = value[0] if self.sizes[name] == 1 else value
        motion = {OFFSET: all_values.pop(OFFSET)} if OFFSET in all_values else {}
        return all_values, motion

    def values(self, free: torch.Tensor) -> Values:
        """Return every parameter, unknown or constant, as numbers."""
        with torch.no_grad():
            parameters, motion = self.tensors(free)
        return {name: value.numpy().copy() for name, value in (parameters | motion).items()}


def parameter_bounds(
    names: Iterable[str], *, damage_law: str, offset_range_m: float, given: Mapping[str, tuple[float, float]]
) -> dict[str, Bound]:
    """Return the bounds of the named parameters: those given, otherwise the simulator's own."""
    out = {}
    for name in names:
        if name == OFFSET:
            low, high = -offset_range_m, offset_range_m
        else:
            info = parameter_info(name, damage_law=damage_law)
            low, high = info.low, info.high
        low, high = given.get(name, (low, high))
        out[name] = make_bound(name, low, high)
    return out


def shared_unknowns(start: Mapping[str, float], bounds: Mapping[str, Bound]) -> tuple[Unknowns, Values]:
    """Return unknowns with one number per parameter.

    Skin parameters without a start value begin at that of the flesh.
    """
    values: Values = {name: np.asarray(value, float) for name, value in start.items()}
    for name in bounds:
        if name == OFFSET:
            values.setdefault(name, np.asarray(0.0))
        elif name not in values:
            values[name] = np.asarray(values[name.removeprefix(SURFACE_PREFIX)], float)
    constants = {name: value for name, value in values.items() if name not in bounds}
    return Unknowns(dict(bounds), dict.fromkeys(bounds, 1), constants), values


def individual_unknowns(
    names: Sequence[str], shared: Values, skin: NDArray[np.bool_], bounds: Mapping[str, Bound]
) -> tuple[Unknowns, Values]:
    """Return unknowns with one number per spring for the named parameters, started from the shared fit, skin included.

    The other parameters with bounds stay unknown too, with one number each, so that they can adjust.
    """
    values = dict(shared)
    for name in names:
        flesh = values[name]
        on_skin = values.pop(SURFACE_PREFIX + name, flesh)
        values[name] = np.where(skin, on_skin, flesh)
    sought = [name for name in bounds if name in values]
    constants = {name: value for name, value in values.items() if name not in sought}
    sizes = {name: len(skin) if name in names else 1 for name in sought}
    return Unknowns({name: bounds[name] for name in sought}, sizes, constants), values


# Residuals and their Jacobian by finite differences, for Gauss–Newton and the error estimate


DIFFERENCE = 0.02
"""Step of the one-sided differences, in free numbers: half a per cent of a middle value's range."""

_Array = NDArray[np.float64]


class Residuals:
    """Residuals of the training samples over the mean force, and their Jacobian in the free numbers."""

    def __init__(self, problem: Problem, unknowns: Unknowns) -> None:
        self.problem, self.unknowns = problem, unknowns
        self._seen = problem.training.numpy()
        self.simulations = 0

    def profile(self, free: torch.Tensor) -> _Array | None:
        """Return the simulated profile [N], or None if the simulation did not finish."""
        self.simulations += 1
        with torch.no_grad():
            try:
                return self.problem.simulate(*self.unknowns.tensors(free))[0].numpy()
            except TrialFailedError:
                return None

    def residual(self, profile: _Array) -> _Array:
        """Return the residual, shape [training sample count]."""
        return ((profile - self.problem.measured) / self.problem.mean_force)[self._seen]

    def jacobian(self, free: torch.Tensor, profile: _Array) -> _Array:
        """Return d residual / d free, shape [training sample count, unknown count].

        A column that fails twice is zero.
        """
        columns = []
        for i in range(len(free)):
            column = np.zeros(len(self._seen))
            for step in (DIFFERENCE, -DIFFERENCE):
                moved = free.clone()
                moved[i] += step
                other = self.profile(moved)
                if other is not None:
                    column = (self.residual(other) - self.residual(profile)) / step
                    break
            columns.append(column)
        return np.stack(columns, axis=1)


# Loss and gradient of a trial, with failed trials made finite


_FAILED_FACTOR = 3.0
"""Loss of a failed trial, as a multiple of the best loss: a line search then backtracks, with finite numbers."""

_Prior = Callable[[dict[str, torch.Tensor]], torch.Tensor]
"""Free numbers by name → term added to the loss."""


@dataclass
class Trial:
    """One evaluated point."""

    free: torch.Tensor
    loss: float
    gradient: torch.Tensor
    nmae: float
    failure: str = ""
    """Reason why the simulation did not finish; empty if it did."""


class Objective:
    """Loss over the training samples as a function of the free numbers."""

    def __init__(self, problem: Problem, unknowns: Unknowns, loss: Loss, prior: _Prior | None = None) -> None:
        self.problem, self.unknowns = problem, unknowns
        self._loss, self._prior = loss, prior
        self._seen = problem.training
        self._measured = torch.as_tensor(problem.measured)
        self.best: Trial | None = None
        self.gradients = 0
        self.recent: list[Trial] = []
        """Trials of the last iteration, cached for an optimiser that evaluates a point again."""

    def __call__(self, free: torch.Tensor) -> Trial:
        """Evaluate a point, or return it from the cache."""
        for trial in self.recent:
            if torch.equal(trial.free, free):
                return trial
        trial = self._evaluate(free.detach().clone())
        self.gradients += 1
        self.recent.append(trial)
        if not trial.failure and (self.best is None or trial.loss < self.best.loss):
            self.best = trial
        return trial

    def _evaluate(self, free: torch.Tensor) -> Trial:
        x = free.clone().requires_grad_(True)
        try:
            simulated, _ = self.problem.simulate(*self.unknowns.tensors(x))
            data = self._loss(simulated[self._seen], self._measured[self._seen], self.problem.mean_force)
            total = data if self._prior is None else data + self._prior(self.unknowns.parts(x))
            total.backward()
        except TrialFailedError as failed:
            return self._bad(free, str(failed))
        assert x.grad is not None
        if not (torch.isfinite(total) and torch.isfinite(x.grad).all()):
            return self._bad(free, "Loss or gradient is not a number.")
        p = self.problem
        seen = p.contact & p.valid & ~p.held_out
        nmae = errors(simulated.detach().numpy(), p.measured, seen, p.mean_force).nmae
        return Trial(free, float(total.detach()), x.grad.detach().clone(), nmae)

    def _bad(self, free: torch.Tensor, why: str) -> Trial:
        loss = _FAILED_FACTOR * (1.0 if self.best is None else self.best.loss)
        return Trial(free, loss, torch.zeros_like(free), float("nan"), why)


# Outcome of a fit: a word and a message with the remedy


class FitOutcome(Enum):
    """Outcome of a fit and its remedy."""

    CONVERGED = ("converged", "The loss no longer falls.")
    NOISE = (
        "at the log's noise",
        "The mean error is below the repeatability of the log (calibrate.enough_n).",
    )
    STALLED = (
        "stalled",
        "The simulations near the best point do not finish. Raise the lower bound of sdf_tip, lower the upper one of "
        "sdf_mu, or shorten cut.dt_s.",
    )
    BUDGET = (
        "budget used",
        "The loss was still falling. Raise calibrate.shared_iterations or calibrate.individual_iterations.",
    )
    DIVERGED = (
        "diverged",
        "The loss grew far above its best value, which was kept. Lower calibrate.learning_rate.",
    )
    NO_LOG = (
        "no log, nominal parameters",
        "Give the force log of a cut: scan2cut run SCAN --log FILE.",
    )

    def __init__(self, word: str, remedy: str) -> None:
        self.word, self.remedy = word, remedy


@dataclass(frozen=True)
class Phase:
    """Task of a fitting method and its limits."""

    name: str
    """Name: shared, shared 2, ... (other starts) or individual."""
    method: str
    """Key of stages.calibrate.methods.METHODS."""
    iterations: int
    params: CalibrateParams
    """The settings of all methods: learning_rate, tolerance, patience, ..."""


@dataclass(frozen=True)
class HistoryRow:
    """One iteration."""

    phase: str
    iteration: int
    gradients: int
    """Simulations with a gradient in this phase so far."""
    simulations: int
    """Number of simulations in this phase so far."""
    loss: float
    best_loss: float
    nmae: float
    """NMAE of the best point so far, over the training samples in contact."""
    gradient_norm: float
    failed: bool
    """True if a simulation of this iteration did not finish."""


Report = Callable[[HistoryRow], None]
"""Called with every iteration as it ends."""


@dataclass(frozen=True)
class PhaseResult:
    """Result of a phase."""

    best: Trial
    outcome: FitOutcome
    history: list[HistoryRow]
    gradients: int


def fit(
    phase: Phase,
    start: torch.Tensor,
    objective: Objective,
    *,
    checkpoint: Checkpoint,
    report: Report | None = None,
) -> PhaseResult:
    """Run a phase by its method, from its start or from its checkpoint. Every method has this signature.

    Args:
        phase: The task.
        start: Free numbers, shape [unknown_count].
        objective: Loss and gradient at any free numbers; the simulation behind them is objective.problem.
        checkpoint: File of the iterations (stages.shared.fitting).
        report: Called with every iteration as it ends.
    """
    method = load_named(METHODS[phase.method].function)
    result: PhaseResult = method(phase, start, objective, checkpoint=checkpoint, report=report)
    return result


def in_noise(row: HistoryRow, problem: Problem, params: CalibrateParams) -> bool:
    """Return True if the mean error is below the log's repeatability: only noise remains."""
    enough_n = params.reading.repeatability_n if params.enough_n is None else params.enough_n
    return row.nmae * problem.mean_force < enough_n


def refuse_start(failure: str) -> InputError:
    """Return the error of a method whose first simulation did not finish."""
    return InputError(
        f"calibrate: the simulation with the start parameters did not finish: {failure} "
        "Change calibrate.start in params.yaml."
    )
