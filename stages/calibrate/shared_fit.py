"""The first phase: the handful of parameters that all springs share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from stages.calibrate.descent import HistoryRow, PhaseResult, Schedule, descend
from stages.calibrate.gauss_newton import levenberg_marquardt
from stages.calibrate.losses import LOSSES
from stages.calibrate.objective import Objective
from stages.calibrate.problem import Problem
from stages.calibrate.unknowns import Unknowns
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.parallel import report_to_parent, run_parallel


@dataclass(frozen=True)
class SharedFit:
    """What one start of the shared fit needs; sent to another process if there are several."""

    problem: Problem
    unknowns: Unknowns
    loss: str
    schedule: Schedule
    scan_dir: Path | None
    """Where checkpoints go; None keeps none."""
    key: str

    def run(
        self, start: torch.Tensor, number: int, tell: Callable[[HistoryRow], None] | None = None
    ) -> PhaseResult:
        """Descend from one start."""
        phase = "shared" if number == 0 else f"shared {number + 1}"
        checkpoint = Checkpoint(self.scan_dir, self.key, stage="calibrate", part=phase.replace(" ", "-"))
        if self.schedule.optimiser == "gauss_newton":
            return levenberg_marquardt(
                phase, start, self.problem, self.unknowns, self.schedule, checkpoint=checkpoint, tell=tell
            )
        objective = Objective(self.problem, self.unknowns, LOSSES[self.loss])
        return descend(phase, start, objective, self.schedule, checkpoint=checkpoint, tell=tell)


def scattered_starts(start: torch.Tensor, count: int, spread: float, seed: int) -> list[torch.Tensor]:
    """The given start and others around it; `spread` is in free numbers (1 moves a middle value to a quarter)."""
    generator = torch.Generator().manual_seed(seed)
    return [start] + [
        start + spread * torch.randn(start.shape, generator=generator, dtype=start.dtype)
        for _ in range(count - 1)
    ]


def fit_from_starts(
    fit: SharedFit,
    starts: list[torch.Tensor],
    *,
    processes: int,
    tell: Callable[[HistoryRow], None] | None = None,
) -> tuple[PhaseResult, list[HistoryRow]]:
    """The best of several starts, each in a process of its own, and the history of all."""
    if len(starts) == 1:
        only = fit.run(starts[0], 0, tell)
        return only, only.history
    jobs = [(fit, start, number) for number, start in enumerate(starts)]
    results = run_parallel(_run, jobs, processes=processes, on_message=tell or (lambda row: None))
    best = min(results, key=lambda result: result.best.loss)
    return best, [row for result in results for row in result.history]


def _run(job: tuple[SharedFit, torch.Tensor, int]) -> PhaseResult:
    """One start in a process of its own; every iteration is told to the parent."""
    fit, start, number = job
    return fit.run(start, number, report_to_parent)
