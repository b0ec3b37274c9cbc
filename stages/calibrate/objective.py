"""Loss and gradient of a trial, counted, with bad trials made harmless."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from stages.calibrate.losses import Loss
from stages.calibrate.problem import Problem, TrialFailedError
from stages.calibrate.unknowns import Unknowns
from stages.calibrate.validation import errors

FAILED_FACTOR = 3.0
"""A bad trial counts as this many times the best loss: a line search then turns back, with finite numbers."""

Prior = Callable[[dict[str, torch.Tensor]], torch.Tensor]
"""Free numbers by name → something to add to the loss."""


@dataclass
class Trial:
    """One evaluated point."""

    free: torch.Tensor
    loss: float
    gradient: torch.Tensor
    nmae: float
    failure: str = ""
    """Why the simulation did not finish; empty if it did."""


class Objective:
    """Loss over the training samples as a function of the free numbers."""

    def __init__(self, problem: Problem, unknowns: Unknowns, loss: Loss, prior: Prior | None = None) -> None:
        self.problem, self.unknowns = problem, unknowns
        self._loss, self._prior = loss, prior
        self._seen = problem.training
        self._measured = torch.as_tensor(problem.measured)
        self.best: Trial | None = None
        self.gradients = 0
        self.recent: list[Trial] = []
        """Trials of the last iteration; an optimiser that asks for one again gets it for nothing."""

    def __call__(self, free: torch.Tensor) -> Trial:
        """Evaluate a point, or remember it."""
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
        loss = FAILED_FACTOR * (1.0 if self.best is None else self.best.loss)
        return Trial(free, loss, torch.zeros_like(free), float("nan"), why)
