"""Laying a no-contact run over the log of a cut: the same depth below the start is the same moment."""

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.ingest.descent import Descent

MAX_MISSING_M = 0.002
"""How much deeper than the air run the cut may go."""
MAX_DURATION_RATIO = 1.3
"""Descents that differ more in time are different motions: the arm's friction depends on its speed."""


def matching_time(
    time_s: NDArray[np.float64],
    descent: Descent,
    air_time_s: NDArray[np.float64],
    air_descent: Descent,
    source: str,
) -> NDArray[np.float64]:
    """For every sample of the cut the time in the air run that belongs to it [s], shape [n].

    While the knife goes down, that is when the air run was at the same depth; depth counts from the start of each
    run, so an air run above the fruit will do. Before and after, time runs on alike in both.
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
    if deep > air_deep + MAX_MISSING_M:
        raise InputError(
            f"{source} goes down {1e3 * air_deep:.3g} mm, the cut {1e3 * deep:.3g} mm. A no-contact run must be the "
            "same motion. Record it with the cut's own commands, or tare on the time before contact: --set "
            "ingest.tare=window."
        )
    lasted = time_s[descent.bottom] - time_s[descent.top]
    air_lasted = air_time_s[air_descent.bottom] - air_time_s[air_descent.top]
    if not 1 / MAX_DURATION_RATIO < lasted / air_lasted < MAX_DURATION_RATIO:
        raise InputError(
            f"{source} goes down in {air_lasted:.3g} s, the cut in {lasted:.3g} s. A no-contact run must be the same "
            "motion, as the arm's friction depends on its speed. Record it again, or tare on the time before contact: "
            "--set ingest.tare=window."
        )
