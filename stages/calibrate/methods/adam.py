"""Adam: one simulation per iteration, for both phases and any loss, those with a kink included."""

import math
from typing import Any

import torch

from stages.calibrate.methods.torch_descent import TorchDescent, descend
from stages.calibrate.objective import Objective
from stages.calibrate.phase import Phase, PhaseResult, Report
from stages.runtime.checkpoint import Checkpoint

PATIENCE = 3
"""It wanders while its rate is high and improves as it falls: it is given a third of its iterations to improve."""
WANDER = 4
"""It may go on so many iterations without a new best; it then returns to the best point at half the rate."""


class Adam(TorchDescent):
    """The rate falls along a cosine, and by half at every return to the best point."""

    ends_evaluated = False

    def __init__(self, phase: Phase, start: torch.Tensor, objective: Objective) -> None:
        super().__init__(phase, start, objective)
        self._slow = 1.0
        """Factor on the rate."""
        self._wandered = WANDER - 1
        """Iterations without a new best. A first step, all signs and no memory, must improve at once."""

    def new_optimiser(self) -> torch.optim.Optimizer:
        """Adam with a short memory."""
        return torch.optim.Adam([self.free], lr=self.phase.params.learning_rate, betas=(0.9, 0.9))

    def rate(self) -> float:
        """From params.learning_rate down to 2 % of it."""
        share = len(self.history) / max(1, self.phase.iterations)
        return (
            self._slow
            * self.phase.params.learning_rate
            * (0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * share)))
        )

    def patience(self) -> int:
        """A third of the iterations, if that is more than params.patience."""
        return max(super().patience(), self.phase.iterations // PATIENCE)

    def is_lost(self, improved: bool) -> bool:
        """After WANDER iterations without a new best."""
        self._wandered = 0 if improved else self._wandered + 1
        return self._wandered >= WANDER

    def on_return(self) -> None:
        """Half the rate from now on."""
        self._slow *= 0.5
        self._wandered = WANDER - 1

    def own_state(self) -> dict[str, Any]:
        """How slow it has become."""
        return {"slow": self._slow, "wandered": self._wandered}

    def restore_own(self, state: dict[str, Any]) -> None:
        """As slow as it was."""
        self._slow, self._wandered = state["slow"], state["wandered"]


def fit(
    phase: Phase,
    start: torch.Tensor,
    objective: Objective,
    *,
    checkpoint: Checkpoint,
    report: Report | None = None,
) -> PhaseResult:
    """Run a phase."""
    return descend(Adam(phase, start, objective), checkpoint=checkpoint, report=report)
