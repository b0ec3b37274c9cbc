"""Fit the material to a recorded cut, and ask how well the same fit would have predicted the cut's own end."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh
from disect_sim.errors import InputError
from disect_sim.laws.damage import damage_law
from stages.calibrate.material_fit.likelihood import depth_likelihood
from stages.calibrate.material_fit.posterior import Posterior
from stages.calibrate.material_fit.search import MaterialSearch
from stages.calibrate.material_fit.unknowns import MaterialUnknowns
from stages.calibrate.params import CalibrateParams
from stages.calibrate.phase import HistoryRow
from stages.calibrate.problem import Problem
from stages.calibrate.validation import errors
from stages.runtime.checkpoint import Checkpoint
from stages.shared.fitting.resumable import run_to_end
from stages.shared.library.library import expected

Array = NDArray[np.float64]
Report = Callable[[HistoryRow], None]


@dataclass(frozen=True)
class TailForecast:
    """The last part of the cut, forecast from its first part."""

    nmae: float
    """Of the forecast [-]."""
    nmae_hold: float
    """Of holding the last force that the fit had seen [-]."""
    seen_fraction: float
    """Of the contact time."""


@dataclass(frozen=True)
class MaterialFit:
    """A finished fit."""

    posterior: Posterior
    search: MaterialSearch
    expected_profile: Array
    """What was expected before the log [N], shape [sample_count]."""
    tail: TailForecast | None


def material_unknowns(mesh: CutMesh, material: str, params: CalibrateParams) -> MaterialUnknowns:
    """What is sought on this body, with the prior of its material."""
    law = damage_law(params.cut.damage_law)
    if not law.at_edge:
        raise InputError(
            f"calibrate.fit is material, but cut.damage_law is {params.cut.damage_law!r}. The material's numbers are "
            "those of the edge law. Set cut.damage_law to edge, or calibrate.fit to springs."
        )
    prior = expected(params.material, material, params.cut.damage_law)
    constants = {
        name: value for name, value in params.start.items() if name not in prior and name not in law.ignores
    }
    return MaterialUnknowns(prior, params.layers, constants, relative_depth(mesh))


def relative_depth(mesh: CutMesh) -> Array:
    """Of every spring below the top of the cut face, as a share of its height, shape [spring_count]."""
    height = mesh.virtual_positions()[mesh.spring_virtual[:, 0], 1]
    low, top = float(height.min()), float(height.max())
    out: Array = (top - height) / (top - low)
    return out


def fit_material(
    problem: Problem,
    unknowns: MaterialUnknowns,
    params: CalibrateParams,
    *,
    scan_dir: Path | None,
    key: str,
    report: Report | None,
) -> MaterialFit:
    """The most probable material, its uncertainty, and the forecast of the cut's end from its beginning."""
    use = problem.contact & problem.valid

    def run(name: str, seen: NDArray[np.bool_]) -> MaterialSearch:
        likelihood = depth_likelihood(problem, seen, params.force_uncertainty_n)
        search = MaterialSearch(name, unknowns, likelihood, params.shared_iterations)
        checkpoint = Checkpoint(scan_dir, key, stage="calibrate", part=name)
        return run_to_end(search, checkpoint, None if report is None else lambda s: report(s.history[-1]))

    search = run("material", use)
    posterior = Posterior(unknowns, search.t, search.covariance())
    nothing = np.zeros(len(unknowns))
    before, _ = problem.run(unknowns.values(nothing), differentiable=False)
    tail = None
    if params.forecast_from:
        time = problem.time[use]
        seen = use & (problem.time <= time[0] + params.forecast_from * (time[-1] - time[0]))
        tail = _forecast(problem, unknowns, run("beginning", seen), seen, use & ~seen, params.forecast_from)
    return MaterialFit(posterior, search, before, tail)


def _forecast(
    problem: Problem,
    unknowns: MaterialUnknowns,
    search: MaterialSearch,
    seen: NDArray[np.bool_],
    rest: NDArray[np.bool_],
    fraction: float,
) -> TailForecast:
    profile, _ = problem.run(unknowns.values(search.t), differentiable=False)
    mean = float(problem.measured[rest].mean())
    held = np.full_like(profile, problem.measured[seen][-1])
    return TailForecast(
        errors(profile, problem.measured, rest, mean).nmae,
        errors(held, problem.measured, rest, mean).nmae,
        fraction,
    )
