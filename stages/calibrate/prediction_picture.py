"""The picture of a prediction: measured force, predicted band, baselines."""

import numpy as np
from numpy.typing import NDArray

from stages.calibrate.prediction import Prediction
from stages.shared.pictures.figure import new_figure, pixels_of
from stages.shared.pictures.preview import CUT, FRUIT, SCAN, TEXT


def prediction_picture(found: Prediction) -> NDArray[np.uint8]:
    """8-bit pixels, shape [height, width, 3]."""
    figure, canvas = new_figure((9.0, 5.0))
    axis = figure.add_subplot()
    p, mine = found.problem, 100.0 * found.nmae(found.predicted)
    depth = 1e3 * (p.height.max() - p.height)
    axis.fill_between(depth, found.low, found.high, color=FRUIT, alpha=0.18, lw=0.0, label="90 % band")
    axis.plot(depth, p.measured, color=TEXT, lw=2.2, label="measured, not shown to the fit")
    axis.plot(
        depth,
        found.predicted,
        color=FRUIT,
        lw=2.0,
        label=f"predicted: {100 * found.nmae(found.predicted):.1f} %",
    )
    for (name, profile), colour in zip(found.guesses.items(), (CUT, SCAN), strict=True):
        axis.plot(depth, profile, color=colour, lw=1.2, label=f"{name}: {100 * found.nmae(profile):.1f} %")
    axis.set(xlabel="depth of the edge [mm]", ylabel="force on the knife [N]", ylim=(0.0, None))
    axis.set_title(
        f"Mean error {mine:.1f} %, {100 * found.amplitude:.0f} % of the predicted force, "
        f"{100 * found.coverage:.0f} % inside the band",
        color=TEXT,
        fontsize=10,
    )
    axis.legend(frameon=False, fontsize=8, loc="lower right")
    return pixels_of(canvas)
