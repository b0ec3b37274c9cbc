"""The recorded cut: what the robot measured, where contact begins, and the part that is simulated."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.signal import find_peaks

from disect_sim.cut_mesh import CutMesh
from stages.shared.inputs.further_logs import LOGS_NOTE

ONSET_N = 1.0
"""A simulated force above this is contact [N]; that of a log is found by ingest."""
ONSET_HOLD_S = 0.03
"""The force must stay above the threshold this long to count as contact, not as a bump [s]."""
PEAK_PROMINENCE = 0.02
"""A puncture shows as a peak that stands out by this share of the largest force [-]."""
PUNCTURE_WINDOW_S = 0.05
"""A simulated peak further than this from the measured one is another event [s]: one period of a 20 Hz low-pass."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class RecordedCut:
    """A force log in the cutting frame."""

    time: Array
    """[s], strictly increasing, shape [m]."""
    position: Array
    """Knife's edge (x, y up above the board, z along the blade) [m], shape [m, 3]."""
    velocity: Array
    """[m/s], shape [m, 3]."""
    force: Array
    """On the knife, tared [N], shape [m, 3]."""
    valid: NDArray[np.bool_]
    """Samples that may be compared, shape [m]."""
    onset_s: float
    """When the knife first touches the fruit."""


def read_recorded_cut(table: pl.DataFrame) -> RecordedCut | None:
    """The recorded cut in ingest's table; None where the scan has no log."""
    if not len(table):
        return None
    return RecordedCut(
        table["time_s"].to_numpy(),
        table["position_m"].to_numpy(),
        table["velocity_m_s"].to_numpy(),
        table["force_n"].to_numpy(),
        table["valid"].to_numpy(),
        float(table.filter("contact")["time_s"][0]),
    )


def read_further_cuts(table: pl.DataFrame) -> list[RecordedCut]:
    """Further cuts of the fruit, in ingest's second table."""
    parts = table.partition_by("log", maintain_order=True)
    return [cut for cut in map(read_recorded_cut, parts) if cut is not None]


def own_logs(notes: Callable[[str], Mapping[str, str]]) -> list[str]:
    """Digests of the logs in ingest's tables, of which `notes` gives the notes."""
    tables = ("ingest/force", "ingest/further")
    return [digest for table in tables for digest in notes(table).get(LOGS_NOTE, "").split()]


def find_onset(time: Array, norm: Array, threshold_n: float = ONSET_N) -> float | None:
    """When a force norm [N] rises above the threshold and stays there [s]; None if it never does."""
    above = norm > threshold_n
    if not above.any():
        return None
    ends = np.searchsorted(time, time + ONSET_HOLD_S)
    count = np.concatenate([[0], np.cumsum(above)])
    held = (count[ends] - count[:-1]) == (ends - np.arange(len(time)))
    starts = np.flatnonzero(above & held)
    if not len(starts):
        return None
    i = int(starts[0])
    if i == 0:
        return float(time[0])
    rise = norm[i] - norm[i - 1]
    share = 1.0 if rise <= 0.0 else (threshold_n - norm[i - 1]) / rise
    return float(time[i - 1] + np.clip(share, 0.0, 1.0) * (time[i] - time[i - 1]))


def find_puncture(time: Array, norm: Array, *, near_s: float | None = None) -> tuple[float, float] | None:
    """Time [s] and height [N] of the first peak that stands out of a profile: the skin giving way.

    With `near_s`, the nearest such peak at most PUNCTURE_WINDOW_S from that time; None if there is none.
    """
    peaks, _ = find_peaks(norm, prominence=PEAK_PROMINENCE * float(norm.max()))
    if near_s is not None:
        peaks = sorted(peaks, key=lambda i: abs(time[i] - near_s))
        peaks = [i for i in peaks[:1] if abs(time[i] - near_s) <= PUNCTURE_WINDOW_S]
    return (float(time[peaks[0]]), float(norm[peaks[0]])) if len(peaks) else None


def top_of_body(mesh: CutMesh) -> float:
    """Highest point of the cut face [m]: where the knife meets the body first."""
    return float(mesh.virtual_positions()[:, 1].max())
