"""What the simulated cut of this motion left whole, from the tables of the stage replay."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

WHOLE = 0.5
"""A spring with more than this share of its stiffness still holds."""
LINES = 200
"""Heights at which the section's width is taken."""


@dataclass(frozen=True)
class Parting:
    """The end of the simulated cut."""

    cut_fraction: float
    """Share of the springs' stiffness that is gone."""
    reached_fraction: float
    """The same for the springs above the height where the edge ends, each counting the same."""
    end_position_m: NDArray[np.float64]
    """Where the simulated knife was at the last frame, shape [3]."""
    springs: int
    whole_heights_m: NDArray[np.float64]
    """Heights above the board, before the cut, of the springs that still hold, ascending."""

    def remains(self) -> str:
        """What still holds, in words."""
        count = len(self.whole_heights_m)
        if count == 0:
            return f"none of {self.springs} springs holds"
        low, high = (f"{1e3 * height:.1f}" for height in self.whole_heights_m[[0, -1]])
        where = low if low == high else f"{low} to {high}"
        return f"{count} of {self.springs} springs hold, {where} mm above the board"


def parting_of(frames: pl.DataFrame, springs: pl.DataFrame) -> Parting:
    """From the tables replay/frames and replay/springs."""
    last = len(frames) - 1
    before = springs.filter(pl.col("frame") == 0)["plus_m"].to_numpy()[:, 1]
    left = springs.filter(pl.col("frame") == last)["remaining_fraction"].to_numpy()
    end = frames["knife_position_m"].to_numpy()[last]
    reached = before > end[1]
    return Parting(
        cut_fraction=float(frames["cut_fraction"][last]),
        reached_fraction=1.0 - float(left[reached].mean()) if reached.any() else 0.0,
        end_position_m=end,
        springs=len(left),
        whole_heights_m=np.sort(before[left > WHOLE].astype(np.float64)),
    )


def area_below(section: NDArray[np.float64], height_m: float) -> float:
    """Area of the cut section below a height above the board [m²]; section: outline as in Fruit.section."""
    low, high = float(section[..., 1].min()), min(height_m, float(section[..., 1].max()))
    if high <= low:
        return 0.0
    step = (high - low) / LINES
    heights = low + step * (np.arange(LINES) + 0.5)
    return step * sum(_width(section, height) for height in heights)


def _width(section: NDArray[np.float64], height: float) -> float:
    """Of the section at a height [m]: between the first and second crossing, the third and fourth, ..."""
    first, second = section[:, 0], section[:, 1]
    crossed = (first[:, 1] > height) != (second[:, 1] > height)
    a, b = first[crossed], second[crossed]
    places = np.sort(a[:, 0] + (height - a[:, 1]) / (b[:, 1] - a[:, 1]) * (b[:, 0] - a[:, 0]))
    pairs = len(places) // 2
    return float((places[1 : 2 * pairs : 2] - places[0 : 2 * pairs : 2]).sum())
