"""Levenberg–Marquardt for the handful of shared parameters: a Jacobian from one simulation per parameter.

A simulation without a gradient costs half of one with it, and a Gauss-Newton step knows how the parameters trade off
against each other, which a gradient does not. Large residuals are weighted down as in pseudo-Huber.
"""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.calibrate.descent import FitOutcome, HistoryRow, PhaseResult, Schedule
from stages.calibrate.losses import HUBER_FRACTION, pseudo_huber
from stages.calibrate.objective import Trial
from stages.calibrate.problem import Problem, TrialFailedError
from stages.calibrate.unknowns import Unknowns
from stages.calibrate.validation import errors
from stages.runtime.checkpoint import Checkpoint

DIFFERENCE = 0.02
"""Step of the one-sided differences, in free numbers: half a per cent of a middle value's range."""
FIRST_DAMPING = 1.0e-2
"""Of the mean curvature; grows after a bad step and shrinks after a good one."""
LONGEST_STEP = 1.5
"""No free number moves further than this in one iteration."""
TRIES = 6
"""Damped steps tried per iteration."""

Array = NDArray[np.float64]


class Residuals:
    """Residuals of the training samples over the mean force, and their Jacobian in the free numbers."""

    def __init__(self, problem: Problem, unknowns: Unknowns) -> None:
        self.problem, self.unknowns = problem, unknowns
        self._seen = problem.training.numpy()
        self.simulations = 0

    def profile(self, free: torch.Tensor) -> Array | None:
        """Simulated profile [N], or None if the simulation did not finish."""
        self.simulations += 1
        with torch.no_grad():
            try:
                return self.problem.simulate(*self.unknowns.tensors(free))[0].numpy()
            except TrialFailedError:
                return None

    def residual(self, profile: Array) -> Array:
        """Shape [training sample count]."""
        return ((profile - self.problem.measured) / self.problem.mean_force)[self._seen]

    def jacobian(self, free: torch.Tensor, profile: Array) -> Array:
        """d residual / d free, shape [training sample count, unknown count]; a column that fails twice is zero."""
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


def levenberg_marquardt(
    phase: str,
    start: torch.Tensor,
    problem: Problem,
    unknowns: Unknowns,
    schedule: Schedule,
    *,
    checkpoint: Checkpoint,
    tell: Callable[[HistoryRow], None] | None = None,
) -> PhaseResult:
    """Run the phase from its start, or from its checkpoint."""
    descent = _Marquardt(phase, start, Residuals(problem, unknowns), schedule)
    saved = checkpoint.load()
    if saved is not None:
        descent.restore(saved)
    while not descent.over():
        descent.step()
        checkpoint.save(descent.state())
        if tell is not None:
            tell(descent.history[-1])
    zero = torch.zeros_like(descent.free)
    last = descent.history[-1]
    best = Trial(descent.free, last.best_loss, zero, last.nmae)
    return PhaseResult(best, descent.outcome(), descent.history, last.gradients)


class _Marquardt:
    def __init__(self, phase: str, start: torch.Tensor, residuals: Residuals, schedule: Schedule) -> None:
        self._phase, self._residuals, self._schedule = phase, residuals, schedule
        self.free = start.detach().clone()
        self._profile: Array | None = None
        self._damping = FIRST_DAMPING
        self._stuck = False
        self.history: list[HistoryRow] = []

    def step(self) -> None:
        """One Jacobian and the damped steps it takes until the loss falls."""
        r = self._residuals
        if self._profile is None:
            self._profile = r.profile(self.free)
        if self._profile is None:
            raise InputError(
                "calibrate: the simulation with the start parameters did not finish: "
                f"{self._failure()} Change calibrate.start in params.yaml."
            )
        residual = r.residual(self._profile)
        jacobian = r.jacobian(self.free, self._profile)
        weight = 1.0 / np.sqrt(1.0 + (residual / HUBER_FRACTION) ** 2)
        curvature = jacobian.T @ (weight[:, None] * jacobian)
        slope = jacobian.T @ (weight * residual)
        loss = self._loss(self._profile)
        failed, self._stuck = False, True
        unit = np.trace(curvature) / len(slope) * np.eye(len(slope))
        for _ in range(TRIES):
            step = -np.linalg.solve(curvature + self._damping * unit + 1e-12 * np.eye(len(slope)), slope)
            step *= min(1.0, LONGEST_STEP / max(float(np.abs(step).max()), 1e-300))
            free = self.free + torch.as_tensor(step)
            profile = r.profile(free)
            failed = failed or profile is None
            if profile is not None and self._loss(profile) < loss:
                self.free, self._profile, self._stuck = free, profile, False
                self._damping = max(self._damping / 5.0, 1e-6)
                break
            self._damping *= 5.0
        self._record(float(np.linalg.norm(slope)), failed)

    def over(self) -> bool:
        """Whether to stop."""
        return len(self.history) >= self._schedule.iterations or self._stuck or self._flat()

    def outcome(self) -> FitOutcome:
        """What the end looks like."""
        if self._stuck or self._flat():
            return FitOutcome.STALLED if self.history[-1].failed else FitOutcome.CONVERGED
        return FitOutcome.BUDGET

    def state(self) -> dict[str, Any]:
        """Everything needed to go on."""
        assert self._profile is not None
        return {
            "free": self.free.clone(),
            "profile": torch.as_tensor(self._profile).clone(),
            "damping": self._damping,
            "stuck": self._stuck,
            "simulations": self._residuals.simulations,
            "history": [asdict(row) for row in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.free, self._profile = state["free"], state["profile"].numpy()
        self._damping, self._stuck = state["damping"], state["stuck"]
        self._residuals.simulations = state["simulations"]
        self.history = [HistoryRow(**row) for row in state["history"]]

    def _record(self, gradient_norm: float, failed: bool) -> None:
        assert self._profile is not None
        p = self._residuals.problem
        seen = p.contact & p.valid & ~p.held_out
        loss = self._loss(self._profile)
        self.history.append(
            HistoryRow(
                self._phase,
                len(self.history) + 1,
                0,
                self._residuals.simulations,
                loss,
                loss,
                errors(self._profile, p.measured, seen, p.mean_force).nmae,
                gradient_norm,
                failed,
            )
        )

    def _loss(self, profile: Array) -> float:
        p = self._residuals.problem
        seen = p.training
        measured = torch.as_tensor(p.measured)
        return float(pseudo_huber(torch.as_tensor(profile)[seen], measured[seen], p.mean_force))

    def _flat(self) -> bool:
        """A Gauss-Newton step that brings next to nothing is the end: no patience is needed."""
        rows = self.history
        return len(rows) > 1 and rows[-1].loss > (1.0 - self._schedule.tolerance) * rows[-2].loss

    def _failure(self) -> str:
        result = self._residuals.problem.module.last_result
        return "" if result is None else str(result.outcome)
