"""One phase of the fit: what a fitting method gets, and what it gives back."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from disect_sim.errors import InputError
from stages.calibrate.methods.table import METHODS
from stages.calibrate.objective import Objective, Trial
from stages.calibrate.outcome import FitOutcome
from stages.calibrate.params import CalibrateParams
from stages.calibrate.problem import Problem
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.named import load


@dataclass(frozen=True)
class Phase:
    """What is to be done, for how long."""

    name: str
    """shared, shared 2, ... (other starts) or individual."""
    method: str
    """A key of stages.calibrate.methods.table.METHODS."""
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
    """All simulations in this phase so far."""
    loss: float
    best_loss: float
    nmae: float
    """Of the best point so far, over the training samples in contact."""
    gradient_norm: float
    failed: bool
    """Whether a simulation of this iteration did not finish."""


Report = Callable[[HistoryRow], None]
"""Gets every iteration as it ends."""


@dataclass(frozen=True)
class PhaseResult:
    """Where a phase got to."""

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
    """Run a phase by its method, from its start or from its checkpoint. Every method is a function like this one.

    Args:
        phase: What to do.
        start: Free numbers, shape [unknown_count].
        objective: Loss and gradient at any free numbers; the simulation behind them is objective.problem.
        checkpoint: Where every iteration is saved, as stages.shared.fitting.resumable does.
        report: Gets every iteration as it ends.
    """
    method = load(METHODS[phase.method].function)
    result: PhaseResult = method(phase, start, objective, checkpoint=checkpoint, report=report)
    return result


def in_noise(row: HistoryRow, problem: Problem, params: CalibrateParams) -> bool:
    """Whether the mean error is below what the log repeats to: what is left to fit is noise."""
    return row.nmae * problem.mean_force < params.enough_n


def refuse_start(failure: str) -> InputError:
    """The error of a method whose first simulation did not finish."""
    return InputError(
        f"calibrate: the simulation with the start parameters did not finish: {failure} "
        "Change calibrate.start in params.yaml."
    )
