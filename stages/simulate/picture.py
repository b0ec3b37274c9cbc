"""The picture of the stage `simulate`: the halves opening at a few times, and the force on the knife below."""

import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh
from disect_sim.knife import Knife
from stages.shared.pictures.cut_views import Moment, cut_views
from stages.shared.pictures.preview import FRUIT, SCAN, TEXT, WARNING

PLOT_HEIGHT = 400
"""[pixel]"""
DPI = 100


@dataclass(frozen=True)
class Profile:
    """Curves of the plot, all of shape [sample_count]."""

    time_s: NDArray[np.float64]
    force_n: NDArray[np.float64]
    """Shape [sample_count, 3]."""
    cut_fraction: NDArray[np.float64]


def simulate_picture(
    cut: CutMesh, knife: Knife, moments: Sequence[Moment], profile: Profile
) -> NDArray[np.uint8]:
    """8-bit pixels, shape [height, width, 3]: one view per moment above the force over time."""
    views = cut_views(cut, knife, moments)
    plot = force_plot(profile, [m.time_s for m in moments], width=views.shape[1])
    return np.concatenate([views, plot])


def force_plot(profile: Profile, marked_s: Sequence[float], *, width: int) -> NDArray[np.uint8]:
    """Force on the knife and share of the springs that is cut, over time; pixels, shape [height, width, 3]."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / DPI, PLOT_HEIGHT / DPI), dpi=DPI, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    norm = np.linalg.norm(profile.force_n, axis=1)
    axis.plot(profile.time_s, norm, color=FRUIT, lw=3.0, label="norm of the force on the knife")
    axis.plot(profile.time_s, profile.force_n[:, 1], color=TEXT, lw=1.0, label="its vertical part")
    for time_s in marked_s:
        axis.axvline(time_s, color=SCAN, lw=0.8, ls=":")
    axis.set(xlabel="time [s]", ylabel="force [N]", xlim=(0.0, float(profile.time_s[-1])), ylim=(0.0, None))
    right = axis.twinx()
    right.plot(
        profile.time_s, 100.0 * profile.cut_fraction, color=WARNING, lw=1.2, ls="--", label="springs cut"
    )
    right.set(ylabel="stiffness lost [%]", ylim=(0.0, 105.0))
    figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=9)
    buffer = io.BytesIO()
    canvas.print_rgba(buffer)
    columns, rows = canvas.get_width_height()
    pixels = np.frombuffer(buffer.getvalue(), np.uint8).reshape(rows, columns, 4)[..., :3]
    return pixels[:, :width]
