"""Maximum a posteriori by damped Gauss-Newton steps; one simulation per cut gives the derivatives of all its slices."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim.result import Result
from stages.calibrate.material.likelihood import DepthLikelihood
from stages.calibrate.material.unknowns import MaterialUnknowns
from stages.calibrate.phase import FitOutcome, HistoryRow, refuse_start
from stages.calibrate.problem import TrialFailedError, contact_impulse, errors
from stages.shared.fitting import Damping
from stages.shared.library.library import AMPLITUDE_SPREAD

_LONGEST_STEP = 1.0
"""Largest change of any unknown in one step, in prior standard deviations."""
_ENOUGH = 0.05
"""Gain of log-probability below which the search ends: far below the information of the log."""

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Cut:
    """Simulated cut of one log."""

    force: _Array
    """Filtered force times the cut's amplitude [N], shape [sample_count, 3]."""
    result: Result
    """The run, from which derivatives can be computed."""

    @property
    def profile(self) -> _Array:
        """Norm of the force [N], shape [sample_count]."""
        return np.asarray(np.linalg.norm(self.force, axis=1), float)


@dataclass(frozen=True)
class _At:
    """A simulated point."""

    t: _Array
    cuts: list[_Cut]
    residual: _Array
    """Residuals of all cuts, concatenated, shape [row_count]."""

    @property
    def cost(self) -> float:
        """Minus twice the log-probability, up to a constant."""
        return float(self.residual @ self.residual + self.t @ self.t)


@dataclass(frozen=True)
class Found:
    """Result of a search, picklable."""

    t: _Array
    covariance: _Array
    """Covariance of t, shape [unknown_count, unknown_count]."""
    profiles: list[_Array]
    """Profiles of the fitted cuts [N], each of shape [sample_count]."""
    impulse: _Array
    """Knife's impulse on each spring of the first cut [N s], shape [spring_count]."""
    outcome: FitOutcome
    history: list[HistoryRow]
    gradients: int
    simulations: int


