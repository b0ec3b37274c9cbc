"""One phase of the fit: an optimiser steps, the best point is kept, every iteration can be resumed."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import torch

from disect_sim.errors import InputError
from stages.calibrate.objective import Objective, Trial
from stages.runtime.checkpoint import Checkpoint


class FitOutcome(Enum):
    """How a fit ended, and what to do about it."""

    CONVERGED = ("converged", "The loss no longer falls.")
    STALLED = (
        "stalled",
        "The simulations near the best point do not finish. Raise the lower bound of sdf_tip, lower the upper one of "
        "sdf_mu, or shorten calibrate.dt_s.",
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


ADAM_PATIENCE = 3
"""Adam wanders while its rate is high and improves as it falls: it is given a third of its iterations to improve."""
WANDER = 4
"""Adam may go on so many iterations without a new best; it then returns to the best point at half the rate."""
DIVERGED_FACTOR = 3.0
"""A loss this many times the best one, at the end of a phase, means the optimiser ran away."""


@dataclass(frozen=True)
class Schedule:
    """How long and how a phase descends."""

    optimiser: str
    """lbfgs, adam or gauss_newton."""
    iterations: int
    learning_rate: float
    """Of Adam, at the start of its cosine schedule; L-BFGS searches along its line instead."""
    tolerance: float
    """The phase ends when the best loss fell by less than this share in `patience` iterations."""
    patience: int


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


@dataclass(frozen=True)
class PhaseResult:
    """Where a phase got to."""

    best: Trial
    outcome: FitOutcome
    history: list[HistoryRow]
    gradients: int


def descend(
    phase: str,
    start: torch.Tensor,
    objective: Objective,
    schedule: Schedule,
    *,
    checkpoint: Checkpoint,
    tell: Callable[[HistoryRow], None] | None = None,
) -> PhaseResult:
    """Run a phase from its start, or from its checkpoint."""
    descent = _Descent(phase, start, objective, schedule)
    saved = checkpoint.load()
    if saved is not None:
        descent.restore(saved)
    while not descent.over():
        descent.step()
        checkpoint.save(descent.state())
        if tell is not None:
            tell(descent.history[-1])
    if objective.best is None:
        raise InputError(
            f"calibrate: the simulation with the start parameters did not finish: {objective.recent[0].failure} "
            "Change calibrate.start in params.yaml."
        )
    return PhaseResult(objective.best, descent.outcome(), descent.history, objective.gradients)


class _Descent:
    def __init__(self, phase: str, start: torch.Tensor, objective: Objective, schedule: Schedule) -> None:
        self._phase, self._objective, self._schedule = phase, objective, schedule
        self._free = start.detach().clone().requires_grad_(True)
        self._optimiser = self._new_optimiser()
        self._slow = 1.0
        """Factor on Adam's rate; halved at every return to the best point."""
        self._wandered = WANDER - 1
        """Iterations of Adam without a new best. A first step, all signs and no memory, must improve at once."""
        self.history: list[HistoryRow] = []

    def step(self) -> None:
        """One iteration of the optimiser."""
        objective = self._objective
        fresh_from, best_before = len(objective.recent), objective.best
        self._move()
        trials = objective.recent[fresh_from:] or objective.recent
        reached = trials[-1] if self._is_adam else self._at(self._free)
        failed = any(trial.failure for trial in trials)
        back = reached is None or bool(reached.failure) or self._lost(best_before)
        if back or reached is None:
            self._back_to_best()
            reached = objective.best or trials[-1]
        objective.recent = [reached]
        if back and self._is_adam and objective.best is not None:
            self._move()  # from the best point, whose gradient is known
        best = objective.best
        self.history.append(
            HistoryRow(
                self._phase,
                len(self.history) + 1,
                objective.gradients,
                objective.gradients,
                reached.loss,
                reached.loss if best is None else best.loss,
                reached.nmae if best is None else best.nmae,
                float(reached.gradient.norm()),
                failed,
            )
        )

    def over(self) -> bool:
        """Whether to stop."""
        s, rows = self._schedule, self.history
        if len(rows) >= s.iterations or (rows and self._objective.best is None):
            return True
        return self._flat()

    def outcome(self) -> FitOutcome:
        """What the end looks like."""
        rows, s = self.history, self._schedule
        recent = rows[-s.patience :]
        if all(row.failed for row in recent) or (self._flat() and any(row.failed for row in recent)):
            return FitOutcome.STALLED
        if rows[-1].loss > DIVERGED_FACTOR * rows[-1].best_loss:
            return FitOutcome.DIVERGED
        return FitOutcome.CONVERGED if self._flat() else FitOutcome.BUDGET

    def state(self) -> dict[str, Any]:
        """Everything needed to go on."""
        objective = self._objective
        return {
            "free": self._free.detach().clone(),
            "optimiser": self._optimiser.state_dict(),
            "slow": self._slow,
            "wandered": self._wandered,
            "gradients": objective.gradients,
            "best": None if objective.best is None else asdict(objective.best),
            "recent": [asdict(trial) for trial in objective.recent],
            "history": [asdict(row) for row in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        with torch.no_grad():
            self._free.copy_(state["free"])
        self._optimiser.load_state_dict(state["optimiser"])
        self._slow, self._wandered = state["slow"], state["wandered"]
        objective = self._objective
        objective.gradients = state["gradients"]
        objective.best = None if state["best"] is None else Trial(**state["best"])
        objective.recent = [Trial(**trial) for trial in state["recent"]]
        self.history = [HistoryRow(**row) for row in state["history"]]

    @property
    def _is_adam(self) -> bool:
        return self._schedule.optimiser == "adam"

    def _new_optimiser(self) -> torch.optim.Optimizer:
        if self._is_adam:
            return torch.optim.Adam([self._free], lr=self._schedule.learning_rate, betas=(0.9, 0.9))
        return torch.optim.LBFGS(
            [self._free],
            lr=1.0,
            max_iter=1,
            max_eval=10,
            history_size=20,
            line_search_fn="strong_wolfe",
            tolerance_grad=1e-9,
            tolerance_change=1e-12,
        )

    def _rate(self, iteration: int) -> float:
        if not self._is_adam:
            return 1.0
        share = iteration / max(1, self._schedule.iterations)
        return (
            self._slow
            * self._schedule.learning_rate
            * (0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * share)))
        )

    def _move(self) -> None:
        for group in self._optimiser.param_groups:
            group["lr"] = self._rate(len(self.history))
        self._optimiser.step(self._closure)

    def _closure(self) -> float:
        trial = self._objective(self._free.detach())
        self._free.grad = trial.gradient.clone()
        return trial.loss

    def _at(self, free: torch.Tensor) -> Trial | None:
        return next((t for t in self._objective.recent if torch.equal(t.free, free.detach())), None)

    def _lost(self, best_before: Trial | None) -> bool:
        """Whether Adam has gone too long without a new best; the first trial of all has nothing to improve on."""
        if not self._is_adam or best_before is None:
            return False
        self._wandered = 0 if self._objective.best is not best_before else self._wandered + 1
        return self._wandered >= WANDER

    def _back_to_best(self) -> None:
        """Return to the best point with a fresh optimiser and, for Adam, half the rate."""
        if self._objective.best is not None:
            with torch.no_grad():
                self._free.copy_(self._objective.best.free)
        self._slow *= 0.5
        self._wandered = WANDER - 1
        self._optimiser = self._new_optimiser()

    def _flat(self) -> bool:
        s, rows = self._schedule, self.history
        patience = max(s.patience, s.iterations // ADAM_PATIENCE) if self._is_adam else s.patience
        if len(rows) <= patience:
            return False
        before = rows[-1 - patience].best_loss
        return rows[-1].best_loss > (1.0 - s.tolerance) * before
