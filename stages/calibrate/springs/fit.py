"""Fit of springs: the shared phase, and the individual phase with a smoothness prior."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from disect_sim.processes import report_to_parent, run_parallel
from stages.calibrate.description import CalibrateParams
from stages.calibrate.methods import LOSSES
from stages.calibrate.phase import (
    HistoryRow,
    Objective,
    Phase,
    PhaseResult,
    Report,
    Unknowns,
    Values,
    fit,
    individual_unknowns,
    parameter_bounds,
)
from stages.calibrate.problem import Problem
from stages.runtime.checkpoint import Checkpoint

# Prior of the individual fit: neighbouring springs are similar, skin and flesh separately


def _neighbour_pairs(
    position: NDArray[np.float64], skin: NDArray[np.bool_], neighbours: int
) -> NDArray[np.int64]:
    """Return pairs of neighbouring springs of the same kind, each once, shape [pair_count, 2].

    position [m], shape [s, 2].
    """
    pairs = []
    for kind in (True, False):
        index = np.flatnonzero(skin == kind)
        if len(index) < 2:
            continue
        k = min(neighbours + 1, len(index))
        _, near = cKDTree(position[index]).query(position[index], k=k)
        own = np.repeat(index, k - 1)
        pairs.append(np.sort(np.stack([own, index[near[:, 1:].ravel()]], axis=1), axis=1))
    if not pairs:
        return np.zeros((0, 2), np.int64)
    return np.unique(np.concatenate(pairs), axis=0)


class _Smoothness:
    """Weighted mean squared difference of the named free numbers of neighbours."""

    def __init__(self, pairs: NDArray[np.int64], weight: float, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._a, self._b = torch.as_tensor(pairs[:, 0]), torch.as_tensor(pairs[:, 1])
        self._weight = weight

    def __call__(self, parts: dict[str, torch.Tensor]) -> torch.Tensor:
        """Return the prior's loss [-]."""
        total = torch.zeros((), dtype=torch.float64)
        if len(self._a):
            for free in (parts[name] for name in self._names):
                total = total + ((free[self._a] - free[self._b]) ** 2).mean()
        return self._weight * total


# Individual phase: one value per spring with the smoothness prior


def fit_individual(
    problem: Problem,
    names: Sequence[str],
    shared: Values,
    params: CalibrateParams,
    *,
    scan_dir: Path | None,
    key: str,
    report: Report | None = None,
) -> tuple[PhaseResult, Unknowns]:
    """Refine the named parameters spring by spring, from the shared values."""
    mesh = problem.model.mesh
    bounds = parameter_bounds(
        dict.fromkeys((*names, *params.shared)),
        damage_law=params.cut.damage_law,
        offset_range_m=params.offset_range_m,
        given=params.bounds,
    )
    unknowns, values = individual_unknowns(names, shared, mesh.spring_surface, bounds)
    pairs = _neighbour_pairs(mesh.spring_position, mesh.spring_surface, params.neighbours)
    prior = _Smoothness(pairs, params.smoothness, names)
    objective = Objective(problem, unknowns, LOSSES[params.loss], prior)
    phase = Phase("individual", params.individual_optimiser, params.individual_iterations, params)
    checkpoint = Checkpoint(scan_dir, key, stage="calibrate", part="individual")
    result = fit(phase, unknowns.free(values), objective, checkpoint=checkpoint, report=report)
    return result, unknowns


@dataclass(frozen=True)
class SharedFit:
    """Input of one start of the shared fit; sent to another process if there are several."""

    problem: Problem
    unknowns: Unknowns
    params: CalibrateParams
    scan_dir: Path | None
    """Folder of the checkpoints; None keeps none."""
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
    """Return the given start and others around it.

    `spread` is in free numbers (1 moves a middle value to a quarter).
    """
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
    """Return the best of several starts, each in a separate process, and the history of all."""
    if len(starts) == 1:
        only = shared.run(starts[0], 0, report)
        return only, only.history
    jobs = [(shared, start, number) for number, start in enumerate(starts)]
    on_message = report or (lambda row: None)
    results = run_parallel(_run, jobs, processes=shared.params.processes, on_message=on_message)
    best = min(results, key=lambda result: result.best.loss)
    return best, [row for result in results for row in result.history]


def _run(job: tuple[SharedFit, torch.Tensor, int]) -> PhaseResult:
    """Run one start in a separate process; report every iteration to the parent."""
    shared, start, number = job
    return shared.run(start, number, report_to_parent)
