"""Fitting methods based on torch optimisers, L-BFGS and Adam; the best point is kept."""

import math
from dataclasses import asdict
from typing import Any

import torch

from stages.calibrate.phase import (
    FitOutcome,
    HistoryRow,
    Objective,
    Phase,
    PhaseResult,
    Report,
    Trial,
    in_noise,
    refuse_start,
)
from stages.runtime.checkpoint import Checkpoint
from stages.shared.fitting import run_to_end

_DIVERGED_FACTOR = 3.0
"""Ratio of the final to the best loss above which the optimiser has diverged."""


class _TorchDescent:
    """One phase. A method defines its optimiser and overrides the defaults where needed."""

    ends_evaluated: bool
    """True if a step ends at an evaluated point, as a line search does; False if at one for the next step."""

    def __init__(self, phase: Phase, start: torch.Tensor, objective: Objective) -> None:
        self.phase, self.objective = phase, objective
        self.free = start.detach().clone().requires_grad_(True)
        self.history: list[HistoryRow] = []
        self._optimiser = self.new_optimiser()

    def new_optimiser(self) -> torch.optim.Optimizer:
        """Return a fresh optimiser of self.free; also called at every return to the best point."""
        raise NotImplementedError

    def rate(self) -> float:
        """Return the optimiser's rate in this iteration."""
        return 1.0

    def patience(self) -> int:
        """Return the number of iterations in which the best loss must fall by params.tolerance."""
        return self.phase.params.patience

    def is_lost(self, improved: bool) -> bool:  # noqa: ARG002
        """Return True to go back to the best point although the last trial succeeded; called once per iteration."""
        return False

    def on_return(self) -> None:
        """Hook after a return to the best point."""

    def own_state(self) -> dict[str, Any]:
        """Return the method's own state, in addition to the optimiser's."""
        return {}

    def restore_own(self, state: dict[str, Any]) -> None:
        """Restore the state returned by own_state."""

    def step(self) -> None:
        """Run one iteration of the optimiser."""
        objective = self.objective
        fresh_from, best_before = len(objective.recent), objective.best
        self._move()
        trials = objective.recent[fresh_from:] or objective.recent
        reached = self._at(self.free) if self.ends_evaluated else trials[-1]
        failed = any(trial.failure for trial in trials)
        back = reached is None or bool(reached.failure) or self._lost(best_before)
        if back or reached is None:
            self._back_to_best()
            reached = objective.best or trials[-1]
        objective.recent = [reached]
        if back and not self.ends_evaluated and objective.best is not None:
            self._move()  # from the best point, whose gradient is known
        best = objective.best
        self.history.append(
            HistoryRow(
                self.phase.name,
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
        """Return True if the phase has ended."""
        rows = self.history
        if len(rows) >= self.phase.iterations or (rows and self.objective.best is None):
            return True
        return self._flat() or self._in_noise()

    def outcome(self) -> FitOutcome:
        """Return the outcome."""
        rows = self.history
        if self._in_noise():
            return FitOutcome.NOISE
        recent = rows[-self.phase.params.patience :]
        if all(row.failed for row in recent) or (self._flat() and any(row.failed for row in recent)):
            return FitOutcome.STALLED
        if rows[-1].loss > _DIVERGED_FACTOR * rows[-1].best_loss:
            return FitOutcome.DIVERGED
        return FitOutcome.CONVERGED if self._flat() else FitOutcome.BUDGET

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume."""
        objective = self.objective
        return {
            "free": self.free.detach().clone(),
            "optimiser": self._optimiser.state_dict(),
            "own": self.own_state(),
            "gradients": objective.gradients,
            "best": None if objective.best is None else asdict(objective.best),
            "recent": [asdict(trial) for trial in objective.recent],
            "history": [asdict(row) for row in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        with torch.no_grad():
            self.free.copy_(state["free"])
        self._optimiser.load_state_dict(state["optimiser"])
        self.restore_own(state["own"])
        objective = self.objective
        objective.gradients = state["gradients"]
        objective.best = None if state["best"] is None else Trial(**state["best"])
        objective.recent = [Trial(**trial) for trial in state["recent"]]
        self.history = [HistoryRow(**row) for row in state["history"]]

    def _move(self) -> None:
        for group in self._optimiser.param_groups:
            group["lr"] = self.rate()
        self._optimiser.step(self._closure)

    def _closure(self) -> float:
        trial = self.objective(self.free.detach())
        self.free.grad = trial.gradient.clone()
        return trial.loss

    def _at(self, free: torch.Tensor) -> Trial | None:
        return next((t for t in self.objective.recent if torch.equal(t.free, free.detach())), None)

    def _lost(self, best_before: Trial | None) -> bool:
        """Return True if the trial is lost; the first one has nothing to improve on."""
        return best_before is not None and self.is_lost(self.objective.best is not best_before)

    def _back_to_best(self) -> None:
        """Return to the best point with a fresh optimiser."""
        if self.objective.best is not None:
            with torch.no_grad():
                self.free.copy_(self.objective.best.free)
        self.on_return()
        self._optimiser = self.new_optimiser()

    def _in_noise(self) -> bool:
        rows = self.history
        return bool(rows) and in_noise(rows[-1], self.objective.problem, self.phase.params)

    def _flat(self) -> bool:
        rows, patience = self.history, self.patience()
        if len(rows) <= patience:
            return False
        before = rows[-1 - patience].best_loss
        return rows[-1].best_loss > (1.0 - self.phase.params.tolerance) * before


def _descend(descent: _TorchDescent, *, checkpoint: Checkpoint, report: Report | None) -> PhaseResult:
    """Run the phase, from its start or from its checkpoint."""
    run_to_end(descent, checkpoint, None if report is None else lambda d: report(d.history[-1]))
    objective = descent.objective
    if objective.best is None:
        raise refuse_start(objective.recent[0].failure)
    return PhaseResult(objective.best, descent.outcome(), descent.history, objective.gradients)


# L-BFGS: quasi-Newton with a line search, for both phases; needs a smooth loss


class _Lbfgs(_TorchDescent):
    """One direction and its line search per iteration."""

    ends_evaluated = True

    def new_optimiser(self) -> torch.optim.Optimizer:
        """Return an L-BFGS optimiser with up to ten simulations per line search."""
        return torch.optim.LBFGS(
            [self.free],
            lr=1.0,
            max_iter=1,
            max_eval=10,
            history_size=20,
            line_search_fn="strong_wolfe",
            tolerance_grad=1e-9,
            tolerance_change=1e-12,
        )


def fit_lbfgs(
    phase: Phase,
    start: torch.Tensor,
    objective: Objective,
    *,
    checkpoint: Checkpoint,
    report: Report | None = None,
) -> PhaseResult:
    """Run a phase."""
    return _descend(_Lbfgs(phase, start, objective), checkpoint=checkpoint, report=report)


# Adam: one simulation per iteration, for both phases and any loss


_PATIENCE = 3
"""Fraction of the iterations it is given to improve: it wanders while its rate is high and improves as it falls."""
_WANDER = 4
"""Number of iterations without a new best after which it returns to the best point at half the rate."""


class _Adam(_TorchDescent):
    """Adam with a cosine rate that halves at every return to the best point."""

    ends_evaluated = False

    def __init__(self, phase: Phase, start: torch.Tensor, objective: Objective) -> None:
        super().__init__(phase, start, objective)
        self._slow = 1.0
        """Factor on the rate."""
        self._wandered = _WANDER - 1
        """Iterations without a new best. The first step, without memory, must improve at once."""

    def new_optimiser(self) -> torch.optim.Optimizer:
        """Return Adam with a short memory."""
        return torch.optim.Adam([self.free], lr=self.phase.params.learning_rate, betas=(0.9, 0.9))

    def rate(self) -> float:
        """Return the rate, from params.learning_rate down to 2 % of it."""
        share = len(self.history) / max(1, self.phase.iterations)
        return (
            self._slow
            * self.phase.params.learning_rate
            * (0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * share)))
        )

    def patience(self) -> int:
        """Return a third of the iterations, if that is more than params.patience."""
        return max(super().patience(), self.phase.iterations // _PATIENCE)

    def is_lost(self, improved: bool) -> bool:
        """Return True after WANDER iterations without a new best."""
        self._wandered = 0 if improved else self._wandered + 1
        return self._wandered >= _WANDER

    def on_return(self) -> None:
        """Halve the rate from now on."""
        self._slow *= 0.5
        self._wandered = _WANDER - 1

    def own_state(self) -> dict[str, Any]:
        """Return the rate factor."""
        return {"slow": self._slow, "wandered": self._wandered}

    def restore_own(self, state: dict[str, Any]) -> None:
        """Restore the rate factor."""
        self._slow, self._wandered = state["slow"], state["wandered"]


def fit_adam(
    phase: Phase,
    start: torch.Tensor,
    objective: Objective,
    *,
    checkpoint: Checkpoint,
    report: Report | None = None,
) -> PhaseResult:
    """Run a phase."""
    return _descend(_Adam(phase, start, objective), checkpoint=checkpoint, report=report)
