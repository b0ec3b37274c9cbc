"""The second phase: one value per spring, held together by the smoothness of the cut surface."""

from collections.abc import Sequence
from pathlib import Path

from stages.calibrate.losses import LOSSES
from stages.calibrate.objective import Objective
from stages.calibrate.params import CalibrateParams
from stages.calibrate.phase import Phase, PhaseResult, Report, fit
from stages.calibrate.problem import Problem
from stages.calibrate.smoothness import Smoothness, neighbour_pairs
from stages.calibrate.unknowns import Unknowns, Values, individual_unknowns, parameter_bounds
from stages.runtime.checkpoint import Checkpoint


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
    pairs = neighbour_pairs(mesh.spring_position, mesh.spring_surface, params.neighbours)
    prior = Smoothness(pairs, params.smoothness, names)
    objective = Objective(problem, unknowns, LOSSES[params.loss], prior)
    phase = Phase("individual", params.individual_optimiser, params.individual_iterations, params)
    checkpoint = Checkpoint(scan_dir, key, stage="calibrate", part="individual")
    result = fit(phase, unknowns.free(values), objective, checkpoint=checkpoint, report=report)
    return result, unknowns
