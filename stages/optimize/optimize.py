"""optimize: the slicing motion that cuts the half-body with the least force, under hard constraints."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim import MATERIALS
from disect_sim.cut_mesh import CutMesh
from disect_sim.laws import damage_law
from disect_sim.processes import limit_torch_to_one_thread
from stages.optimize.confirmation import SHARES, finer_cut, with_shares
from stages.optimize.descent import live_picture
from stages.optimize.description import OptimizeParams
from stages.optimize.optimize_report import (
    confirmation_table,
    history_table,
    keyframe_table,
    metrics,
    motion_table,
    optimize_picture,
    profile_table,
)
from stages.optimize.search import Optimization, first_motion, optimize
from stages.optimize.slicing_cut import Values
from stages.runtime.errors import InputError
from stages.runtime.stage_io import StageIO
from stages.shared.cut import (
    OFF_PLANE_M,
    Factors,
    check_clear_of_rigid,
    cutting_model,
    off_plane_m,
    read_cut_mesh,
    read_possible_materials,
    read_second_cut_values,
)
from stages.shared.library.library import SHARE_RATIOS
from stages.shared.pictures import plot_text

_FITTED_BELOW, _PARTLY_BELOW = 0.5, 0.8
"""Posterior / prior standard deviation of a share's ratio: below the first it is determined by the logs, above the
second by the prior.
"""


def check_plane(mesh: CutMesh) -> None:
    """Reject a cut surface that the knife, which moves in the plane x = 0, would miss."""
    off = off_plane_m(mesh)
    if off > OFF_PLANE_M:
        raise InputError(
            f"optimize: the second cut's surface lies up to {off:.4f} m from the knife's plane x = 0. It must lie in "
            "it. Keep precut_half.plane_* at their defaults and move the cut with halve.offset_m and halve.angle_deg."
        )


def read_shares(table: pl.DataFrame) -> NDArray[np.float64] | None:
    """Return possible press and drag shares from calibrate/shares, shape [draws, 2]; None where they are held."""
    return None if table.is_empty() else table.select(SHARES).to_numpy()


def mean_shares(fitted: Values, shares: NDArray[np.float64] | None) -> Values:
    """Return the fitted values with the mean of the possible shares, as returned by `read_shares`."""
    return fitted if shares is None else with_shares(fitted, shares.mean(axis=0))


def relative_to(values: Values, fitted: Values, factors: Factors) -> Factors:
    """Return a possible material as factors on `values`, given those on the fitted values; shares may differ."""
    moved = {
        name: factors[name] * np.asarray(fitted[name]) / values[name] for name in SHARES if name in factors
    }
    return {**factors, **moved}


def rests_on(posterior: pl.DataFrame, law: str) -> str:
    """Describe in one line what the interval of the saving is based on. posterior: the table calibrate/posterior."""
    if not damage_law(law).at_edge:
        return f"damage law {law}: it has no shares of an edge toughness; real sawing cuts do not confirm it"
    rows = posterior.filter(pl.col("name").is_in(SHARE_RATIOS))
    if rows.is_empty():
        return "shares of the edge toughness as given in calibrate.start, without their uncertainty"
    library_cuts = max(rows["cuts"].to_list())
    public = "44 public cuts" + (f" and {library_cuts} in the library" if library_cuts else "")
    least = min(rows["deviation"].to_list())
    if least < _FITTED_BELOW:
        return "shares of the edge toughness fitted on a sawing log of this fruit"
    if least < _PARTLY_BELOW:
        return (
            f"shares of the edge toughness partly known from a sawing log of this fruit, else from {public}"
        )
    return f"no sawing log of this fruit: shares of the edge toughness from {public}"


def run(io: StageIO, params: OptimizeParams) -> dict[str, Any]:
    """Read the second body's cut mesh and its parameters, optimise, write motion, history and picture."""
    limit_torch_to_one_thread()
    io.progress(0.0, "read the cut mesh and the parameters")
    mesh = read_cut_mesh(io.read, "precut_half")
    check_plane(mesh)
    model = cutting_model(mesh, MATERIALS[io.scan.material], params.cut)
    fitted = read_second_cut_values(io.read)
    skin = io.read("transport/parameters")["surface"].to_numpy()
    shares = read_shares(io.read("calibrate/shares"))
    values = mean_shares(fitted, shares)
    materials = [relative_to(values, fitted, factors) for factors in read_possible_materials(io.read, skin)]
    lowest = min(params.cut.board_clearance_m, params.final_height_m if params.final_strokes else np.inf)
    check_clear_of_rigid(model, values, params.cut, lowest_m=lowest, offset="halve.offset_m")
    nodes, tets = io.read("tetrahedralize_half/nodes"), io.read("tetrahedralize_half/tets")
    silhouette = mesh.nodes[~mesh.node_ghost][:, [2, 1]]
    finer = finer_cut(nodes["position_m"].to_numpy(), tets["nodes"].to_numpy()) if params.confirm else mesh
    posterior = io.read("calibrate/posterior")
    searches = _searches(params)
    found: dict[str, Optimization] = {}
    for number, (name, settings) in enumerate(searches.items()):

        def progress(fraction: float, text: str, number: int = number, name: str = name) -> None:
            told = f"{name}: {text}" if len(searches) > 1 else text
            io.progress(0.02 + 0.95 * (number + fraction) / len(searches), told)

        found[name] = optimize(
            model,
            values,
            settings if name != _WHOLE else _from_sawing(settings, found),
            finer=replace(finer, anatomy=mesh.anatomy),
            materials=materials,
            shares=shares,
            rests_on=rests_on(posterior, params.cut.damage_law),
            scan_dir=io.scan_dir,
            key=io.work_key if name == _WHOLE else f"{io.work_key}-{name}",
            progress=progress,
            show=lambda so_far: io.show(lambda: live_picture(so_far, silhouette)),
        )
    optimum = found.pop(_WHOLE)
    optimum = replace(optimum, alone=found)
    profile, history, figures = profile_table(optimum), history_table(optimum), metrics(optimum)
    notes = {"knife": params.cut.knife_label, "saving": _saving_sentence(figures)}
    io.write("optimize/motion", motion_table(optimum), notes=notes)
    io.write("optimize/profile", profile)
    io.write("optimize/keyframes", keyframe_table(optimum))
    io.write("optimize/history", history)
    io.write("optimize/confirmation", confirmation_table(optimum))
    io.write_plot("optimize/profile_plot", plot_text(profile, ["time_s", "vertical_n", "optimized_n"]))
    io.write_plot("optimize/history_plot", plot_text(history, ["start", "iteration", "mean_force_n"]))
    io.progress(0.98, "draw the picture")
    io.write_png("optimize/preview", optimize_picture(optimum, silhouette))
    io.progress(1.0, f"mean force {100.0 * optimum.reduction():.1f} % below the vertical cut")
    return figures


