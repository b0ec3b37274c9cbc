"""The picture of the stage `optimize`: force before and after, the knife's path over the fruit, the descent."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import ConvexHull

from stages.support.preview import FRUIT, SCAN, TEXT, WARNING

if TYPE_CHECKING:
    from stages.optimize import Optimized

SIZE_INCHES = (16.0, 5.2)
DPI = 100


def optimize_picture(optimized: "Optimized", silhouette: NDArray[np.float64]) -> NDArray[np.uint8]:
    """8-bit pixels, shape [height, width, 3]; silhouette: points (z, y) of the fruit [m], shape [n, 2]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=SIZE_INCHES, dpi=DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    force, path, descent = figure.subplots(1, 3, width_ratios=(1.2, 1.0, 1.0))
    cut, vertical, slicing = optimized.cut, optimized.vertical, optimized.slicing
    time = cut.times.numpy()[1 : len(vertical.norm) + 1]
    force.plot(time, vertical.norm, color=SCAN, lw=2, label=f"vertical, mean {vertical.norm.mean():.1f} N")
    force.plot(time, slicing.norm, color=FRUIT, lw=2, label=f"slicing, mean {slicing.norm.mean():.1f} N")
    force.set(xlabel="time [s]", ylabel="norm of the force on the knife [N]", ylim=(0.0, None))
    force.set_title(f"{100.0 * optimized.reduction:.1f} % less mean force", color=TEXT)
    force.legend(frameon=False)

    with torch.no_grad():
        position = cut.trajectory(slicing.variables).position.numpy()
    hull = silhouette[ConvexHull(silhouette).vertices]
    path.fill(1e3 * hull[:, 0], 1e3 * hull[:, 1], color=FRUIT, alpha=0.35, lw=0)
    points = path.scatter(1e3 * position[:, 2], 1e3 * position[:, 1], c=cut.times.numpy(), s=4, cmap="viridis")
    figure.colorbar(points, ax=path, label="time [s]")
    path.axhline(0.0, color=TEXT, lw=1)
    path.set(xlabel="along the blade, z [mm]", ylabel="height of the edge's middle [mm]", aspect="equal")
    path.set_title("the edge's middle over the fruit", color=TEXT)

    for name, run in optimized.runs.items():
        descent.plot([row["mean_force_n"] for row in run.history], lw=1.5, label=name)
    descent.axhline(vertical.norm.mean(), color=WARNING, lw=1, ls="--", label="vertical")
    descent.set(xlabel="iteration", ylabel="mean force [N]")
    descent.set_title("descent under the constraints", color=TEXT)
    descent.legend(frameon=False)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[:, :, :3].copy()
