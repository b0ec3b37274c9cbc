"""Draws build/real_logs/fits.png and prints a table of the fitted real profiles.

    python -m lab.docs.draw_real_fits

Run it after `python -m lab.real_logs.fit_real_logs`, whose results in build/real_logs it reads.
"""

import json
import sys
from typing import Any

import polars as pl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from lab.real_logs.fit_real_logs import CASES, RESULTS

PICTURE = RESULTS / "fits.png"
MEASURED, SHARED, FITTED = "#222222", "#9aa5b1", "#c0392b"


def main() -> None:
    """Read, draw, print."""
    done = {name: RESULTS / name for name in CASES if (RESULTS / name / "metrics.json").exists()}
    figure = Figure(figsize=(15.0, 8.0), dpi=80, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(2, 3).ravel()
    for axis in axes[len(done) :]:
        axis.set_axis_off()
    sys.stdout.write(
        "| profile | tets, springs | shared | fitted | MAE | not shown | puncture, fitted | gradients | CPU s |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
    )
    for axis, (name, folder) in zip(axes, done.items(), strict=False):
        metrics = json.loads((folder / "metrics.json").read_text())
        _draw(axis, name, pl.read_parquet(folder / "profile.parquet"), metrics)
        sys.stdout.write(_row(name, metrics))
    canvas.print_png(str(PICTURE))


def _draw(axis: Any, name: str, table: pl.DataFrame, metrics: dict[str, Any]) -> None:
    moment = (table["time_s"] - metrics["onset_s"]).to_numpy()
    axis.plot(moment, table["measured_n"], color=MEASURED, lw=2.2, label="measured")
    axis.plot(moment, table["reference_n"], color=SHARED, lw=1.2, label="simulated, shared parameters")
    axis.plot(moment, table["simulated_n"], color=FITTED, lw=1.6, label="simulated, fitted")
    axis.set(xlabel="time after contact [s]", ylabel="force on the knife [N]")
    axis.set_title(f"{name}: NMAE {100 * metrics['nmae']:.1f} %, MAE {metrics['mae_n']:.2f} N")
    axis.legend(frameon=False, fontsize=8, loc="lower right")


def _row(name: str, metrics: dict[str, Any]) -> str:
    punctures = [metrics["puncture_measured_n"], metrics["puncture_simulated_n"]]
    cells = (
        name,
        f"{metrics['tets']:,}, {metrics['springs']}",
        f"{100 * metrics['nmae_shared']:.1f} %",
        f"{100 * metrics['nmae']:.1f} %",
        f"{metrics['mae_n']:.2f} N",
        f"{100 * metrics['nmae_held_out']:.1f} %",
        ", ".join("none" if force is None else f"{force:.1f} N" for force in punctures),
        str(metrics["gradients"]),
        f"{metrics['cpu_s']:.0f}",
    )
    return "| " + " | ".join(cells) + " |\n"


if __name__ == "__main__":
    main()
