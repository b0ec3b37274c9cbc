"""What is known about the material after the log, beside what was known before."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.parameters import parameter_info
from stages.calibrate.material_fit.unknowns import (
    AMPLITUDE,
    HEIGHT_SPREAD_M,
    LAYER,
    MaterialUnknowns,
)
from stages.calibrate.problem import OFFSET
from stages.shared.library.library import AMPLITUDE_SPREAD, ANY_MATERIAL, NINETY, Expected, log_alone

KNOWN, PARTLY = 0.35, 0.8
"""Standard deviation after over before the log: below the first the log decides, above the second it says nothing."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Posterior:
    """A normal distribution of the unknowns' standard numbers, around the most probable one."""

    unknowns: MaterialUnknowns
    mean: Array
    """Shape [unknown_count]; zero is what was expected."""
    covariance: Array
    """Shape [unknown_count, unknown_count]; the identity is what was expected."""

    @property
    def deviation(self) -> Array:
        """Standard deviations after the log; before it they are 1."""
        out: Array = np.sqrt(np.diag(self.covariance))
        return out

    def draws(self, count: int, seed: int) -> Array:
        """Possible unknowns, shape [count, unknown_count]."""
        factor = np.linalg.cholesky(self.covariance)
        return self.mean + np.random.default_rng(seed).standard_normal((count, len(self.mean))) @ factor.T

    def learned(self, name: str) -> str:
        """What the log added, in words."""
        deviation = self.deviation[self.unknowns.names.index(name)]
        if deviation < KNOWN:
            return "known from this log"
        return "partly known from this log" if deviation < PARTLY else "as expected"


def before_any_log(unknowns: MaterialUnknowns) -> Posterior:
    """What is known of a material without a log."""
    return Posterior(unknowns, np.zeros(len(unknowns)), np.eye(len(unknowns)))


def posterior_table(posterior: Posterior | None) -> pl.DataFrame:
    """The table calibrate/posterior."""
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
    """The values of a library entry from calibrate/posterior: size and deviation of its logarithm, by the log alone."""
    out = {}
    for row in table.iter_rows(named=True):
        if row["name"] in ANY_MATERIAL:
            spread = float(np.log(row["expected_high"] / row["expected_low"])) / (2.0 * NINETY)
            found = log_alone(Expected(row["expected"], spread, row["cuts"]), row["value"], row["deviation"])
            if found is not None:
                out[row["name"]] = [float(f"{number:.4g}") for number in found]
    return out


def draw_table(posterior: Posterior | None, count: int, seed: int) -> pl.DataFrame:
    """The table calibrate/draws: sizes of possible materials over the fitted ones."""
    rows: list[tuple[int, str, float]] = []
    if posterior is not None:
        fitted = posterior.unknowns.sizes(posterior.mean)
        for i, t in enumerate(posterior.draws(count, seed)):
            drawn = posterior.unknowns.sizes(t)
            rows += [(i, name, drawn[name] / fitted[name]) for name in posterior.unknowns.prior]
    schema = {"draw": pl.Int64, "name": pl.String, "factor": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _row(posterior: Posterior, i: int) -> tuple[object, ...]:
    name, deviation = posterior.unknowns.names[i], float(posterior.deviation[i])
    before = [_value(posterior.unknowns, i, x) for x in (0.0, -NINETY, NINETY)]
    mean = float(posterior.mean[i])
    after = [_value(posterior.unknowns, i, mean + x * deviation) for x in (0.0, -NINETY, NINETY)]
    prior = posterior.unknowns.prior.get(name)
    cuts = 0 if prior is None else prior.cuts
    return (name, _unit(name), *before, *after, deviation, cuts, posterior.learned(name))


def _value(unknowns: MaterialUnknowns, i: int, t: float) -> float:
    """The i-th unknown in its unit; layers stay standard numbers."""
    prior = unknowns.prior.get(unknowns.names[i])
    if prior is not None:
        return prior.median * float(np.exp(prior.spread * t))
    if unknowns.names[i].startswith(AMPLITUDE):
        return float(np.exp(AMPLITUDE_SPREAD * t))
    return HEIGHT_SPREAD_M * t if unknowns.names[i].startswith(OFFSET) else t


def _unit(name: str) -> str:
    if name.startswith(OFFSET):
        return "m"
    return "-" if name.startswith((LAYER, AMPLITUDE)) else parameter_info(name).unit
