"""simulate: a nominal straight cut, which shows the force before any parameter is calibrated."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh
from disect_sim.knife import Knife
from disect_sim.model import Model
from disect_sim.outcome import OutcomeKind
from disect_sim.parameters import MATERIALS, Material, Values, parameter_info
from disect_sim.result import Result
from disect_sim.simulation import simulate as simulate_motion
from disect_sim.stop import RigidObstacle, obstacle
from stages.runtime.errors import InputError
from stages.runtime.stage_io import StageIO
from stages.shared.cut import OFF_PLANE_M, cutting_model, off_plane_m, outcome_of, read_cut_mesh, straight_cut
from stages.shared.pictures import FRUIT, SCAN, TEXT, WARNING, Moment, cut_views
from stages.simulate.description import SimulateParams

# Picture of the stage


_PLOT_HEIGHT = 400
"""Height of the force plot [pixel]."""
_DPI = 100


@dataclass(frozen=True)
class Profile:
    """Curves of the plot, all of shape [sample_count]."""

    time_s: NDArray[np.float64]
    force_n: NDArray[np.float64]
    """Force on the knife [N], shape [sample_count, 3]."""
    cut_fraction: NDArray[np.float64]


def _simulate_picture(
    cut: CutMesh, knife: Knife, moments: Sequence[Moment], profile: Profile
) -> NDArray[np.uint8]:
    """Draw one view per moment above the force over time; 8-bit pixels, shape [height, width, 3]."""
    views = cut_views(cut, knife, moments)
    plot = _force_plot(profile, [m.time_s for m in moments], width=views.shape[1])
    return np.concatenate([views, plot])


def _force_plot(profile: Profile, marked_s: Sequence[float], *, width: int) -> NDArray[np.uint8]:
    """Draw force on the knife and fraction of the springs cut, over time; pixels, shape [height, width, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / _DPI, _PLOT_HEIGHT / _DPI), dpi=_DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    norm = np.linalg.norm(profile.force_n, axis=1)
    axis.plot(profile.time_s, norm, color=FRUIT, lw=3.0, label="norm of the force on the knife")
    axis.plot(profile.time_s, profile.force_n[:, 1], color=TEXT, lw=1.0, label="its vertical part")
    for time_s in marked_s:
        axis.axvline(time_s, color=SCAN, lw=0.8, ls=":")
    axis.set(xlabel="time [s]", ylabel="force [N]", xlim=(0.0, float(profile.time_s[-1])), ylim=(0.0, None))
    right = axis.twinx()
    right.plot(
        profile.time_s, 100.0 * profile.cut_fraction, color=WARNING, lw=1.2, ls="--", label="springs cut"
    )
    right.set(ylabel="stiffness lost [%]", ylim=(0.0, 105.0))
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    buffer = io.BytesIO()
    canvas.print_rgba(buffer)
    columns, rows = canvas.get_width_height()
    pixels = np.frombuffer(buffer.getvalue(), np.uint8).reshape(rows, columns, 4)[..., :3]
    return pixels[:, :width]


_PICTURED_FRACTIONS = (0.2, 0.45, 0.7, 1.0)
"""Moments of the picture, as fractions of the cut's duration [-]."""


@dataclass(frozen=True)
class NominalCut:
    """A finished cut."""

    model: Model
    result: Result
    moments: tuple[Moment, ...]
    """Body and knife at the times of the picture."""


def simulate(
    cut: CutMesh,
    material: Material,
    params: SimulateParams,
    progress: Callable[[float], None] | None = None,
    *,
    values: Values | None = None,
) -> NominalCut:
    """Cut straight down, from above the fruit to just above the board.

    `values` are parameters of every spring in place of params.parameters. Raises InputError if a parameter is unknown
    or out of its range, or if the run had to stop; the outcome says what to change.
    """
    _check_parameters(params)
    motion, duration = straight_cut(cut, params.cut)
    steps = round(duration / params.cut.dt_s)
    pictured = [params.cut.dt_s * round(fraction * steps) for fraction in _PICTURED_FRACTIONS]
    model = cutting_model(cut, material, params.cut)
    if model.rigid_points is not None:  # it may end at any time
        pictured = [params.cut.dt_s * step for step in range(1, steps + 1)]
    result = simulate_motion(
        model,
        motion,
        params.parameters if values is None else values,
        duration=duration,
        dt=params.cut.dt_s,
        sample_rate_hz=params.sample_rate_hz,
        keep_times=pictured,
        force_limit_n=params.cut.force_limit_n,
        progress=progress,
    )
    met = result.outcome.kind is OutcomeKind.KNIFE_STOPPED
    if not result.outcome.ok and not met:
        raise InputError(
            f"{outcome_of('nominal cut', result, cut).message} It must come to its end. Shorten the step (dt), for "
            "this scan with scan2cut run SCAN --set cut.dt_s=0.0005, or check --material: soft flesh with a high "
            "toughness is squashed instead of cut."
        )
    if model.rigid_points is not None:
        kept = sorted(result.positions)
        pictured = [kept[round(fraction * (len(kept) - 1))] for fraction in _PICTURED_FRACTIONS]
    moments = tuple(
        Moment(time, result.positions[time], result.pose[round(time / params.cut.dt_s)]) for time in pictured
    )
    return NominalCut(model, result, moments)


