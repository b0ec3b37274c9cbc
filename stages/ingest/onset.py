"""Contact onset: when the knife begins to feel the fruit."""

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.ingest.descent import Descent

HOLD_S = 0.05
"""The force must stay above the threshold for so long; a knock of the arm's gears is shorter."""
FOOT_FRACTION = 0.25
"""The onset is the foot of the rise: where the force was last below this part of the threshold."""


def find_onset(
    time_s: NDArray[np.float64], upward_n: NDArray[np.float64], descent: Descent, threshold_n: float
) -> int | None:
    """Sample at which contact begins, or None.

    Args:
        time_s: Time [s], shape [n].
        upward_n: Upward force on the knife, tared and low-passed [N], shape [n].
        descent: Where the knife goes down; only there is contact looked for.
        threshold_n: Force that only contact can give [N].
    """
    above = upward_n >= threshold_n
    for crossing in range(descent.top, descent.bottom + 1):
        if above[crossing]:
            until = np.searchsorted(time_s, time_s[crossing] + HOLD_S)
            if above[crossing : min(int(until), descent.bottom) + 1].all():
                return _foot(upward_n, crossing, descent.top, FOOT_FRACTION * threshold_n)
    return None


def require_onset(
    time_s: NDArray[np.float64],
    upward_n: NDArray[np.float64],
    descent: Descent,
    threshold_n: float,
    source: str,
) -> int:
    """Like find_onset, with a sentence if there is no contact, or one that pulls the knife down."""
    onset = find_onset(time_s, upward_n, descent, threshold_n)
    if onset is not None:
        return onset
    strongest = float(upward_n[descent.samples].max())
    if find_onset(time_s, -upward_n, descent, threshold_n) is not None:
        raise InputError(
            f"{source}: the force pulls the knife down, by up to {-upward_n[descent.samples].min():.3g} N, while it "
            "goes down. A fruit must push it up, so the log has the other sign. Say which: --set "
            "ingest.force_is=exerted (by the robot) or on_knife."
        )
    raise InputError(
        f"{source}: no contact was found. The knife is pushed up by at most {strongest:.3g} N while it goes down; "
        f"contact is {threshold_n:g} N for {HOLD_S:g} s. Give the log of a cut; if it is one, lower "
        "ingest.onset_force_n or correct ingest.force_unit."
    )


def _foot(upward_n: NDArray[np.float64], crossing: int, top: int, low_n: float) -> int:
    """Down the rise from the crossing, to where it ends."""
    foot = crossing
    while foot > top and upward_n[foot] > low_n and upward_n[foot - 1] < upward_n[foot]:
        foot -= 1
    return foot
