"""The tables and figures of a sampled posterior."""

import numpy as np
import polars as pl

from stages.calibrate.calibration import Calibration
from stages.calibrate.material_fit.fit import MaterialFit
from stages.calibrate.material_fit.posterior import unit_of, value_of
from stages.calibrate.material_fit.sampled import Sampled

SAMPLE_COLUMNS = {
    "chain": pl.Int64,
    "iteration": pl.Int64,
    "name": pl.String,
    "value": pl.Float64,
    "unit": pl.String,
    "standard": pl.Float64,
}
BAND_COLUMNS = dict.fromkeys(("time_s", "measured_n", "low_n", "high_n"), pl.Float64)


def sample_table(fit: MaterialFit | None) -> pl.DataFrame:
    """The table calibrate/samples: every point after burn-in, unknown by unknown."""
    if fit is None or fit.sampled is None:
        return pl.DataFrame(schema=SAMPLE_COLUMNS)
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
    return pl.DataFrame(columns, schema=SAMPLE_COLUMNS)


def band_table(fit: Calibration | None) -> pl.DataFrame:
    """The table calibrate/band: the force that the sampled materials expect of the cut they were fitted to."""
    sampled = None if fit is None or fit.material is None else fit.material.sampled
    if fit is None or sampled is None:
        return pl.DataFrame(schema=BAND_COLUMNS)
    use = fit.problem.contact & fit.problem.valid
    columns = (fit.problem.time, fit.problem.measured, sampled.low, sampled.high)
    return pl.DataFrame({name: column[use] for name, column in zip(BAND_COLUMNS, columns, strict=True)})


def sampling_metrics(fit: Calibration, sampled: Sampled | None) -> dict[str, object]:
    """Part of the artifact calibrate/metrics; nothing where the posterior was not sampled."""
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
