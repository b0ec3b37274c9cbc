"""Sampling of a log, descent of the knife, contact onset, and contact with the board."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.ingest.description import IngestParams
from stages.runtime.errors import InputError
from stages.shared.fitting import MIN_SAMPLES

# Sampling


_MAX_RATE_HZ = 20_000.0
"""Maximum plausible rate; a higher one means a clock in another unit."""


@dataclass(frozen=True)
class Sampling:
    """Sampling of a log."""

    rate_hz: float
    duration_s: float
    largest_gap_s: float


def check_time(time_s: NDArray[np.float64], params: IngestParams, source: str) -> Sampling:
    """Reject an invalid clock; shape [n]."""
    if len(time_s) < MIN_SAMPLES:
        raise InputError(
            f"{source} has {len(time_s)} samples. It needs at least {MIN_SAMPLES}, at {params.min_rate_hz:g} Hz or "
            "more. Record the whole cut."
        )
    missing = np.flatnonzero(~np.isfinite(time_s))
    if len(missing):
        raise InputError(
            f"{source}: the time of sample {missing[0]} is missing or NaN ({len(missing)} in total). Each sample needs "
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
            f"({time_s[stuck[0] + 1]:.9g} s), {len(stuck)} times in total. It must increase at every sample. Remove "
            "repeated samples, or split the log where the clock was reset."
        )
    sampling = Sampling(
        float((len(time_s) - 1) / (time_s[-1] - time_s[0])), float(time_s[-1] - time_s[0]), float(steps.max())
    )
    _check_rate(sampling, params, source)
    return sampling


def _check_rate(sampling: Sampling, params: IngestParams, source: str) -> None:
    rate = sampling.rate_hz
    if rate > _MAX_RATE_HZ:
        raise InputError(
            f"{source} has {rate:.4g} samples per second. At most {_MAX_RATE_HZ:g} are plausible, so its clock is in "
            "another unit. Set it: --set ingest.time_unit=s (or ms, us, ns)."
        )
    if rate < params.min_rate_hz:
        hint = " The clock may be in milliseconds: --set ingest.time_unit=ms." if rate < 5.0 else ""
        raise InputError(
            f"{source} has {rate:.4g} samples per second. At least ingest.min_rate_hz = {params.min_rate_hz:g} are "
            f"needed to see a puncture.{hint} Record it faster, or lower ingest.min_rate_hz to accept it."
        )
    if sampling.largest_gap_s > params.max_gap_s:
        raise InputError(
            f"{source} has a gap of {1e3 * sampling.largest_gap_s:.3g} ms between two samples. At most "
            f"ingest.max_gap_s = {1e3 * params.max_gap_s:.3g} ms are allowed. Record it again, or raise "
            "ingest.max_gap_s."
        )


# Descent of the knife: from its highest to its lowest point


_START_DEPTH_M = 0.001
"""Depth from which the descent counts: above it the knife rests, and height does not determine time."""
_MIN_DEPTH_M = 0.005
"""Minimum depth of a cut."""


@dataclass(frozen=True)
class Descent:
    """Descending part of a record."""

    top: int
    """First sample deeper than START_DEPTH_M."""
    bottom: int
    """Lowest sample."""
    depth_m: NDArray[np.float64]
    """Depth of the edge below its highest point before the cut [m], shape [n]."""

    @property
    def samples(self) -> slice:
        """Samples from top to bottom, both included."""
        return slice(self.top, self.bottom + 1)


def find_descent(height_m: NDArray[np.float64], source: str) -> Descent:
    """Find the descent to the lowest point of a record, height [m] of shape [n]."""
    bottom = int(np.argmin(height_m))
    start = float(height_m[: bottom + 1].max())
    depth = start - height_m
    if depth[bottom] < _MIN_DEPTH_M:
        raise InputError(
            f"{source}: the knife goes down {1e3 * depth[bottom]:.3g} mm. It must go down at least "
            f"{1e3 * _MIN_DEPTH_M:g} mm in a cut. Check ingest.up_axis and ingest.length_unit, or give the log "
            "of a cut."
        )
    top = int(np.flatnonzero(depth[: bottom + 1] <= _START_DEPTH_M)[-1]) + 1
    return Descent(top, bottom, depth)


# Board contact: a steep rise of the force at the end of the descent


_BAND_M = 6.0e-3
"""Height above the lowest point in which board contact is searched [m]."""
_OVER_M = 0.5e-3
"""Depth over which slopes are taken [m]."""
_STEEP_N_M = 10.0e3
"""Minimum slope [N/m]: fruit pushes back with up to 5 N per mm, an arm on a board with 20 and more."""
_STEEPER = 3.0
"""Minimum ratio to any slope before it."""
_LEAST_RISE_N = 8.0
"""Minimum rise [N]; a smaller one has little effect."""

_Array = NDArray[np.float64]


def board_contact(upward_n: _Array, descent: Descent) -> int | None:
    """Return the first sample at which the edge presses on the board, or None.

    upward_n: tared and low-passed force [N], shape [n].
    """
    down = np.arange(descent.top, descent.bottom + 1)
    depth = np.maximum.accumulate(descent.depth_m[down])
    force = upward_n[down]
    slope = (force - np.interp(depth - _OVER_M, depth, force)) / _OVER_M
    low = depth > depth[-1] - _BAND_M
    before = slope[~low]
    limit = max(_STEEP_N_M, _STEEPER * float(before.max())) if len(before) else _STEEP_N_M
    steep = np.flatnonzero(low & (slope > limit))
    if not len(steep):
        return None
    # The slope looks back by _OVER_M: the rise began there.
    first = int(np.searchsorted(depth, depth[steep[0]] - _OVER_M))
    if force[first:].max() - force[first] < _LEAST_RISE_N:
        return None
    return int(down[first])


_HOLD_S = 0.05
"""Time for which the force must stay above the threshold; a knock of the arm's gears is shorter."""
_FOOT_FRACTION = 0.25
"""The onset is the foot of the rise: where the force was last below this fraction of the threshold."""


