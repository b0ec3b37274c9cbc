"""L-BFGS: a quasi-Newton method that searches along its line, for both phases. Needs a smooth loss."""

import torch

from stages.calibrate.methods.torch_descent import TorchDescent, descend
from stages.calibrate.objective import Objective
from stages.calibrate.phase import Phase, PhaseResult, Report
from stages.runtime.checkpoint import Checkpoint


class Lbfgs(TorchDescent):
    """One direction and its line search per iteration."""

    ends_evaluated = True

    def new_optimiser(self) -> torch.optim.Optimizer:
        """Up to ten simulations along a line."""
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


def fit(
    phase: Phase,
    start: torch.Tensor,
    objective: Objective,
    *,
    checkpoint: Checkpoint,
    report: Report | None = None,
) -> PhaseResult:
    """Run a phase."""
    return descend(Lbfgs(phase, start, objective), checkpoint=checkpoint, report=report)
