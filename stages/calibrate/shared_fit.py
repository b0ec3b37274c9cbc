"""The first phase: the handful of parameters that all springs share."""

from dataclasses import dataclass
from pathlib import Path

import torch

from stages.calibrate.losses import LOSSES
from stages.calibrate.objective import Objective
from stages.calibrate.params import CalibrateParams
from stages.calibrate.phase import HistoryRow, Phase, PhaseResult, Report, fit
from stages.calibrate.problem import Problem
from stages.calibrate.unknowns import Unknowns
from stages.runtime.checkpoint import Checkpoint
from stages.runtime.parallel import report_to_parent, run_parallel


@dataclass(frozen=True)
class SharedFit:
    """What one start of the shared fit needs; sent to another process if there are several."""

    problem: Problem
    unknowns: Unknowns
    params: CalibrateParams
    scan_dir: Path | None
    """Where checkpoints go; None keeps none."""
    key: str

    def run(self, start: torch.Tensor, number: int, report: Report | None = None) -> PhaseResult:
        """Fit from one start."""
        params = self.params
        name = "shared" if number == 0 else f"shared {number + 1}"
        phase = Phase(name, params.shared_optimiser, params.shared_iterations, params)
        checkpoint = Checkpoint(self.scan_dir, self.key, stage="calibrate", part=name.replace(" ", "-"))
        objective = Objective(self.problem, self.unknowns, LOSSES[params.shared_loss])
        return fit(phase, start, objective, checkpoint=checkpoint, report=report)


def scattered_starts(start: torch.Tensor, count: int, spread: float, seed: int) -> list[torch.Tensor]:
    """The given start and others around it; `spread` is in free numbers (1 moves a middle value to a quarter)."""
    generator = torch.Generator().manual_seed(seed)
    return [start] + [
        start + spread * torch.randn(start.shape, generator=generator, dtype=start.dtype)
        for _ in range(count - 1)
    ]


def fit_from_starts(
    shared: SharedFit,
    starts: list[torch.Tensor],
    *,
    report: Report | None = None,
) -> tuple[PhaseResult, list[HistoryRow]]:
    """The best of several starts, each in a process of its own, and the history of all."""
    if len(starts) == 1:
        only = shared.run(starts[0], 0, report)
        return only, only.history
    jobs = [(shared, start, number) for number, start in enumerate(starts)]
    on_message = report or (lambda row: None)
    results = run_parallel(_run, jobs, processes=shared.params.processes, on_message=on_message)
    best = min(results, key=lambda result: result.best.loss)
    return best, [row for result in results for row in result.history]


def _run(job: tuple[SharedFit, torch.Tensor, int]) -> PhaseResult:
    """One start in a process of its own; every iteration is reported to the parent."""
    shared, start, number = job
    return shared.run(start, number, report_to_parent)