def find_onset(
    time_s: NDArray[np.float64], upward_n: NDArray[np.float64], descent: Descent, threshold_n: float
) -> int | None:
    """Return the sample at which contact begins, or None.

    Args:
        time_s: Time [s], shape [n].
        upward_n: Upward force on the knife, tared and low-passed [N], shape [n].
        descent: Descent of the knife; contact is searched only there.
        threshold_n: Force that indicates contact [N].
    """
    above = upward_n >= threshold_n
    for crossing in range(descent.top, descent.bottom + 1):
        if above[crossing]:
            until = np.searchsorted(time_s, time_s[crossing] + _HOLD_S)
            if above[crossing : min(int(until), descent.bottom) + 1].all():
                return _foot(upward_n, crossing, descent.top, _FOOT_FRACTION * threshold_n)
    return None


def require_onset(
    time_s: NDArray[np.float64],
    upward_n: NDArray[np.float64],
    descent: Descent,
    threshold_n: float,
    source: str,
) -> int:
    """Same as find_onset, but raise InputError if there is no contact, or one that pulls the knife down."""
    onset = find_onset(time_s, upward_n, descent, threshold_n)
    if onset is not None:
        return onset
    strongest = float(upward_n[descent.samples].max())
    if find_onset(time_s, -upward_n, descent, threshold_n) is not None:
        raise InputError(
            f"{source}: the force pulls the knife down, by up to {-upward_n[descent.samples].min():.3g} N, while it "
            "goes down. A fruit must push it up, so the log has the other sign. Set it: --set "
            "ingest.force_is=exerted (by the robot) or on_knife."
        )
    raise InputError(
        f"{source}: no contact was found. The knife is pushed up by at most {strongest:.3g} N while it goes down; "
        f"contact is {threshold_n:g} N for {_HOLD_S:g} s. Give the log of a cut; if it is one, lower "
        "ingest.onset_force_n or correct ingest.force_unit; if its sensor was zeroed and it begins in contact: --set "
        "ingest.tare=none."
    )


def _foot(upward_n: NDArray[np.float64], crossing: int, top: int, low_n: float) -> int:
    """Return the foot of the rise, searched backwards from the crossing."""
    foot = crossing
    while foot > top and upward_n[foot] > low_n and upward_n[foot - 1] < upward_n[foot]:
        foot -= 1
    return foot
