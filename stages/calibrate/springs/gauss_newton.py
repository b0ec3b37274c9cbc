"""Levenberg–Marquardt for the few shared parameters, with a Jacobian from one simulation per parameter.

A simulation without a gradient costs half of one with it, and a Gauss-Newton step knows the trade-offs between
parameters, which a gradient does not. Large residuals are weighted down as in pseudo-Huber.
"""

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stages.calibrate.methods import HUBER_FRACTION, pseudo_huber
from stages.calibrate.phase import (
    FitOutcome,
    HistoryRow,
    Objective,
    Phase,
    PhaseResult,
    Report,
    Residuals,
    Trial,
    in_noise,
    refuse_start,
)
from stages.calibrate.problem import errors
from stages.runtime.checkpoint import Checkpoint
from stages.shared.fitting import Damping, run_to_end

_LONGEST_STEP = 1.5
"""Largest change of any free number in one iteration."""

_Array = NDArray[np.float64]


def fit_gauss_newton(
    phase: Phase,
    start: torch.Tensor,
    objective: Objective,
    *,
    checkpoint: Checkpoint,
    report: Report | None = None,
) -> PhaseResult:
    """Run a phase. The loss is pseudo-Huber, regardless of the objective's."""
    descent = _Marquardt(phase, start, Residuals(objective.problem, objective.unknowns))
    run_to_end(descent, checkpoint, None if report is None else lambda d: report(d.history[-1]))
    zero = torch.zeros_like(descent.free)
    last = descent.history[-1]
    best = Trial(descent.free, last.best_loss, zero, last.nmae)
    return PhaseResult(best, descent.outcome(), descent.history, last.gradients)


class _Marquardt:
    def __init__(self, phase: Phase, start: torch.Tensor, residuals: Residuals) -> None:
        self._phase, self._residuals = phase, residuals
        self.free = start.detach().clone()
        self._profile: _Array | None = None
        self._damping = Damping()
        self._stuck = False
        self.history: list[HistoryRow] = []

    def step(self) -> None:
        """Compute one Jacobian and take damped steps until the loss falls."""
        r = self._residuals
        if self._profile is None:
            self._profile = r.profile(self.free)
        if self._profile is None:
            raise refuse_start(self._failure())
        residual = r.residual(self._profile)
        jacobian = r.jacobian(self.free, self._profile)
        weight = 1.0 / np.sqrt(1.0 + (residual / HUBER_FRACTION) ** 2)
        curvature = jacobian.T @ (weight[:, None] * jacobian)
        slope = jacobian.T @ (weight * residual)
        loss = self._loss(self._profile)
        failed = False

        def place(step: _Array) -> tuple[torch.Tensor, _Array] | None:
            nonlocal failed
            free = self.free + torch.as_tensor(step)
            profile = r.profile(free)
            failed = failed or profile is None
            return None if profile is None or not self._loss(profile) < loss else (free, profile)

        one = np.eye(len(slope))
        scale = np.trace(curvature) / len(slope) * one
        better = self._damping.better(curvature + 1e-12 * one, slope, scale, _LONGEST_STEP, place)
        self._stuck = better is None
        if better is not None:
            self.free, self._profile = better
        self._record(float(np.linalg.norm(slope)), failed)

    def over(self) -> bool:
        """Return True if the search has ended."""
        return len(self.history) >= self._phase.iterations or self._stuck or self._flat() or self._in_noise()

    def outcome(self) -> FitOutcome:
        """Return the outcome."""
        if self._in_noise():
            return FitOutcome.NOISE
        if self._stuck or self._flat():
            return FitOutcome.STALLED if self.history[-1].failed else FitOutcome.CONVERGED
        return FitOutcome.BUDGET

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume."""
        assert self._profile is not None
        return {
            "free": self.free.clone(),
            "profile": torch.as_tensor(self._profile).clone(),
            "damping": self._damping.value,
            "stuck": self._stuck,
            "simulations": self._residuals.simulations,
            "history": [asdict(row) for row in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self.free, self._profile = state["free"], state["profile"].numpy()
        self._damping.value, self._stuck = state["damping"], state["stuck"]
        self._residuals.simulations = state["simulations"]
        self.history = [HistoryRow(**row) for row in state["history"]]

    def _record(self, gradient_norm: float, failed: bool) -> None:
        assert self._profile is not None
        p = self._residuals.problem
        seen = p.contact & p.valid & ~p.held_out
        loss = self._loss(self._profile)
        self.history.append(
            HistoryRow(
                self._phase.name,
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

    def _loss(self, profile: _Array) -> float:
        p = self._residuals.problem
        seen = p.training
        measured = torch.as_tensor(p.measured)
        return float(pseudo_huber(torch.as_tensor(profile)[seen], measured[seen], p.mean_force))

    def _in_noise(self) -> bool:
        rows = self.history
        return bool(rows) and in_noise(rows[-1], self._residuals.problem, self._phase.params)

    def _flat(self) -> bool:
        """Return True if the last Gauss-Newton step gained next to nothing: no patience is needed."""
        rows = self.history
        return len(rows) > 1 and rows[-1].loss > (1.0 - self._phase.params.tolerance) * rows[-2].loss

    def _failure(self) -> str:
        result = self._residuals.problem.module.last_result
        return "" if result is None else str(result.outcome)
