"""Posterior of the material, compared with its prior."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.parameters import parameter_info
from stages.calibrate.material.unknowns import (
    AMPLITUDE,
    HEIGHT_SPREAD_M,
    MaterialUnknowns,
    size_of,
)
from stages.calibrate.problem import OFFSET
from stages.shared.library.library import (
    AMPLITUDE_SPREAD,
    ANY_MATERIAL,
    INFORMED,
    NINETY,
    RATIO_BOUNDS,
    SHARE_RATIOS,
    Expected,
    log_alone,
    shares_of,
)

KNOWN = 0.35
"""Posterior / prior standard deviation below which the log decides the value; above INFORMED the prior does."""

_FLAT = 0.95
"""Factor by which a log must narrow a uniform prior to count as informative."""
_SHARE_DRAWS = 4000
"""Number of draws of the shares: the ends of a 90 % interval of the saving, ± 11 points, are then accurate to 0.4."""
_OUTSIDE = (0.05, 0.95)
"""Quantiles at the ends of the 90 % interval."""

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class Posterior:
    """A normal distribution of the standardised unknowns around the mode, or samples of it."""

    unknowns: MaterialUnknowns
    mean: _Array
    """Posterior mean, shape [unknown_count]; zero is the prior mean."""
    covariance: _Array
    """Posterior covariance, shape [unknown_count, unknown_count]; the identity is the prior's."""
    samples: _Array | None = None
    """Sampled points, shape [point_count, unknown_count]; they replace the normal distribution."""

    @property
    def deviation(self) -> _Array:
        """Posterior standard deviations; the prior's are 1."""
        out: _Array = np.sqrt(np.diag(self.covariance)) if self.samples is None else self.samples.std(axis=0)
        return out

    def share_errors(self) -> dict[str, float]:
        """Return the standard errors of edge_press and edge_drag [-], linear around the fit; none if not sought."""
        if not self.unknowns.seeks_shares:
            return {}
        covariance = self.covariance if self.samples is None else np.cov(self.samples.T)
        slopes = self.unknowns.share_derivative(self.mean)
        return {name: float(np.sqrt(slope @ covariance @ slope)) for name, slope in slopes.items()}

    def interval(self, i: int) -> tuple[float, float]:
        """Return the 90 % interval of the i-th unknown."""
        if self.samples is not None:
            low, high = np.quantile(self.samples[:, i], _OUTSIDE)
            return float(low), float(high)
        mean, half = float(self.mean[i]), NINETY * float(self.deviation[i])
        return mean - half, mean + half

    def draws(self, count: int, seed: int) -> _Array:
        """Return possible unknowns, shape [count, unknown_count]."""
        if self.samples is not None:
            chosen = np.random.default_rng(seed).choice(
                len(self.samples), count, replace=count > len(self.samples)
            )
            return np.asarray(self.samples[chosen])
        factor = np.linalg.cholesky(self.covariance)
        return self.mean + np.random.default_rng(seed).standard_normal((count, len(self.mean))) @ factor.T

    def learned(self, name: str) -> str:
        """Describe the information of the log."""
        deviation = self.deviation[self.unknowns.names.index(name)]
        if deviation < KNOWN:
            return "known from this log"
        return "partly known from this log" if deviation < INFORMED else "as expected"


def before_any_log(unknowns: MaterialUnknowns) -> Posterior:
    """Return the prior of a material without a log."""
    return Posterior(unknowns, np.zeros(len(unknowns)), np.eye(len(unknowns)))


