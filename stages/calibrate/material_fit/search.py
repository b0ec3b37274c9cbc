"""Maximum a posteriori by damped Gauss-Newton steps, with exact derivatives of all slices from one simulation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from stages.calibrate.material_fit.likelihood import DepthLikelihood
from stages.calibrate.material_fit.unknowns import MaterialUnknowns
from stages.calibrate.outcome import FitOutcome
from stages.calibrate.phase import HistoryRow, refuse_start
from stages.calibrate.problem import Problem, TrialFailedError
from stages.calibrate.validation import errors

FIRST_DAMPING = 1.0e-2
LONGEST_STEP = 1.0
"""In prior standard deviations, of any unknown in one step."""
TRIES = 6
"""Damped steps tried per iteration."""
ENOUGH = 0.05
"""A step that promises less than this of log-probability is the end: far below what the log can tell."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class At:
    """A simulated point."""

    t: Array
    profile: Array
    """[N], shape [sample_count]."""
    residual: Array
    """Shape [slice_count]."""

    @property
    def cost(self) -> float:
        """Minus twice the log-probability, up to a constant."""
        return float(self.residual @ self.residual + self.t @ self.t)


class MaterialSearch:
    """The search; resumable (stages.shared.fitting.resumable)."""

    def __init__(
        self, name: str, unknowns: MaterialUnknowns, likelihood: DepthLikelihood, iterations: int
    ) -> None:
        self._name, self.unknowns, self.likelihood = name, unknowns, likelihood
        self._iterations = iterations
        self.t = np.zeros(len(unknowns))
        self._damping = FIRST_DAMPING
        self._done, self._failed = False, False
        self.simulations = self.gradients = 0
        self.history: list[HistoryRow] = []
        self.jacobian: Array = np.zeros((len(likelihood), len(unknowns)))

    def step(self) -> None:
        """One linearisation and the damped steps it takes until the cost falls."""
        here = self._simulate(self.t, differentiate=True)
        if here is None:
            raise refuse_start(self._failure)
        j = self.jacobian
        curvature = j.T @ j + np.eye(len(self.t))
        slope = j.T @ here.residual + self.t
        newton = np.linalg.solve(curvature, slope)
        best = here
        self._done = 0.5 * float(slope @ newton) < ENOUGH
        failed = False
        if not self._done:
            better = None
            for _ in range(TRIES):
                damped = curvature + self._damping * np.diag(np.diag(curvature))
                move = -np.linalg.solve(damped, slope)
                move *= min(1.0, LONGEST_STEP / float(np.abs(move).max()))
                trial = self._simulate(self.t + move, differentiate=False)
                failed = failed or trial is None
                if trial is not None and trial.cost < here.cost:
                    better = trial
                    self._damping = max(self._damping / 5.0, 1e-6)
                    break
                self._damping *= 5.0
            self._done = better is None
            best = better or here
            self.t = best.t
        self._failed = failed
        self._record(best, float(np.linalg.norm(slope)), failed)

    def over(self) -> bool:
        """Whether to stop."""
        return self._done or len(self.history) >= self._iterations

    def outcome(self) -> FitOutcome:
        """What the end looks like."""
        if self._done:
            return FitOutcome.STALLED if self._failed else FitOutcome.CONVERGED
        return FitOutcome.BUDGET

    def covariance(self) -> Array:
        """Of t after the log, by Laplace's approximation, shape [unknown_count, unknown_count].

        Linearises anew if the last iteration moved.
        """
        self._simulate(self.t, differentiate=True)
        return np.asarray(np.linalg.inv(self.jacobian.T @ self.jacobian + np.eye(len(self.t))), float)

    def state(self) -> dict[str, Any]:
        """Everything needed to go on."""
        return {
            "t": torch.as_tensor(self.t).clone(),
            "damping": self._damping,
            "done": self._done,
            "failed": self._failed,
            "simulations": self.simulations,
            "gradients": self.gradients,
            "history": [vars(row) for row in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.t = state["t"].numpy()
        self._damping, self._done, self._failed = state["damping"], state["done"], state["failed"]
        self.simulations, self.gradients = state["simulations"], state["gradients"]
        self.history = [HistoryRow(**row) for row in state["history"]]

    def _simulate(self, t: Array, *, differentiate: bool) -> At | None:
        likelihood = self.likelihood
        self.simulations += 1
        try:
            profile, result = likelihood.problem.run(self.unknowns.values(t), differentiable=differentiate)
        except TrialFailedError as failed:
            self._failure = str(failed)
            return None
        if differentiate:
            self.gradients += 1
            rows = [
                self.unknowns.derivative(t, gradient.parameters | gradient.motion)
                for gradient in result.gradients(likelihood.force_bars(result))
            ]
            self.jacobian = np.array(rows)
        return At(t, profile, likelihood.residual(profile))

    def _record(self, at: At, slope: float, failed: bool) -> None:
        p: Problem = self.likelihood.problem
        seen = self.likelihood.seen
        nmae = errors(at.profile, p.measured, seen, float(p.measured[seen].mean())).nmae
        self.history.append(
            HistoryRow(
                self._name,
                len(self.history) + 1,
                self.gradients,
                self.simulations,
                at.cost,
                at.cost,
                nmae,
                slope,
                failed,
            )
        )
