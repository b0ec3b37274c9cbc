"""optimize: the slicing motion that cuts with the least force, under hard constraints."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from disect_sim import KNIVES, MATERIALS, Model, build_model
from disect_sim.cut_mesh import CutMesh
from disect_sim.errors import InputError
from disect_sim.parameters import SPRING_NAMES
from stages.optimizing.descent import Descent, descend
from stages.optimizing.picture import optimize_picture
from stages.optimizing.slicing_cut import RATE_HZ, Passage, SlicingCut
from stages.params import OptimizeParams
from stages.support.cut_mesh_tables import read_cut_mesh
from stages.support.stage_main import StageIO, run_stage

PERTURBATION = 0.1
"""How far the honesty check moves the parameters."""

Values = Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Measured:
    """One simulated motion."""

    variables: torch.Tensor
    force: NDArray[np.float64]
    """On the knife [N], shape [samples, 3]."""

    @property
    def norm(self) -> NDArray[np.float64]:
        """[N], shape [samples]."""
        return np.linalg.norm(self.force, axis=1)


@dataclass(frozen=True)
class Optimized:
    """The best motion, the vertical one it is compared with, and how it was found."""

    cut: SlicingCut
    vertical: Measured
    slicing: Measured
    residuals: dict[str, float]
    runs: dict[str, Descent]
    confirmed: dict[str, float]
    """Reduction of the mean force found again with half the step, and with other parameters."""

    @property
    def reduction(self) -> float:
        """Share of the vertical cut's mean force that the slicing motion saves."""
        return 1.0 - float(self.slicing.norm.mean() / self.vertical.norm.mean())


def passage_of(mesh: CutMesh, blade_m: float, params: OptimizeParams) -> Passage:
    """From above the fruit to just above the board, over the fruit's middle."""
    nodes = mesh.nodes[~mesh.node_ghost]
    low, high = nodes.min(axis=0), nodes.max(axis=0)
    lateral = 0.5 * (blade_m - float(high[2] - low[2])) - params.blade_overlap_m
    if lateral <= 0.0:
        raise InputError(
            f"optimize: the fruit is {high[2] - low[2]:.3f} m long along the blade of {blade_m:g} m. It must fit under "
            f"it with {params.blade_overlap_m:g} m to spare on both sides. Take a longer knife or turn the fruit."
        )
    start = float(high[1]) + params.start_clearance_m
    duration = np.ceil((start - params.board_clearance_m) / params.mean_speed_m_s * RATE_HZ) / RATE_HZ
    return Passage(start, params.board_clearance_m, float(0.5 * (low[2] + high[2])), lateral, float(duration))


def optimize(
    model: Model,
    parameters: Values,
    params: OptimizeParams,
    *,
    progress: Callable[[float, str], None] = lambda fraction, message: None,
) -> Optimized:
    """The least-force motion through the model with the given parameters, one value per spring."""
    passage = passage_of(model.mesh, model.knife.length_m, params)
    cut = SlicingCut(model, parameters, passage, params)
    vertical = _measure(cut, cut.straight())
    scale = float(vertical.norm.mean())
    if scale == 0.0:
        raise InputError("optimize: the vertical cut meets no force. The knife misses the fruit. Check precut.")
    runs: dict[str, Descent] = {}
    total = len(params.start_amplitudes_m_s) * params.iterations
    for number, amplitude in enumerate(params.start_amplitudes_m_s):

        def tell(iteration: int, mean: float, number: int = number) -> None:
            done = (number * params.iterations + iteration + 1) / total
            progress(0.85 * done, f"start {number + 1}: mean force {mean:.2f} N, vertical {scale:.2f} N")

        start = cut.straight()
        start[0] = amplitude / 0.1
        runs[f"constrained {number + 1}"] = descend(cut, start, params, scale_n=scale, progress=tell)
    found = [run.best for run in runs.values() if run.best is not None]
    if not found:
        raise InputError(
            "optimize: no iterate kept every constraint. The limits leave no room for a cut of this duration. "
            "Lower mean_speed_m_s or raise iterations."
        )
    best = min(found, key=lambda b: b.objective)
    progress(0.87, "confirm")
    slicing = _measure(cut, cut.at_end_height(best.variables))
    trajectory = cut.trajectory(slicing.variables)
    from stages.optimizing.constraints import Constraints, rules_of

    residuals = Constraints(rules_of(cut, params), params.damping).residuals(trajectory)
    confirmed = _confirm(model, parameters, params, passage, vertical, slicing)
    return Optimized(cut, vertical, slicing, residuals, runs, confirmed)


def _measure(cut: SlicingCut, variables: torch.Tensor) -> Measured:
    with torch.no_grad():
        force = cut.force(variables).numpy()
    if not cut.result.outcome.ok:
        raise InputError(f"optimize: a cut stopped before its end. {cut.result.outcome}")
    return Measured(variables, force)


