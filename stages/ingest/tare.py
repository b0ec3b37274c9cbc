"""Tare: force reading without contact, from no-contact runs or from the time before contact."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.ingest.contact import Descent, board_contact, find_descent, require_onset
from stages.ingest.description import IngestParams
from stages.ingest.force_recovery import EdgeRecord
from stages.runtime.errors import InputError
from stages.shared.fitting import low_pass

# Alignment of a no-contact run with the log of a cut by depth below the start


_MAX_MISSING_M = 0.002
"""Maximum depth by which the cut may exceed the air run."""
_MAX_DURATION_RATIO = 1.3
"""Maximum ratio of the descents' durations: the arm's friction depends on its speed."""


def _matching_time(
    time_s: NDArray[np.float64],
    descent: Descent,
    air_time_s: NDArray[np.float64],
    air_descent: Descent,
    source: str,
) -> NDArray[np.float64]:
    """Return, for every sample of the cut, the corresponding time in the air run [s], shape [n].

    While the knife goes down, that is when the air run was at the same depth; depth counts from the start of each run,
    so an air run above the fruit is sufficient. Before and after, time advances equally in both.
    """
    _check_same_motion(time_s, descent, air_time_s, air_descent, source)
    down = descent.samples
    air_depth = np.maximum.accumulate(air_descent.depth_m[air_descent.samples])
    cut_depth = np.maximum.accumulate(descent.depth_m[down])
    matched = np.interp(cut_depth, air_depth, air_time_s[air_descent.samples])
    before = matched[0] + (time_s[: down.start] - time_s[down.start])
    after = matched[-1] + (time_s[down.stop :] - time_s[down.stop - 1])
    return np.concatenate([before, matched, after])


def _check_same_motion(
    time_s: NDArray[np.float64],
    descent: Descent,
    air_time_s: NDArray[np.float64],
    air_descent: Descent,
    source: str,
) -> None:
    deep, air_deep = descent.depth_m[descent.bottom], air_descent.depth_m[air_descent.bottom]
    if deep > air_deep + _MAX_MISSING_M:
        raise InputError(
            f"{source} goes down {1e3 * air_deep:.3g} mm, the cut {1e3 * deep:.3g} mm. A no-contact run must be the "
            "same motion. Record it with the cut's own commands, or tare on the time before contact: --set "
            "ingest.tare=window."
        )
    lasted = time_s[descent.bottom] - time_s[descent.top]
    air_lasted = air_time_s[air_descent.bottom] - air_time_s[air_descent.top]
    if not 1 / _MAX_DURATION_RATIO < lasted / air_lasted < _MAX_DURATION_RATIO:
        raise InputError(
            f"{source} goes down in {air_lasted:.3g} s, the cut in {lasted:.3g} s. A no-contact run must be the same "
            "motion, as the arm's friction depends on its speed. Record it again, or tare on the time before contact: "
            "--set ingest.tare=window."
        )


_MAX_AIR_RANGE_N = 10.0
"""Maximum range of the vertical force in a no-contact run on its way down; real ones vary by 5, more means contact."""
_ONSET_MARGIN_S = 0.02
"""Time between the window and the onset, about the blur of the low-pass."""
_MIN_WINDOW_SAMPLES = 5
_MAX_ROUNDS = 20
"""Maximum number of rounds: window and onset depend on each other; real logs need three."""


@dataclass(frozen=True)
class Tare:
    """Force to subtract from every sample."""

    force_n: NDArray[np.float64]
    """Tare [N], shape [n, 3]."""
    covered: NDArray[np.bool_]
    """False where no air run covers the sample, shape [n]."""
    method: str


def air_tare(
    record: EdgeRecord, descent: Descent, air_runs: Mapping[str, EdgeRecord], cutoff_hz: float
) -> Tare:
    """Return the mean of the no-contact runs, low-passed and aligned on the descent, up to board contact."""
    forces, covered = [], np.ones(len(record.time_s), bool)
    for name, air in air_runs.items():
        air_descent = find_descent(air.height_m, name)
        smooth = low_pass(air.time_s, air.force_n, cutoff_hz)
        end = board_contact(smooth[:, 1] - smooth[air_descent.top, 1], air_descent)
        last = air_descent.bottom if end is None else end
        varies = float(np.ptp(smooth[air_descent.top : last + 1, 1]))
        if varies > _MAX_AIR_RANGE_N:
            raise InputError(
                f"{name}: the vertical force varies by {varies:.3g} N on the way down. In a no-contact run it varies "
                f"by at most {_MAX_AIR_RANGE_N:g} N, so this one touched something. Give a run in air with --air."
            )
        times = _matching_time(record.time_s, descent, air.time_s, air_descent, name)
        known_until = air.time_s[-1] if end is None else air.time_s[end]
        covered &= (times >= air.time_s[0]) & (times <= known_until)
        forces.append(np.stack([np.interp(times, air.time_s, column) for column in smooth.T], axis=1))
    method = f"mean of {len(forces)} no-contact run{'s' if len(forces) > 1 else ''}, aligned on the descent"
    return Tare(np.mean(forces, axis=0), covered, method)


def zero_tare(record: EdgeRecord) -> Tare:
    """Return no tare: the sensor was zeroed before the log began."""
    return Tare(np.zeros_like(record.force_n), np.ones(len(record.time_s), bool), "none: the log is zeroed")


def window_tare(record: EdgeRecord, descent: Descent, params: IngestParams, source: str) -> Tare:
    """Return the mean force while the knife moves in air, just before contact."""
    time = record.time_s
    smooth = low_pass(time, record.force_n, params.reading.filter_cutoff_hz)
    begin, end = time[descent.top], time[descent.top] + params.tare_window_s
    onset = -1
    for _ in range(_MAX_ROUNDS):
        window = (time >= begin) & (time <= end)
        if window.sum() < _MIN_WINDOW_SAMPLES:
            raise InputError(
                f"{source} has {window.sum()} samples of the knife moving in air before contact. The tare needs at "
                f"least {_MIN_WINDOW_SAMPLES}. Start higher above the fruit, or record a no-contact run and give it "
                "with --air."
            )
        level = record.force_n[window].mean(axis=0)
        new_onset = require_onset(time, smooth[:, 1] - level[1], descent, params.onset_force_n, source)
        if new_onset == onset:
            break
        onset = new_onset
        end = time[onset] - _ONSET_MARGIN_S
        begin = max(time[descent.top], end - params.tare_window_s)
    method = f"mean of {window.sum()} samples before contact, {begin:.3f} s to {end:.3f} s"
    return Tare(np.broadcast_to(level, record.force_n.shape).copy(), np.ones(len(time), bool), method)
