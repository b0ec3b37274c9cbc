"""transport: map the parameters of the first cut's springs to the springs of the second."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.parameters import MATERIALS, SPRING_NAMES
from stages.runtime.stage_io import StageIO
from stages.shared.cut import read_body_values, read_cut_mesh, verdict
from stages.shared.fitting import make_bound
from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, draw_springs, new_figure, pixels_of
from stages.transport.description import TransportParams
from stages.transport.plan import (
    Bounds,
    Comparison,
    Flags,
    Floats,
    Plan,
    SpringSet,
    Values,
    average_weights,
    bare_flesh,
    combine,
    compare,
    touch_weights,
    transport_plan,
)

NO_LOG = (
    "Nominal parameters: the knife touched no spring, because the scan has no force log. Every spring of a kind "
    "has the same values, before and after. Give a log with scan2cut run SCAN --log FILE."
)
_TRANSPORTED = "Fitted parameters, transported."


@dataclass(frozen=True)
class Source:
    """The calibrated springs of the first cut."""

    springs: SpringSet
    values: Values
    bounds: Bounds
    touched: Flags
    """True for springs that the knife touched, shape [spring_count]."""


@dataclass(frozen=True)
class _Transported:
    """Values of the second cut's springs."""

    plan: Plan
    values: Values
    averaged: Values
    """Baseline: every spring has the average of its kind."""


def transport(source: Source, target: SpringSet, params: TransportParams) -> _Transported:
    """Compute the values of every target spring."""
    weight = touch_weights(source.touched, params.untouched_weight)
    plan = transport_plan(
        source.springs,
        target,
        source_weight=weight,
        max_exact=params.max_exact_springs,
        entropy=params.entropy,
    )
    skins = (source.springs.skin, target.skin)
    average = average_weights(source.springs.masses(weight), *skins)
    return _Transported(
        plan,
        combine(plan.weights, source.values, source.bounds, *skins),
        combine(average, source.values, source.bounds, *skins),
    )


def _scaled(done: _Transported, amplitude: float) -> _Transported:
    """Return the values with another toughness of flesh and skin."""

    def scaled(values: Values) -> Values:
        return {n: amplitude * v if n.endswith("toughness") else v for n, v in values.items()}

    return _Transported(done.plan, scaled(done.values), scaled(done.averaged))


def read_source(parameters: pl.DataFrame, bounds: pl.DataFrame, params: TransportParams) -> Source:
    """Return the first cut's springs from calibrate/parameters and calibrate/bounds."""
    return Source(
        springs=SpringSet(
            parameters["position_m"].to_numpy(),
            parameters["area_m2"].to_numpy(),
            parameters["surface"].to_numpy(),
        ),
        values={name: parameters[name].to_numpy() for name in SPRING_NAMES},
        bounds={
            (row["name"], row["surface"]): make_bound(row["name"], row["low"], row["high"])
            for row in bounds.iter_rows(named=True)
        },
        touched=parameters["touched_ns"].to_numpy() > params.touched_ns,
    )


def tables(target: SpringSet, done: _Transported) -> dict[str, pl.DataFrame]:
    """Return the tables transport/… by artifact name."""
    shares = done.plan.weights.tocoo()
    plan = pl.DataFrame(
        [
            pl.Series("target", shares.row, pl.Int32),
            pl.Series("source", shares.col, pl.Int32),
            pl.Series("weight", shares.data, pl.Float64),
        ]
    )
    parameters = pl.DataFrame(
        [
            pl.Series("position_m", target.position_m, pl.Array(pl.Float64, 2)),
            pl.Series("area_m2", target.area_m2, pl.Float64),
            pl.Series("surface", target.skin, pl.Boolean),
            *(pl.Series(name, done.values[name], pl.Float64) for name in SPRING_NAMES),
        ]
    )
    return {"transport/parameters": parameters, "transport/plan": plan.sort("target", "source")}