class MaterialSearch:
    """Resumable search (stages.shared.fitting)."""

    def __init__(
        self, name: str, unknowns: MaterialUnknowns, likelihoods: Sequence[DepthLikelihood], iterations: int
    ) -> None:
        self._name, self.unknowns, self.likelihoods = name, unknowns, list(likelihoods)
        self._iterations = iterations
        self.t = np.zeros(len(unknowns))
        self._damping = Damping()
        self._done, self._failed, self._failure = False, False, ""
        self.simulations = self.gradients = 0
        self.history: list[HistoryRow] = []
        self.jacobian: _Array = np.zeros((0, len(unknowns)))
        self._linearised: _Array | None = None
        """The t of the last Jacobian."""
        self._here: _At | None = None

    def step(self) -> None:
        """Linearise once and take damped steps until the cost falls."""
        here = self.present()
        self._linearise(here)
        j = self.jacobian
        curvature = j.T @ j + np.eye(len(self.t))
        slope = j.T @ here.residual + self.t
        promise = 0.5 * float(slope @ np.linalg.solve(curvature, slope))
        self._done, self._failed = promise < _ENOUGH, False

        def place(move: _Array) -> _At | None:
            trial = self._simulate(here.t + move)
            self._failed = self._failed or trial is None
            return None if trial is None or not trial.cost < here.cost else trial

        if not self._done:
            scale = np.diag(np.diag(curvature))
            better = self._damping.better(curvature, slope, scale, _LONGEST_STEP, place)
            self._done = better is None
            self._here = better or here
            self.t = self._here.t
        self._record(self._here or here, float(np.linalg.norm(slope)), self._failed)

    def over(self) -> bool:
        """Return True if the search has ended."""
        return self._done or len(self.history) >= self._iterations

    def outcome(self) -> FitOutcome:
        """Return the outcome."""
        if self._done:
            return FitOutcome.STALLED if self._failed else FitOutcome.CONVERGED
        return FitOutcome.BUDGET

    def found(self) -> Found:
        """Return the result of the search."""
        covariance, cuts = self.covariance(), self.present().cuts
        return Found(
            self.t,
            covariance,
            [cut.profile for cut in cuts],
            contact_impulse(cuts[0].result),
            self.outcome(),
            self.history,
            self.gradients,
            self.simulations,
        )

    def covariance(self) -> _Array:
        """Return the posterior covariance of t by Laplace's approximation, shape [unknown_count, unknown_count].

        Linearises again if the last iteration moved.
        """
        if self._linearised is None or not np.array_equal(self._linearised, self.t):
            self._linearise(self.present())
        return np.asarray(np.linalg.inv(self.jacobian.T @ self.jacobian + np.eye(len(self.t))), float)

    def state(self) -> dict[str, Any]:
        """Return everything needed to resume."""
        return {
            "t": torch.as_tensor(self.t).clone(),
            "damping": self._damping.value,
            "done": self._done,
            "failed": self._failed,
            "simulations": self.simulations,
            "gradients": self.gradients,
            "jacobian": torch.as_tensor(self.jacobian).clone(),
            "linearised": None if self._linearised is None else torch.as_tensor(self._linearised).clone(),
            "history": [vars(row) for row in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Resume from a saved state."""
        self.t, self.jacobian = state["t"].numpy(), state["jacobian"].numpy()
        self._linearised = None if state["linearised"] is None else state["linearised"].numpy()
        self._damping.value, self._done, self._failed = state["damping"], state["done"], state["failed"]
        self.simulations, self.gradients = state["simulations"], state["gradients"]
        self.history = [HistoryRow(**row) for row in state["history"]]

    def present(self) -> _At:
        """Return the best point so far, simulated; repeated, without counting, after a resume."""
        if self._here is None:
            counted = self.simulations
            self._here = self._simulate(self.t)
            if self.history:
                self.simulations = counted
        if self._here is None:
            raise refuse_start(self._failure)
        return self._here

    def _simulate(self, t: _Array) -> _At | None:
        """Simulate with stored states: whether derivatives are needed is known only afterwards."""
        cuts = []
        for i, likelihood in enumerate(self.likelihoods):
            self.simulations += 1
            try:
                _, result = likelihood.problem.run(self.unknowns.values(t, i), differentiable=True)
            except TrialFailedError as failed:
                self._failure = str(failed)
                return None
            cuts.append(_Cut(self.unknowns.amplitude(t, i) * likelihood.problem.filtered(result), result))
        residuals = [a.residual(cut.force) for a, cut in zip(self.likelihoods, cuts, strict=True)]
        return _At(t, cuts, np.concatenate(residuals))

    def _linearise(self, at: _At) -> None:
        self.gradients += 1
        rows = []
        for i, (likelihood, cut) in enumerate(zip(self.likelihoods, at.cuts, strict=True)):
            amplitude = self.unknowns.amplitude(at.t, i)
            own = np.array(
                [
                    amplitude * self.unknowns.derivative(at.t, i, gradient.parameters | gradient.motion)
                    for gradient in cut.result.gradients(likelihood.force_bars())
                ]
            )
            if self.unknowns.per_cut:
                own[:, self.unknowns.amplitude_index(i)] = AMPLITUDE_SPREAD * likelihood.along(cut.force)
            rows.append(own)
        self.jacobian, self._linearised = np.concatenate(rows), at.t

    def _record(self, at: _At, slope: float, failed: bool) -> None:
        seen = [likelihood.seen for likelihood in self.likelihoods]
        profile = np.concatenate([cut.profile[use] for cut, use in zip(at.cuts, seen, strict=True)])
        measured = np.concatenate(
            [a.problem.measured[use] for a, use in zip(self.likelihoods, seen, strict=True)]
        )
        all_of_it = np.ones(len(measured), bool)
        nmae = errors(profile, measured, all_of_it, float(measured.mean())).nmae
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
