"""The optimised motion, read from its table: exactly one row per millisecond."""

import numpy as np
import polars as pl

from disect_sim.errors import InputError
from stages.export.segments import CUT, PERIOD_S, EdgeMotion

SHORTEST = 10
"""Rows; a shorter motion is none."""
GRID_S = 1e-9


def cut_of(table: pl.DataFrame) -> EdgeMotion:
    """The cut of the table optimize/motion; InputError if its rows are not 1 ms apart."""
    time = table["time_s"].to_numpy()
    if len(time) < SHORTEST:
        raise InputError(
            f"The motion has {len(time)} rows. It needs at least {SHORTEST}. Run optimize again."
        )
    off = np.abs(time - time[0] - PERIOD_S * np.arange(len(time)))
    if off.max() > GRID_S:
        row = int((off > GRID_S).argmax())
        raise InputError(
            f"The motion's row {row} is at {time[row]:.6f} s, {1e3 * off[row]:.3g} ms off the 1 ms grid. The robot "
            "needs exactly one row per millisecond. Run optimize again."
        )
    position, velocity, acceleration, force = (
        table[name].to_numpy() for name in ("position_m", "velocity_m_s", "acceleration_m_s2", "force_n")
    )
    bad = ~np.isfinite(np.concatenate([position, velocity, acceleration, force], axis=1)).all(axis=1)
    if bad.any():
        raise InputError(
            f"The motion's row {int(bad.argmax())} holds NaN or infinity. All must be finite. Run optimize again."
        )
    return EdgeMotion(position, velocity, acceleration, force, np.full(len(time), CUT))
