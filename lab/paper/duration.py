"""How far does a fit to the beginning of a cut carry? Fit on 0.4 s, predict 0.9 s.

    python -m lab.paper.duration

Synthetic truth: the paper's law on a finer mesh, stiffer springs in the lower half, noise of 0.3 N.
"""

from pathlib import Path
from typing import Any

import numpy as np

from disect_sim.model import Model
from lab.paper.kept import Kept
from lab.paper.page import command, table, write_figure
from lab.paper.scene import HIGH, PAPER
from lab.paper.springs import SMALL, Size, curve, fitted, mean_error_n, settings
from stages.shared.pictures import CUT, FRUIT, TEXT, WARNING, new_figure

NAME = "duration"
SPEED_M_S = 0.03
"""So that the cut takes 0.93 s."""
SHOWN_S = 0.4
COARSE = SMALL


def truth_of(model: Model) -> dict[str, Any]:
    """Springs and contact of the lower half are twice as stiff."""
    low = model.mesh.virtual_positions()[model.mesh.spring_virtual[:, 0], 1] < 0.5 * HIGH[1]
    factor = np.where(low, 2.0, 1.0)
    return PAPER | {"cut_spring_ke": 500.0 * factor, "sdf_ke": 2000.0 * factor}


def run(size: Size, kept: Kept) -> dict[str, dict[str, Any]]:
    """Fit the beginning, predict the whole."""
    scene = size.scene

    def work() -> dict[str, Any]:
        finer = scene.model(cells=size.truth_cells)
        model, params = scene.model(), settings(scene, shared=size.shared, individual=size.individual)
        truth = truth_of(finer)
        whole = scene.record(finer, truth, speed=SPEED_M_S)
        begun = scene.record(finer, truth, speed=SPEED_M_S, seconds=SHOWN_S)
        out: dict[str, Any] = {"seconds": float(whole.time[-1])}
        for phase, values in fitted(model, begun, params).items():
            out[phase] = {
                "fit": mean_error_n(model, begun, params, values),
                "whole": mean_error_n(model, whole, params, values),
                "curve": curve(model, whole, params, values),
            }
        return out

    return {NAME: kept.once(NAME, size, work)}


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    theirs = {"shared": ("0.38 N", "4.8 N"), "individual": ("0.31 N", "5.9 N")}
    result = found[NAME]
    rows = [
        [phase, f"{result[phase]['fit']:.2f} N", f"{result[phase]['whole']:.2f} N", *theirs[phase]]
        for phase in theirs
    ]
    head = [
        "springs",
        "first 0.4 s, fitted",
        f"whole cut, {result['seconds']:.1f} s",
        "the paper's: fitted",
        "whole",
    ]
    return table(head, rows) + f"\n\n{result['cpu_s']:.0f} CPU-seconds. Mean absolute errors."


def draw(found: dict[str, Any], folder: Path) -> None:
    """Measured and simulated force."""
    figure, canvas = new_figure((7.0, 3.6))
    axis = figure.subplots()
    result = found[NAME]
    first = result["shared"]["curve"]
    axis.plot(first["time"], first["measured"], color=TEXT, lw=2.0, label="synthetic truth")
    for phase, colour in (("shared", CUT), ("individual", FRUIT)):
        axis.plot(
            result[phase]["curve"]["time"], result[phase]["curve"]["simulated"], color=colour, label=phase
        )
    axis.axvline(SHOWN_S, color=WARNING, ls=":", lw=1.0)
    axis.set(xlabel="time [s]", ylabel="force on the knife [N]")
    axis.set_title("fitted left of the dotted line, predicted right of it", color=TEXT, fontsize=10)
    axis.legend(frameon=False, fontsize=8)
    write_figure(NAME, canvas, folder)


main = command(NAME, run, text_of, draw, Size)


if __name__ == "__main__":
    main()
