"""Corner and trace plots of a sampled posterior."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.calibrate.samplers.sampling import Samples
from stages.shared.pictures.preview import CUT, FRUIT, SCAN, TEXT

MOST_SHOWN = 5
"""Unknowns of a corner plot; those that the log narrowed most."""
MOST_BINS = 24
MOST_DOTS = 1500
"""Points of a corner plot."""

Array = NDArray[np.float64]


def most_learnt(samples: Samples) -> list[int]:
    """Unknowns to show: the narrowest after the log, in their own order."""
    order = np.argsort(samples.flat.std(axis=0), kind="stable")[:MOST_SHOWN]
    return sorted(int(i) for i in order)


def draw_corner(
    figure: Any,
    points: Array,
    names: Sequence[str],
    *,
    marks: Array | None = None,
    unit: str = "standard deviations",
) -> None:
    """Histograms on the diagonal, pairs below it; points of shape [point_count, shown_count], marks: one point."""
    count = len(names)
    axes = np.atleast_2d(figure.subplots(count, count))
    shown = points[:: max(1, len(points) // MOST_DOTS)]
    bins = min(MOST_BINS, 4 + int(np.sqrt(len(points))))
    size = float(np.clip(60.0 / np.sqrt(len(shown)), 2.0, 6.0))
    for row in range(count):
        for column in range(count):
            axis = axes[row, column]
            if column > row:
                axis.set_axis_off()
                continue
            if column == row:
                axis.hist(points[:, row], bins, color=FRUIT, density=True)
                axis.set_yticks([])
                axis.set_title(names[row].replace("_", " "), color=TEXT, fontsize=8)
            else:
                axis.plot(shown[:, column], shown[:, row], ".", color=CUT, ms=size, alpha=0.5, mew=0)
            if marks is not None:
                axis.axvline(marks[column], color=TEXT, lw=0.8, ls=":")
                if column < row:
                    axis.axhline(marks[row], color=TEXT, lw=0.8, ls=":")
            axis.tick_params(labelsize=6)
    axes[-1, 0].set_xlabel(unit, fontsize=7)


def draw_traces(figure: Any, samples: Samples, names: Sequence[str], chosen: Sequence[int]) -> None:
    """Every chain over its iterations, burn-in grey."""
    axes = np.atleast_1d(figure.subplots(len(chosen), 1, sharex=True))
    burn_in = samples.trace.shape[1] - samples.t.shape[1]
    for axis, i in zip(axes, chosen, strict=True):
        for chain in samples.trace[..., i]:
            axis.plot(chain, lw=0.6)
        axis.axvspan(0, burn_in, color=SCAN, alpha=0.3, lw=0)
        axis.set_ylabel(names[i].replace("_", "\n"), fontsize=6, rotation=0, ha="right", va="center")
        axis.tick_params(labelsize=6)
    axes[-1].set_xlabel("iteration (grey: burn-in)" if samples.chained else "point", fontsize=8)