def posterior_table(posterior: Posterior | None) -> pl.DataFrame:
    """Return the table calibrate/posterior."""
    rows = [] if posterior is None else [_row(posterior, i) for i in range(len(posterior.mean))]
    schema = {
        "name": pl.String,
        "unit": pl.String,
        "expected": pl.Float64,
        "expected_low": pl.Float64,
        "expected_high": pl.Float64,
        "value": pl.Float64,
        "low": pl.Float64,
        "high": pl.Float64,
        "deviation": pl.Float64,
        "cuts": pl.Int64,
        "learned": pl.String,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def what_the_log_says(table: pl.DataFrame) -> dict[str, list[float]]:
    """Return the values of a library entry from calibrate/posterior: size and log deviation, by the log alone.

    Only parameters that the log informed, and whose value by the log alone is within the parameter's range.
    """
    out = {}
    for row in table.iter_rows(named=True):
        if row["name"] in ANY_MATERIAL:
            spread = _log_spread(row["expected_low"], row["expected_high"])
            if np.isclose(row["expected"] ** 2, row["expected_low"] * row["expected_high"], rtol=1e-6):
                before = Expected(row["expected"], spread, row["cuts"])
                found = log_alone(before, row["value"], row["deviation"])
            else:  # a uniform prior carries no information
                known = row["deviation"] < _FLAT
                found = (row["value"], _log_spread(row["low"], row["high"])) if known else None
            if found is not None and _in_range(row["name"], found[0]):
                out[row["name"]] = [float(f"{number:.4g}") for number in found]
    return out


def _in_range(name: str, value: float) -> bool:
    low, high = (
        RATIO_BOUNDS if name in SHARE_RATIOS else (parameter_info(name).low, parameter_info(name).high)
    )
    return low <= value <= high


def _log_spread(low: float, high: float) -> float:
    """Return the standard deviation of a logarithm, from the ends of the 90 % interval."""
    return float(np.log(high / low)) / (2.0 * NINETY)


def draw_table(posterior: Posterior | None, count: int, seed: int) -> pl.DataFrame:
    """Return the table calibrate/draws: possible materials relative to the fitted one."""
    rows: list[tuple[int, str, float]] = []
    if posterior is not None:
        fitted = posterior.unknowns.parameters(posterior.mean)
        for i, t in enumerate(posterior.draws(count, seed)):
            drawn = posterior.unknowns.parameters(t)
            rows += [(i, name, drawn[name] / value) for name, value in fitted.items()]
    return pl.DataFrame(
        rows, schema={"draw": pl.Int64, "name": pl.String, "factor": pl.Float64}, orient="row"
    )


def share_table(posterior: Posterior | None, seed: int) -> pl.DataFrame:
    """Return the table calibrate/shares: _SHARE_DRAWS possible shares; no rows where they are not sought."""
    rows: list[dict[str, float]] = []
    if posterior is not None and posterior.unknowns.seeks_shares:
        drawn = posterior.draws(_SHARE_DRAWS, seed)
        rows = [shares_of(posterior.unknowns.sizes(t)) for t in drawn]
    return pl.DataFrame(rows, schema={"edge_press": pl.Float64, "edge_drag": pl.Float64})


def _row(posterior: Posterior, i: int) -> tuple[object, ...]:
    name, deviation = posterior.unknowns.names[i], float(posterior.deviation[i])
    before = [value_of(posterior.unknowns, i, x) for x in (0.0, -NINETY, NINETY)]
    mean = float(posterior.mean[i])
    after = [value_of(posterior.unknowns, i, x) for x in (mean, *posterior.interval(i))]
    prior = posterior.unknowns.prior.get(name)
    cuts = 0 if prior is None else prior.cuts
    return (name, unit_of(name), *before, *after, deviation, cuts, posterior.learned(name))


def value_of(unknowns: MaterialUnknowns, i: int, t: float) -> float:
    """Return the i-th unknown in its unit."""
    prior = unknowns.prior.get(unknowns.names[i])
    if prior is not None:
        return size_of(prior, t)
    if unknowns.names[i].startswith(AMPLITUDE):
        return float(np.exp(AMPLITUDE_SPREAD * t))
    return HEIGHT_SPREAD_M * t


def unit_of(name: str) -> str:
    """Return the unit of an unknown's value."""
    if name.startswith(OFFSET):
        return "m"
    return "-" if name.startswith((AMPLITUDE, *SHARE_RATIOS)) else parameter_info(name).unit
