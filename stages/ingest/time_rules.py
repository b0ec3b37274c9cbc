"""Rules for the clock of a log."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.ingest.params import IngestParams
from stages.shared.fitting.low_pass import MIN_SAMPLES

MAX_RATE_HZ = 20_000.0
"""No robot logs faster; a higher rate is a clock in another unit."""


@dataclass(frozen=True)
class Sampling:
    """How a log was sampled."""

    rate_hz: float
    duration_s: float
    largest_gap_s: float


def check_time(time_s: NDArray[np.float64], params: IngestParams, source: str) -> Sampling:
    """Refuse a clock that can't be trusted; shape [n]."""
    if len(time_s) < MIN_SAMPLES:
        raise InputError(
            f"{source} has {len(time_s)} samples. At least {MIN_SAMPLES} are needed, at {params.min_rate_hz:g} Hz or "
            "more. Record the whole cut."
        )
    missing = np.flatnonzero(~np.isfinite(time_s))
    if len(missing):
        raise InputError(
            f"{source}: the time of sample {missing[0]} is missing or NaN ({len(missing)} in all). Every sample needs "
            "its time. Remove these samples or record the log again."
        )
    steps = np.diff(time_s)
    if np.all(steps < 0):
        raise InputError(
            f"{source}: time runs backwards, from {time_s[0]:.6g} s to {time_s[-1]:.6g} s. It must increase. Reverse "
            "the order of the samples."
        )
    stuck = np.flatnonzero(steps <= 0)
    if len(stuck):
        raise InputError(
            f"{source}: time does not increase from sample {stuck[0]} ({time_s[stuck[0]]:.9g} s) to the next "
            f"({time_s[stuck[0] + 1]:.9g} s), {len(stuck)} times in all. It must increase at every sample. Remove "
            "repeated samples, or split the log where the clock was reset."
        )
    sampling = Sampling(
        float((len(time_s) - 1) / (time_s[-1] - time_s[0])), float(time_s[-1] - time_s[0]), float(steps.max())
    )
    _check_rate(sampling, params, source)
    return sampling


def _check_rate(sampling: Sampling, params: IngestParams, source: str) -> None:
    rate = sampling.rate_hz
    if rate > MAX_RATE_HZ:
        raise InputError(
            f"{source} has {rate:.4g} samples a second. At most {MAX_RATE_HZ:g} are plausible, so its clock is in "
            "another unit. Say which: --set ingest.time_unit=s (or ms, us, ns)."
        )
    if rate < params.min_rate_hz:
        hint = " The clock may be in milliseconds: --set ingest.time_unit=ms." if rate < 5.0 else ""
        raise InputError(
            f"{source} has {rate:.4g} samples a second. At least ingest.min_rate_hz = {params.min_rate_hz:g} are "
            f"needed to see a puncture.{hint} Record it faster, or lower ingest.min_rate_hz to take it all the same."
        )
    if sampling.largest_gap_s > params.max_gap_s:
        raise InputError(
            f"{source} has a gap of {1e3 * sampling.largest_gap_s:.3g} ms between two samples. At most "
            f"ingest.max_gap_s = {1e3 * params.max_gap_s:.3g} ms are allowed. Record it again, or raise "
            "ingest.max_gap_s."
        )
