"""Draws the movie at the head of the README, docs/img/cut.gif, from the artifacts of a scan's stage `replay`.

    python -m lab.docs.draw_cut_movie data/scans/synthetic_apple docs/img/cut.gif

Needs a finished run of that scan.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image, ImageDraw

from pipelines.report.viewer import WEDGE, blade_points
from stages.runtime.artifacts import read_metrics, read_table
from stages.shared.pictures import SCAN, Layer, Panel, board_layer, render

SIZE, PLOT_HEIGHT, DPI = (640, 400), 170, 100
EVERY, MILLISECONDS, COLOURS = 2, 90, 96
VIEW = (0.75, 0.5, 1.0)
BLADE_SHARE = 1.5
"""The blade is drawn this much longer than the fruit, not in its full length, so that the fruit is large."""
APART_M = 0.004
"""The halves are drawn this much farther apart at the end, so that the cut is seen."""


def movie(scan_dir: Path) -> list[Image.Image]:
    """Every second frame of the recording: halves coloured by displacement, knife, and the force below."""
    frames, faces = read_table(scan_dir, "replay/frames"), read_table(scan_dir, "replay/faces")
    vertices = read_table(scan_dir, "replay/vertices")
    metrics = read_metrics(scan_dir / "replay" / "metrics.json")
    count = len(vertices) // len(frames)
    corners, side = faces["vertices"].to_numpy(), faces["side"].to_numpy()
    way = np.zeros(count)
    way[corners.ravel()] = np.repeat(side, 3)
    most = 1e3 * metrics["max_displacement_m"]
    rest = vertices.head(count)["position_m"].to_numpy().astype(float)
    shown = min(metrics["blade_length_m"], BLADE_SHARE * float(np.ptp(rest[:, 2])))
    blade = np.array(blade_points({**metrics, "blade_length_m": shown}))
    knife = frames["knife_position_m"].to_numpy()
    everything = corners_around(np.concatenate([blade + knife[0], blade + knife[-1], rest]))
    plot, place = force_plot(frames)
    pictures = []
    for i in [*range(0, len(frames), EVERY), *[len(frames) - 1] * 8]:
        rows = vertices.slice(i * count, count)
        points = rows["position_m"].to_numpy().astype(float)
        points[:, 0] += 0.5 * APART_M * way * frames["cut_fraction"][i]
        shade = 1e3 * rows["displacement_m"].to_numpy()[corners].mean(axis=1)
        panel = Panel(
            f"{frames['time_s'][i]:.2f} s",
            [
                Layer(everything, colour="white", size=1.0),
                board_layer(points, margin_m=0.02),
                Layer(blade + knife[i], np.array(WEDGE, np.int32), colour=SCAN),
                Layer(
                    points, corners, values=shade, value_range=(0.0, most), value_title="displacement [mm]"
                ),
            ],
            view=VIEW,
        )
        picture = Image.new("RGB", (SIZE[0], SIZE[1] + PLOT_HEIGHT), "white")
        picture.paste(Image.fromarray(render([panel], panel_size=SIZE)))
        picture.paste(plot, (0, SIZE[1]))
        x, low, high = place(frames["time_s"][i])
        ImageDraw.Draw(picture).line([(x, SIZE[1] + low), (x, SIZE[1] + high)], fill="#d1383d", width=2)
        pictures.append(picture.quantize(COLOURS, dither=Image.Dither.NONE))
    return pictures


def corners_around(points: np.ndarray) -> np.ndarray:
    """Corners of the box around points [m], shape [n, 3]: unseen in the picture, they keep its scale."""
    ends = zip(points.min(axis=0), points.max(axis=0), strict=True)
    return np.stack(np.meshgrid(*ends, indexing="ij"), axis=-1).reshape(-1, 3)


def force_plot(
    frames: pl.DataFrame,
) -> tuple[Image.Image, Callable[[float], tuple[float, float, float]]]:
    """The force over time as a picture, and a function from time [s] to (x, top, bottom) [pixel] in it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(SIZE[0] / DPI, PLOT_HEIGHT / DPI), dpi=DPI)
    axis = figure.add_axes((0.09, 0.27, 0.89, 0.68))
    axis.plot(frames["time_s"], frames["force_norm_n"], color="#0072b2", lw=2)
    axis.set(
        xlabel="time [s]", ylabel="force on the knife [N]", xlim=(0.0, frames["time_s"][-1]), ylim=(0.0, None)
    )
    axis.tick_params(labelsize=8)
    axis.yaxis.label.set_fontsize(8)
    axis.xaxis.label.set_fontsize(8)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DPI)

    def place(time: float) -> tuple[float, float, float]:
        box = axis.get_window_extent()
        x = box.x0 + box.width * time / frames["time_s"][-1]
        return x, PLOT_HEIGHT - box.y1, PLOT_HEIGHT - box.y0

    return Image.open(buffer).convert("RGB"), place


def main() -> None:
    """Draw and write the GIF."""
    scan_dir, target = Path(sys.argv[1]), Path(sys.argv[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    first, *rest = movie(scan_dir)
    first.save(target, save_all=True, append_images=rest, duration=MILLISECONDS, loop=0, optimize=True)


if __name__ == "__main__":
    main()