def metrics(
    source: Source, target: SpringSet, done: _Transported, comparison: Comparison, bare: int
) -> dict[str, object]:
    """Return the artifact transport/metrics. It contains no times: a rerun must give the same file."""
    spread = {name: _spread(source.values[name]) for name in SPRING_NAMES}
    varied = [name for name in SPRING_NAMES if spread[name] > 0.0]
    kept = [_spread(done.values[name]) / spread[name] for name in varied]
    apart = [_rms(done.values[name] - done.averaged[name]) / spread[name] for name in varied]
    forces = comparison.transported_n, comparison.averaged_n
    return {
        "outcome": _TRANSPORTED if source.touched.any() else NO_LOG,
        "springs": len(target.area_m2),
        "springs_skin": int(target.skin.sum()),
        "springs_bare": bare,
        "source_springs": len(source.springs.area_m2),
        "source_springs_touched": int(source.touched.sum()),
        "method": done.plan.method,
        "iterations": done.plan.iterations,
        "cost": done.plan.cost,
        "rms_way": float(np.sqrt(done.plan.cost)),
        "marginal_error": done.plan.marginal_error,
        "skin_and_flesh_mixed": done.plan.mixed,
        "varied_parameters": varied,
        "spread_kept": float(np.mean(kept)) if kept else None,
        "apart_from_average": float(np.mean(apart)) if apart else None,
        "comparison": comparison.outcome,
        "mean_force_transported_n": float(forces[0].mean()) if len(forces[0]) else None,
        "mean_force_averaged_n": float(forces[1].mean()) if len(forces[1]) else None,
        "force_nmae_of_averaged": comparison.nmae,
        **verdict(*comparison.cuts),
    }


def _spread(value: np.ndarray) -> float:
    """Return the standard deviation, exactly 0 for a constant."""
    return float(np.std(value)) if np.ptp(value) > 0.0 else 0.0


def _rms(value: np.ndarray) -> float:
    return float(np.sqrt(np.mean(value**2)))


def run(io: StageIO, params: TransportParams) -> dict[str, object]:
    """Read the calibrated springs and the second cut's mesh, transport, compare, write tables and the picture."""
    io.progress(0.0, "read the springs")
    source = read_source(io.read("calibrate/parameters"), io.read("calibrate/bounds"), params)
    mesh = read_cut_mesh(io.read, "precut_half")
    face = io.read("halve/cut_face").row(0, named=True)
    bare = mesh.spring_surface & bare_flesh(
        mesh.virtual_positions()[mesh.spring_virtual[:, 0]],
        np.array(face["point_m"]),
        np.array(face["normal"]),
        params.bare_within_m + face["bulge_m"],
    )
    target = SpringSet(mesh.spring_position, mesh.spring_area, mesh.spring_surface & ~bare)
    io.progress(0.1, "transport")
    done = _scaled(transport(source, target, params), params.amplitude)
    for name, frame in tables(target, done).items():
        io.write(name, frame)
    comparison = compare(
        mesh,
        MATERIALS[io.scan.material],
        done.values,
        done.averaged,
        params,
        body=read_body_values(io.read),
        progress=lambda fraction: io.progress(0.2 + 0.7 * fraction, "compare with averages"),
    )
    io.progress(0.95, "draw the picture")
    picture = _transport_picture(
        source.springs,
        target,
        done.plan,
        before=source.values,
        after=done.values,
        touched=source.touched if source.touched.any() else None,
        comparison=comparison,
    )
    io.write_png("transport/preview", picture)
    io.progress(1.0, "done")
    return metrics(source, target, done, comparison, int(bare.sum()))


_SIZE_INCHES = (16.0, 8.5)
_SHOWN_PARAMETERS = 2
"""Number of parameters shown: those that vary most."""


