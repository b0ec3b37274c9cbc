"""Picture of the stage `ingest`: raw, air and net force over time and over height, with the onset."""

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, WARNING

_SIZE_INCH = (14.0, 9.0)
_DPI = 100


def force_picture(
    time_s: NDArray[np.float64],
    height_m: NDArray[np.float64],
    raw_n: NDArray[np.float64],
    air_n: NDArray[np.float64],
    net_n: NDArray[np.float64],
    filtered_norm_n: NDArray[np.float64],
    valid: NDArray[np.bool_],
    *,
    onset: int,
    title: str,
) -> bytes:
    """Draw the upward force [N] over time [s] and over height [m] as PNG, forces of shape [n, 3]; heights below."""
    figure, canvas = _figure()
    over_time, over_height = figure.add_subplot(2, 2, 1), figure.add_subplot(2, 2, 2)
    for axis, x in ((over_time, time_s), (over_height, 1e3 * height_m)):
        axis.plot(x, raw_n[:, 1], color=SCAN, lw=1.2, label="raw, upward")
        axis.plot(x, air_n[:, 1], color=CUT, lw=1.2, label="tare (air), upward")
        axis.plot(x, net_n[:, 1], color=TEXT, lw=0.8, label="net, upward")
        axis.plot(x, filtered_norm_n, color=FRUIT, lw=2.4, label="net, norm, low-passed")
        axis.axvline(x[onset], color=WARNING, lw=1.2, ls="--", label="contact onset")
        axis.set(ylabel="force on the knife [N]")
    over_time.set(xlabel="time [s]")
    over_height.set(xlabel="height of the edge above the board [mm]")
    over_height.invert_xaxis()
    motion = figure.add_subplot(2, 2, 3)
    motion.plot(time_s, 1e3 * height_m, color=TEXT, lw=1.6)
    motion.axvline(time_s[onset], color=WARNING, lw=1.2, ls="--")
    motion.axhline(1e3 * height_m[onset], color=WARNING, lw=0.6, ls=":")
    motion.set(xlabel="time [s]", ylabel="height of the edge above the board [mm]")
    sides = figure.add_subplot(2, 2, 4)
    for column, (name, colour) in enumerate(
        (("across the blade (x)", CUT), ("upward (y)", TEXT), ("along the blade (z)", FRUIT))
    ):
        sides.plot(time_s, net_n[:, column], color=colour, lw=1.0, label=f"net, {name}")
    sides.axvline(time_s[onset], color=WARNING, lw=1.2, ls="--")
    sides.set(xlabel="time [s]", ylabel="force on the knife [N]")
    for axis in (over_time, motion, sides):
        _shade(axis, time_s, ~valid)
    for axis in (over_time, sides):
        axis.legend(fontsize=8, frameon=False)
    figure.suptitle(title, fontsize=11)
    return _png(canvas)


def no_log_picture() -> bytes:
    """Draw a PNG that says that there is no log."""
    figure, canvas = _figure()
    figure.text(0.5, 0.5, "no log", ha="center", va="center", fontsize=28, color=SCAN)
    return _png(canvas)


def _figure() -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCH, dpi=_DPI, layout="constrained")
    return figure, FigureCanvasAgg(figure)


def _shade(axis: Any, time_s: NDArray[np.float64], where: NDArray[np.bool_]) -> None:
    """Shade the samples that are not valid."""
    axis.fill_between(
        time_s, 0.0, 1.0, where=where, transform=axis.get_xaxis_transform(), color="#eef0f2", lw=0
    )


def _png(canvas: Any) -> bytes:
    buffer = io.BytesIO()
    canvas.print_png(buffer)
    return buffer.getvalue()