def _confirm(
    model: Model, parameters: Values, params: OptimizeParams, passage: Passage, vertical: Measured, slicing: Measured
) -> dict[str, float]:
    """The reduction again, with half the time step and with every parameter 10 % up and down."""
    others = {
        "half the step": (parameters, params.model_copy(update={"dt_s": 0.5 * params.dt_s})),
        "parameters + 10 %": (_scaled(parameters, 1.0 + PERTURBATION), params),
        "parameters - 10 %": (_scaled(parameters, 1.0 - PERTURBATION), params),
    }
    out = {}
    for name, (values, other) in others.items():
        cut = SlicingCut(model, values, passage, other)
        means = [_measure(cut, motion.variables).norm.mean() for motion in (vertical, slicing)]
        out[name] = float(1.0 - means[1] / means[0])
    return out


def _scaled(parameters: Values, factor: float) -> dict[str, NDArray[np.float64]]:
    return {name: np.asarray(value) * factor for name, value in parameters.items()}


def motion_table(optimized: Optimized) -> pl.DataFrame:
    """The table optimize/motion, one row per millisecond."""
    with torch.no_grad():
        trajectory = optimized.cut.trajectory(optimized.slicing.variables)
    zeros = np.zeros((len(optimized.cut.times), 1))
    force = np.concatenate([np.zeros((1, 3)), optimized.slicing.force])[: len(zeros)]

    def in_space(yz: torch.Tensor) -> NDArray[np.float64]:
        values = np.concatenate([zeros, yz.numpy()], axis=1)
        values[[0, -1]] = 0.0  # the window makes them zero up to rounding; a controller wants exactly zero
        return values

    vec3 = pl.Array(pl.Float64, 3)
    return pl.DataFrame(
        [
            pl.Series("time_s", optimized.cut.times.numpy(), pl.Float64),
            pl.Series("position_m", trajectory.position.numpy(), vec3),
            pl.Series("velocity_m_s", in_space(trajectory.velocity), vec3),
            pl.Series("acceleration_m_s2", in_space(trajectory.acceleration), vec3),
            pl.Series("force_n", force, vec3),
        ]
    )


def history_table(optimized: Optimized) -> pl.DataFrame:
    """The table optimize/history, one row per iteration of every start."""
    rows = [
        {"start": name, "iteration": i, **row}
        for name, run in optimized.runs.items()
        for i, row in enumerate(run.history)
    ]
    return pl.DataFrame(rows).with_columns(pl.col("iteration").cast(pl.Int64))


def metrics(optimized: Optimized) -> dict[str, Any]:
    """The artifact optimize/metrics."""
    vertical, slicing = optimized.vertical.norm, optimized.slicing.norm
    kept = min(optimized.confirmed.values())
    return {
        "mean_force_vertical_n": float(vertical.mean()),
        "mean_force_optimized_n": float(slicing.mean()),
        "reduction": optimized.reduction,
        "peak_reduction": 1.0 - float(slicing.max() / vertical.max()),
        "end_height_residual_m": optimized.residuals["end_height_m"],
        "lateral_residual_m": optimized.residuals["lateral_m"],
        "speed_residual_m_s": optimized.residuals["speed_m_s"],
        "acceleration_residual_m_s2": optimized.residuals["acceleration_m_s2"],
        "confirmed_reduction": kept,
        "confirmed": {name: value for name, value in optimized.confirmed.items()},
        "duration_s": optimized.cut.passage.duration_s,
        "iterations": sum(len(run.history) for run in optimized.runs.values()),
    }


def run(io: StageIO, params: OptimizeParams) -> dict[str, Any]:
    """Read the cut mesh and the fitted parameters, optimise, write motion, history and picture."""
    io.progress(0.0, "read the cut mesh and the parameters")
    mesh = read_cut_mesh(io.read)
    model = build_model(mesh, MATERIALS[io.scan.material], KNIVES[params.knife], boundary=params.boundary)
    fitted = io.read("calibrate/parameters")
    values = {name: fitted[name].to_numpy() for name in SPRING_NAMES if name in fitted.columns}
    optimized = optimize(model, values, params, progress=io.progress)
    io.write("optimize/motion", motion_table(optimized))
    io.write("optimize/history", history_table(optimized))
    io.progress(0.97, "draw the picture")
    silhouette = mesh.nodes[~mesh.node_ghost][:, [2, 1]]
    io.write_png("optimize/preview", optimize_picture(optimized, silhouette))
    io.progress(1.0, f"mean force {100.0 * optimized.reduction:.1f} % below the vertical cut")
    return metrics(optimized)


def main() -> None:
    """Run the stage on the scan directory given on the command line."""
    run_stage("optimize", run)


if __name__ == "__main__":
    main()