def _transport_picture(
    source: SpringSet,
    target: SpringSet,
    plan: Plan,
    *,
    before: Values,
    after: Values,
    touched: Flags | None,
    comparison: Comparison,
) -> NDArray[np.uint8]:
    """Draw the picture; 8-bit pixels, shape [height, width, 3]; untouched springs of the first cut are hollow."""
    figure, canvas = new_figure(_SIZE_INCHES)
    top, bottom = figure.subfigures(2, 1)
    axes = top.subplots(1, 4)
    colours = _position_colours(source.in_unit_box)
    draw_springs(axes[0], source.position_m, source.area_m2, colours, "first cut, coloured by position")
    title = "second cut, in the colours of its sources"
    draw_springs(axes[1], target.position_m, target.area_m2, plan.weights @ colours, title)
    axes[0].set(ylabel="height [mm]")
    _draw_ways(axes[2], source, target, plan)
    _draw_forces(axes[3], comparison)
    maps = bottom.subplots(1, 2 * _SHOWN_PARAMETERS)
    for index, name in enumerate(_most_varied(before)[:_SHOWN_PARAMETERS]):
        limits = (float(before[name].min()), float(before[name].max()))
        pair = maps[2 * index : 2 * index + 2]
        dots = draw_springs(
            pair[0],
            source.position_m,
            source.area_m2,
            before[name],
            f"{name}, first cut",
            full=touched,
            limits=limits,
        )
        draw_springs(
            pair[1], target.position_m, target.area_m2, after[name], f"{name}, second cut", limits=limits
        )
        bottom.colorbar(dots, ax=list(pair), orientation="horizontal", pad=0.1, shrink=0.6)
    return pixels_of(canvas)


def _position_colours(position: Floats) -> Floats:
    """Return colours, shape [spring_count, 3]: red grows along the blade, blue with height, in the unit box."""
    along, up = position.T
    return np.stack([0.15 + 0.8 * along, 0.75 - 0.5 * np.abs(up - along), 0.15 + 0.8 * up], axis=1)


def _draw_ways(axis: Any, source: SpringSet, target: SpringSet, plan: Plan) -> None:
    """Draw lines in the unit box from each target to its sources, width proportional to the share."""
    start, end = source.in_unit_box, target.in_unit_box
    shares = plan.weights.tocoo()
    for row, column, share in zip(shares.row, shares.col, shares.data, strict=True):
        way = np.stack([start[column], end[row]])
        axis.plot(*way.T, color=CUT, lw=0.3 + 1.2 * share, alpha=0.6, zorder=1)
    axis.scatter(*start.T, s=7, color=SCAN, label="first cut", zorder=2)
    axis.scatter(*end.T, s=7, color=FRUIT, label="second cut", zorder=3)
    axis.set_aspect("equal")
    axis.set(xlabel="along the blade, unit box", ylabel="height, unit box")
    axis.set_title(f"the {plan.method} plan, rms distance {np.sqrt(plan.cost):.3f}", color=TEXT, fontsize=9)
    axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)


def _draw_forces(axis: Any, comparison: Comparison) -> None:
    axis.plot(
        comparison.time_s, comparison.transported_n, color=FRUIT, lw=2.0, label="transported parameters"
    )
    axis.plot(comparison.time_s, comparison.averaged_n, color=TEXT, lw=1.0, label="average parameters")
    axis.set(xlabel="time [s]", ylabel="force on the knife [N]", ylim=(0.0, None))
    nmae = comparison.nmae
    difference = "" if nmae is None else f", {100 * nmae:.1f} % apart"
    axis.set_title(f"vertical second cut{difference}", color=TEXT, fontsize=9)
    axis.legend(frameon=False, fontsize=8)


def _most_varied(values: Values) -> list[str]:
    """Return names in order of their spread relative to their mean; constants keep their order, at the end."""
    spread = {name: float(np.std(v) / max(abs(float(np.mean(v))), 1e-300)) for name, v in values.items()}
    return sorted(values, key=lambda name: -spread[name])
