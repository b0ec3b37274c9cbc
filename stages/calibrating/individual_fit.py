"""The second phase: one value per spring, held together by the smoothness of the cut surface."""

from collections.abc import Callable, Sequence
from pathlib import Path

from stages.calibrating.descent import HistoryRow, PhaseResult, Schedule, descend
from stages.calibrating.losses import LOSSES
from stages.calibrating.objective import Objective
from stages.calibrating.problem import Problem
from stages.calibrating.smoothness import Smoothness, neighbour_pairs
from stages.calibrating.unknowns import Unknowns, Values, individual_unknowns, parameter_bounds
from stages.params import CalibrateParams
from stages.support.checkpoint import Checkpoint


def fit_individual(
    problem: Problem,
    names: Sequence[str],
    shared: Values,
    params: CalibrateParams,
    *,
    scan_dir: Path | None,
    key: str,
    tell: Callable[[HistoryRow], None] | None = None,
) -> tuple[PhaseResult, Unknowns]:
    """Refine the named parameters spring by spring, from the shared values."""
    mesh = problem.model.mesh
    bounds = parameter_bounds(
        dict.fromkeys((*names, *params.shared)),
        damage_law=params.damage_law,
        offset_range_m=params.offset_range_m,
        given=params.bounds,
    )
    unknowns, values = individual_unknowns(names, shared, mesh.spring_surface, bounds)
    pairs = neighbour_pairs(mesh.spring_position, mesh.spring_surface, params.neighbours)
    prior = Smoothness(pairs, params.smoothness, names)
    objective = Objective(problem, unknowns, LOSSES[params.loss], prior)
    schedule = Schedule(
        params.individual_optimiser,
        params.individual_iterations,
        params.learning_rate,
        params.tolerance,
        params.patience,
    )
    checkpoint = Checkpoint(scan_dir, key, stage="calibrate", part="individual")
    result = descend(
        "individual", unknowns.free(values), objective, schedule, checkpoint=checkpoint, tell=tell
    )
    return result, unknowns
