"""Tables and metrics of a finished fit."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.model import Model
from disect_sim.parameters import MATERIAL_PARAMETERS, SPRING_NAMES, SURFACE_PREFIX, parameter_info
from stages.calibrate.calibration import Calibration, scalar_values, spring_values
from stages.calibrate.description import CalibrateParams
from stages.calibrate.material.fit import MaterialFit
from stages.calibrate.material.posterior import unit_of, value_of
from stages.calibrate.material.sampled import Sampled
from stages.calibrate.phase import FitOutcome, HistoryRow, Values, parameter_bounds
from stages.calibrate.problem import OFFSET, TOUCHED_NS, errors, find_onset, find_puncture
from stages.calibrate.springs.posterior import SpringPosterior

# Sampled posterior


_SAMPLE_COLUMNS = {
    "chain": pl.Int64,
    "iteration": pl.Int64,
    "name": pl.String,
    "value": pl.Float64,
    "unit": pl.String,
    "standard": pl.Float64,
}
_BAND_COLUMNS = dict.fromkeys(("time_s", "measured_n", "low_n", "high_n"), pl.Float64)


def sample_table(fit: MaterialFit | None) -> pl.DataFrame:
    """Return the table calibrate/samples: every point after burn-in, unknown by unknown."""
    if fit is None or fit.sampled is None:
        return pl.DataFrame(schema=_SAMPLE_COLUMNS)
    samples, unknowns = fit.sampled.samples, fit.posterior.unknowns
    chains, length, count = samples.t.shape
    chain, iteration, place = (part.ravel() for part in np.indices((chains, length, count)))
    standard = samples.t.ravel()
    names = np.array(unknowns.names)[place]
    values = [value_of(unknowns, i, t) for i, t in zip(place, standard, strict=True)]
    columns = {
        "chain": chain + 1,
        "iteration": iteration + 1,
        "name": names,
        "value": values,
        "unit": [unit_of(name) for name in names],
        "standard": standard,
    }
    return pl.DataFrame(columns, schema=_SAMPLE_COLUMNS)


def band_table(fit: Calibration | None) -> pl.DataFrame:
    """Return the table calibrate/band: the posterior band of the force of the fitted cut."""
    sampled = None if fit is None or fit.material is None else fit.material.sampled
    if fit is None or sampled is None:
        return pl.DataFrame(schema=_BAND_COLUMNS)
    use = fit.problem.contact & fit.problem.valid
    columns = (fit.problem.time, fit.problem.measured, sampled.low, sampled.high)
    return pl.DataFrame({name: column[use] for name, column in zip(_BAND_COLUMNS, columns, strict=True)})


def _sampling_metrics(fit: Calibration, sampled: Sampled | None) -> dict[str, object]:
    """Return the part of calibrate/metrics on sampling; empty if the posterior was not sampled."""
    if sampled is None:
        return {}
    p, rhat = fit.problem, sampled.diagnostics.rhat
    use = p.contact & p.valid
    inside = (p.measured >= sampled.low) & (p.measured <= sampled.high)
    return {
        "posterior": sampled.method,
        "posterior_points": len(sampled.samples.flat),
        "rhat": None if np.isnan(rhat).all() else float(np.nanmax(rhat)),
        "effective_points": float(sampled.diagnostics.effective.min()),
        "inside_band": float(inside[use].mean()),
    }


_Array = NDArray[np.float64]


def parameter_table(
    model: Model, values: Values, *, gradient_norm: _Array, touched_ns: _Array
) -> pl.DataFrame:
    """Return the table calibrate/parameters, one row per spring."""
    mesh = model.mesh
    rows = spring_values(model, values)
    return pl.DataFrame(
        [
            pl.Series("position_m", mesh.spring_position, pl.Array(pl.Float64, 2)),
            pl.Series("area_m2", mesh.spring_area, pl.Float64),
            pl.Series("surface", mesh.spring_surface, pl.Boolean),
            *(pl.Series(name, rows[name], pl.Float64) for name in SPRING_NAMES),
            pl.Series("gradient_norm", gradient_norm, pl.Float64),
            pl.Series("touched_ns", touched_ns, pl.Float64),
        ]
    )


def bound_table(params: CalibrateParams) -> pl.DataFrame:
    """Return the table calibrate/bounds: for each spring parameter the range of the skin's and of the other springs."""
    bounds = parameter_bounds(
        [*SPRING_NAMES, *params.shared],
        damage_law=params.cut.damage_law,
        offset_range_m=params.offset_range_m,
        given=params.bounds,
    )
    individual = params.individual if params.individual_iterations else ()
    rows = []
    for name in SPRING_NAMES:
        shared_by_skin = SURFACE_PREFIX + name in bounds and name not in individual
        skin = bounds[SURFACE_PREFIX + name if shared_by_skin else name]
        rows += [(name, surface, b.low, b.high) for surface, b in ((False, bounds[name]), (True, skin))]
    schema = {"name": pl.String, "surface": pl.Boolean, "low": pl.Float64, "high": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def scalar_table(fit: Calibration | None) -> pl.DataFrame:
    """Return the table calibrate/scalars: the parameters that all springs share."""
    rows = [] if fit is None else [_scalar_row(fit, name) for name in fit.bounds]
    names = ("name", "value", "unit", "low", "high", "at_bound", "standard_error", "identifiable")
    kinds = (pl.String, pl.Float64, pl.String, pl.Float64, pl.Float64, pl.Boolean, pl.Float64, pl.Boolean)
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pl.DataFrame(
        [
            pl.Series(name, list(column), kind)
            for name, column, kind in zip(names, columns, kinds, strict=True)
        ]
    )


def spring_table(known: Mapping[str, SpringPosterior], damage_law: str) -> pl.DataFrame:
    """Return the table calibrate/spring_posterior; no rows if springs were not fitted one by one."""
    schema = {
        "spring": pl.Int64,
        "name": pl.String,
        "value": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
    }
    schema |= {"unit": pl.String, "left": pl.Float64}
    rows = [
        (i, name, *numbers, parameter_info(name, damage_law=damage_law).unit, left)
        for name, each in known.items()
        for i, (*numbers, left) in enumerate(zip(each.value, each.low, each.high, each.left, strict=True))
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


def body_table(values: Values) -> pl.DataFrame:
    """Return the table calibrate/body: given or fitted values that replace those of the material."""
    given = {name: float(values[name]) for name in MATERIAL_PARAMETERS if name in values}
    return pl.DataFrame(
        [
            pl.Series("name", list(given), pl.String),
            pl.Series("value", list(given.values()), pl.Float64),
            pl.Series("unit", [MATERIAL_PARAMETERS[name].unit for name in given], pl.String),
        ]
    )


def _scalar_row(fit: Calibration, name: str) -> tuple[object, ...]:
    bound, value = fit.bounds[name], scalar_values(fit)[name]
    law = fit.problem.model.damage_law
    unit = "m" if name == OFFSET else parameter_info(name, damage_law=law).unit
    error = fit.certainty[name]
    return (
        name,
        value,
        unit,
        bound.low,
        bound.high,
        bound.touches(value),
        error.standard_error,
        error.identifiable,
    )


def history_table(history: list[HistoryRow]) -> pl.DataFrame:
    """Return the table calibrate/history; `step` counts through all phases."""
    return pl.DataFrame(
        [
            pl.Series("step", list(range(1, len(history) + 1)), pl.Int64),
            pl.Series("phase", [row.phase for row in history], pl.String),
            pl.Series("iteration", [row.iteration for row in history], pl.Int64),
            pl.Series("gradients", [row.gradients for row in history], pl.Int64),
            pl.Series("simulations", [row.simulations for row in history], pl.Int64),
            pl.Series("loss", [row.loss for row in history], pl.Float64),
            pl.Series("best_loss", [row.best_loss for row in history], pl.Float64),
            pl.Series("nmae", [row.nmae for row in history], pl.Float64),
            pl.Series("gradient_norm", [row.gradient_norm for row in history], pl.Float64),
            pl.Series("failed", [row.failed for row in history], pl.Boolean),
        ]
    )


def profile_table(fit: Calibration | None) -> pl.DataFrame:
    """Return the table calibrate/profile."""
    empty = np.zeros(0)
    if fit is None:
        time = height = measured = shared = simulated = empty
        held_out = contact = empty.astype(bool)
    else:
        p = fit.problem
        time, measured, shared, simulated = p.time, p.measured, fit.reference_simulated, fit.simulated
        height = p.height + float(fit.values.get(OFFSET, np.asarray(0.0)))
        held_out, contact = p.held_out, p.contact & p.valid
    return pl.DataFrame(
        [
            pl.Series("time_s", time, pl.Float64),
            pl.Series("height_m", height, pl.Float64),
            pl.Series("measured_n", measured, pl.Float64),
            pl.Series("simulated_n", simulated, pl.Float64),
            pl.Series("reference_n", shared, pl.Float64),
            pl.Series("residual_n", simulated - measured, pl.Float64),
            pl.Series("contact", contact, pl.Boolean),
            pl.Series("held_out", held_out, pl.Boolean),
        ]
    )


def metrics(fit: Calibration, params: CalibrateParams) -> dict[str, object]:
    """Return the artifact calibrate/metrics. It contains no times: a rerun must give the same file."""
    p = fit.problem
    use = p.contact & p.valid
    found = errors(fit.simulated, p.measured, use, p.mean_force)
    shared = errors(fit.reference_simulated, p.measured, use, p.mean_force)
    material = fit.material
    held = p.held_out & p.contact & (material is None)
    held_out = errors(fit.simulated, p.measured, held, p.mean_force).nmae if held.any() else None
    onset = find_onset(p.time, fit.simulated)
    puncture = find_puncture(p.time[use], p.measured[use])
    followed = puncture and find_puncture(p.time[use], fit.simulated[use], near_s=puncture[0])
    touched = fit.impulse > TOUCHED_NS
    scalars = {f"fit_{name}": value for name, value in scalar_values(fit).items()}
    tail, following = (None, None) if material is None else (material.tail, material.next_cut)
    return {
        "fit": fit.kind,
        "outcome": fit.outcome.word,
        "remedy": fit.outcome.remedy + _warning(fit) + _chains_warning(fit),
        "nmae_forecast": None if tail is None else tail.nmae,
        "nmae_forecast_model": None if tail is None else tail.nmae_model,
        "nmae_hold_last": None if tail is None else tail.nmae_hold_last,
        "nmae_trend": None if tail is None else tail.nmae_trend,
        "forecast_coverage": None if tail is None else tail.coverage,
        "nmae_next_cut": None if following is None else following.nmae,
        "nmae_next_repeated": None if following is None else following.nmae_repeated,
        "amplitude": None if material is None else material.posterior.unknowns.amplitude(material.found.t),
        "nmae": found.nmae,
        "mae_n": found.mae_n,
        "peak_error_n": found.peak_error_n,
        "nmae_held_out": held_out,
        "nmae_shared": shared.nmae,
        "onset_error_s": None if onset is None else onset - p.onset_s,
        "onset_s": p.onset_s,
        "puncture_measured_n": puncture[1] if puncture else None,
        "puncture_simulated_n": followed[1] if followed else None,
        "puncture_error_s": followed[0] - puncture[0] if puncture and followed else None,
        "mean_force_n": p.mean_force,
        "iterations": len(fit.history),
        "gradients": fit.gradients,
        "simulations": fit.simulations,
        "springs": len(touched),
        "springs_touched": int(touched.sum()),
        "samples": int(use.sum()),
        "alignment_m": p.alignment_m,
        "individual": list(params.individual) if params.individual_iterations else [],
        **scalars,
        **({} if material is None else _sampling_metrics(fit, material.sampled)),
    }


def nominal_metrics() -> dict[str, object]:
    """Return the artifact calibrate/metrics of a scan without a log."""
    return {
        "outcome": FitOutcome.NO_LOG.word,
        "remedy": FitOutcome.NO_LOG.remedy,
        "nmae": None,
        "mae_n": None,
        "peak_error_n": None,
        "nmae_held_out": None,
        "onset_error_s": None,
        "iterations": 0,
        "gradients": 0,
        "simulations": 0,
        "springs_touched": 0,
    }


def _chains_warning(fit: Calibration) -> str:
    sampled = None if fit.material is None else fit.material.sampled
    return "" if sampled is None else sampled.diagnostics.warning


def _warning(fit: Calibration) -> str:
    """Return a warning about parameters at a bound."""
    stuck = [name for name, value in scalar_values(fit).items() if fit.bounds[name].touches(value)]
    if not stuck:
        return ""
    return f" At a bound: {', '.join(stuck)}. Widen it in calibrate.bounds if the material may be so."
