"""Does a fit at 50 mm/s predict other speeds? 35 to 65 mm/s, against a truth with another mesh and another law.

    python -m lab.paper.velocity

Synthetic truth: the stretch law on a finer mesh, noise of 0.3 N; the model that is fitted has the paper's force law.
"""

from pathlib import Path
from typing import Any

from disect_sim.laws import damage_law
from lab.paper.kept import Kept
from lab.paper.page import command, table, write_figure
from lab.paper.scene import PAPER
from lab.paper.springs import SMALL, Size, fitted, mean_error_n, settings
from stages.shared.pictures import CUT, FRUIT, TEXT, WARNING, new_figure

NAME = "velocity"
FITTED_M_S = 0.05
SPEEDS_M_S = (0.035, 0.0425, 0.05, 0.0575, 0.065)
LAW = "stretch"
COARSE = SMALL


def run(size: Size, kept: Kept) -> dict[str, dict[str, Any]]:
    """Fit one speed, predict the others."""
    scene = size.scene

    def work() -> dict[str, Any]:
        finer = scene.model(law=LAW, cells=size.truth_cells)
        softness = damage_law(LAW).parameters["cut_spring_softness"].default
        truth = PAPER | {"cut_spring_ke": 500.0, "sdf_ke": 2000.0, "cut_spring_softness": softness}
        model, params = scene.model(), settings(scene, shared=size.shared, individual=size.individual)
        logs = {speed: scene.record(finer, truth, speed=speed, seed=i) for i, speed in enumerate(SPEEDS_M_S)}
        return {
            phase: [mean_error_n(model, logs[speed], params, values) for speed in SPEEDS_M_S]
            for phase, values in fitted(model, logs[FITTED_M_S], params).items()
        }

    return {NAME: kept.once(NAME, size, work)}


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    result = found[NAME]
    rows = [[phase, *(f"{error:.2f} N" for error in result[phase])] for phase in ("shared", "individual")]
    ratio = [a / b for a, b in zip(result["shared"], result["individual"], strict=True)]
    rows.append(["shared / individual", *(f"{value:.2f}" for value in ratio)])
    head = ["springs", *(f"{1e3 * speed:g} mm/s" for speed in SPEEDS_M_S)]
    return table(head, rows) + (
        f"\n\nFitted at {1e3 * FITTED_M_S:g} mm/s; {result['cpu_s']:.0f} CPU-seconds. Mean absolute errors. The "
        "paper's: individual values up to 4 times better than shared ones."
    )


def draw(found: dict[str, Any], folder: Path) -> None:
    """Error over speed."""
    figure, canvas = new_figure((6.0, 3.4))
    axis = figure.subplots()
    for phase, colour in (("shared", CUT), ("individual", FRUIT)):
        axis.plot([1e3 * speed for speed in SPEEDS_M_S], found[NAME][phase], "o-", color=colour, label=phase)
    axis.axvline(1e3 * FITTED_M_S, color=WARNING, ls=":", lw=1.0)
    axis.set(xlabel="speed [mm/s]", ylabel="mean absolute error [N]", ylim=(0.0, None))
    axis.set_title("dotted: the speed that was fitted", color=TEXT, fontsize=10)
    axis.legend(frameon=False)
    write_figure(NAME, canvas, folder)


main = command(NAME, run, text_of, draw, Size)


if __name__ == "__main__":
    main()
