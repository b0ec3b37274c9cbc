"""transport: map the parameters of the first cut's springs to the springs of the second."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from disect_sim.parameters import MATERIALS, SPRING_NAMES
from stages.runtime.stage_io import StageIO
from stages.shared.cut import read_body_values, read_cut_mesh, verdict
from stages.shared.fitting import make_bound
from stages.transport.description import TransportParams
from stages.transport.plan import (
    Bounds,
    Comparison,
    Flags,
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
from stages.transport.transport_picture import transport_picture

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
    done = transport(source, target, params)
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
    picture = transport_picture(
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
