"""Plots without a display: a figure, its pixels, and values on a cut surface."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.shared.pictures.preview import COLOUR_MAP, SCAN, TEXT

DPI = 100


def new_figure(size_inches: tuple[float, float]) -> tuple[Any, Any]:
    """A matplotlib figure and its canvas."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size_inches, dpi=DPI, layout="constrained")
    return figure, FigureCanvasAgg(figure)


def pixels_of(canvas: Any) -> NDArray[np.uint8]:
    """8-bit pixels, shape [height, width, 3]."""
    buffer = io.BytesIO()
    canvas.print_rgba(buffer)
    columns, rows = canvas.get_width_height()
    return np.frombuffer(buffer.getvalue(), np.uint8).reshape(rows, columns, 4)[..., :3]


def draw_springs(
    axis: Any,
    position_m: NDArray[np.float64],
    area_m2: NDArray[np.float64],
    colours: NDArray[np.float64],
    title: str,
    *,
    full: NDArray[np.bool_] | None = None,
    limits: tuple[float, float] | None = None,
) -> Any:
    """Springs as dots on the cut surface; returns the full dots, for a colour bar.

    Args:
        axis: a matplotlib axis.
        position_m: (z, y) of the springs [m], shape [spring_count, 2].
        area_m2: their tributary areas [m²], shape [spring_count].
        colours: one value per spring, shape [spring_count], or its red, green and blue, shape [spring_count, 3].
        title: above the plot.
        full: springs that are drawn full; the others are hollow, shape [spring_count].
        limits: ends of the colour scale.
    """
    z, y = 1e3 * position_m.T
    size = 18.0 * np.sqrt(area_m2 / area_m2.mean())
    shown = np.ones(len(z), bool) if full is None else full
    scale = {}
    if colours.ndim == 1:
        low, high = limits or (float(colours.min()), float(colours.max()))
        # Equal values need a scale with a width, or each plot of them gets its own colour.
        margin = 0.0 if high > low else max(0.1 * abs(low), 1e-12)
        scale = {"cmap": COLOUR_MAP, "vmin": low - margin, "vmax": high + margin}
    dots = axis.scatter(z[shown], y[shown], s=size[shown], c=colours[shown], **scale)
    axis.scatter(z[~shown], y[~shown], s=size[~shown], facecolors="none", edgecolors=SCAN, lw=0.8)
    axis.set_aspect("equal")
    axis.set(xlabel="along the blade [mm]")
    axis.set_title(title, color=TEXT, fontsize=9)
    return dots