_WHOLE = "whole"
"""Search with everything that the settings allow."""


def _searches(params: OptimizeParams) -> dict[str, OptimizeParams]:
    """Return the searches by name: the one asked for and, if it saws and rocks, each alone, to tell what it gives."""
    if not (params.rocking and params.sawing):
        return {_WHOLE: params}
    less = {"ablation_iterations": 0}
    return {
        "sawing": params.model_copy(update={"rocking": False, **less}),
        "rocking": params.model_copy(update={"sawing": False, **less}),
        _WHOLE: params,
    }


def _from_sawing(params: OptimizeParams, found: Mapping[str, Optimization]) -> OptimizeParams:
    """Return the settings of the search with everything, started from the motion that only saws if there is one.

    It is the only start, so that the knife turns only where that is better.
    """
    if "sawing" not in found or params.first_motion:
        return params
    sawing = found["sawing"]
    keyframes = sawing.cut.motion_parameters(sawing.slicing.variables)
    still = np.zeros(sawing.cut.keyframes)
    return params.changed(first_motion=first_motion(**keyframes, pitch_rate=still))


def _saving_sentence(figures: Mapping[str, Any]) -> str:
    """Return the saving with its interval and basis in one sentence, from the stage's metrics."""
    low, high = figures.get("reduction_low"), figures.get("reduction_high")
    interval = (
        "no interval"
        if low is None or high is None
        else f"90 % interval {100 * low:.0f} to {100 * high:.0f} %"
    )
    return (
        f"Predicted mean force {100 * figures['reduction']:.1f} % lower than in a vertical cut of the same duration "
        f"({interval}). Basis: {figures.get('reduction_rests_on') or 'the nominal material'}."
    )
