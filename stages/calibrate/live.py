"""What a fit that still runs can show: the curve that came nearest to the measured one so far."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.shared.pictures.figure import new_figure, pixels_of
from stages.shared.pictures.preview import FRUIT, TEXT

SIZE_INCHES = (8.0, 4.5)

Array = NDArray[np.float64]


class NearestCurve:
    """The simulated force curve nearest to the measured one, of all that were tried in this process."""

    def __init__(self) -> None:
        self.curve: Array | None = None
        """[N], shape [sample_count]; None before the first simulation ends."""
        self.error_n = np.inf
        """Its mean distance from the measured one [N]."""

    def offer(self, curve: Array, measured: Array, use: NDArray[np.bool_]) -> None:
        """Keep the curve if it is nearer over the samples in use."""
        error = float(np.abs(curve - measured)[use].mean())
        if error < self.error_n:
            self.curve, self.error_n = curve.copy(), error


def live_picture(problem: Any, text: str) -> NDArray[np.uint8]:
    """Measured force and the nearest curve so far; 8-bit pixels, shape [height, width, 3]."""
    figure, canvas = new_figure(SIZE_INCHES)
    axis = figure.subplots()
    axis.plot(problem.time, problem.measured, color=TEXT, lw=1.5, label="measured")
    nearest = problem.nearest
    if nearest.curve is not None:
        label = f"nearest so far, {nearest.error_n:.2f} N off on average"
        axis.plot(problem.time, nearest.curve, color=FRUIT, lw=2, label=label)
    axis.set(xlabel="time [s]", ylabel="force on the knife [N]")
    axis.set_title(text, color=TEXT)
    axis.legend(frameon=False)
    return pixels_of(canvas)