def _check_parameters(params: SimulateParams) -> None:
    """Reject a parameter the simulator does not have, or a value outside its bounds."""
    for name, value in params.parameters.items():
        info = parameter_info(name, damage_law=params.cut.damage_law)
        unit = "" if info.unit == "-" else f" {info.unit}"
        if not info.low <= value <= info.high:
            raise InputError(
                f"simulate.parameters.{name} is {value:g}{unit}. With damage_law {params.cut.damage_law!r} it must "
                f"be from {info.low:g} to {info.high:g}{unit}. Change it in params.yaml or with "
                f"--set 'simulate.parameters={{{name}: {info.default:g}}}'."
            )


def force_table(cut: NominalCut) -> pl.DataFrame:
    """Return the table simulate/force."""
    result = cut.result
    return pl.DataFrame(
        [
            pl.Series("time_s", result.time, pl.Float64),
            pl.Series("force_n", result.force, pl.Array(pl.Float64, 3)),
            pl.Series("torque_nm", result.torque, pl.Array(pl.Float64, 3)),
            pl.Series("force_norm_n", result.force_norm, pl.Float64),
            pl.Series("contact_area_m2", result.contact_area, pl.Float64),
            pl.Series("knife_position_m", _at(result, result.pose), pl.Array(pl.Float64, 3)),
        ]
    )


def spring_table(cut: NominalCut) -> pl.DataFrame:
    """Return the table simulate/springs."""
    result = cut.result
    stretch = cut.model.spring_operator @ result.positions[max(result.positions)]
    return pl.DataFrame(
        [
            pl.Series("remaining_fraction", result.stiffness[-1] / result.stiffness[0], pl.Float64),
            pl.Series("stretch_m", np.linalg.norm(stretch, axis=1), pl.Float64),
        ]
    )


def metrics(cut: NominalCut) -> dict[str, object]:
    """Return the artifact simulate/metrics. It contains no times: a rerun must give the same file."""
    result, statistics = cut.result, cut.result.statistics
    force = result.force_norm
    off_plane = off_plane_m(cut.model.mesh)
    outcome = outcome_of("nominal cut", result, cut.model.mesh).metrics()
    met = obstacle(cut.model)
    found = (outcome["warning"], _off_plane_warning(off_plane), _short_blade_warning(cut.model))
    warnings = [text for text in found if text]
    return {
        "outcome": str(result.outcome),
        "mean_force_n": float(force.mean()),
        "peak_force_n": float(force.max()),
        "peak_time_s": float(result.time[force.argmax()]),
        "duration_s": float(result.step_time[-1]),
        **outcome,
        "warning": " ".join(warnings) or None,
        "dead_springs": int((result.stiffness[-1] == 0.0).sum()),
        "knife_work_j": float(result.energy["knife_work"][-1]),
        "cut_surface_off_plane_m": off_plane,
        **({} if met is None else _stop(cut, met)),
        "steps": statistics.steps,
        "newton_per_step": statistics.newton_per_step,
        "indefinite_hessians": statistics.indefinite_hessians,
    }


def _stop(cut: NominalCut, met: RigidObstacle) -> dict[str, object]:
    """Return where and with which force the cut stops at a rigid region, and how the force grows beyond."""
    ended = cut.result.outcome.kind is OutcomeKind.KNIFE_STOPPED
    return {
        "stop_region": met.name,
        "stop_height_m": float(cut.result.pose[len(cut.result.step_time) - 1, 1]) if ended else met.top_m,
        "stop_force_n": float(cut.result.force_norm[-1]) if ended else None,
        "stop_stiffness_n_m": met.stiffness_n_m,
    }


def _off_plane_warning(distance: float) -> str:
    if distance <= OFF_PLANE_M:
        return ""
    return (
        f"The cut surface is up to {1e3 * distance:.1f} mm from the knife's plane x = 0, so this force is "
        "not that of a cut. Cut along x = 0, and position the cut with clean.cut_offset_m."
    )


def _short_blade_warning(model: Model) -> str:
    """Return a warning if the fruit is longer than the blade: the simulator tears what lies beyond its ends."""
    along = model.mesh.virtual_positions()[model.mesh.spring_virtual[:, 0], 2]
    fruit, blade = float(np.ptp(along)), model.knife.length_m
    if fruit <= blade:
        return ""
    return (
        f"The blade is {1e3 * blade:.0f} mm long, the cut surface {1e3 * fruit:.0f} mm along it. What lies beyond the "
        "blade's ends is torn, not cut, and a drawn cut of it is refused. Use a longer knife (cut.knife) or turn the "
        "fruit (clean.turn_deg)."
    )


def _at(result: Result, per_step: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interpolate a quantity of the steps [step_count + 1, k] at the ends of the sampling intervals, [sample_count,
    k].
    """
    columns = [np.interp(result.time, result.step_time, column) for column in per_step.T]
    return np.stack(columns, axis=1)


def run(io: StageIO, params: SimulateParams) -> dict[str, object]:
    """Read the cut mesh, simulate, write force, springs and the picture."""
    io.progress(0.0, "read the cut mesh")
    mesh = read_cut_mesh(io.read)
    cut = simulate(
        mesh,
        MATERIALS[io.scan.material],
        params,
        progress=lambda fraction: io.progress(0.02 + 0.9 * fraction, "cut"),
    )
    io.write("simulate/force", force_table(cut))
    io.write("simulate/springs", spring_table(cut))
    io.progress(0.95, "draw the picture")
    profile = Profile(
        cut.result.time, cut.result.force, _at(cut.result, cut.result.cut_fraction[:, None])[:, 0]
    )
    io.write_png("simulate/preview", _simulate_picture(mesh, cut.model.knife, cut.moments, profile))
    io.progress(1.0, "done")
    return metrics(cut)
