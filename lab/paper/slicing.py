"""The slicing motion with the least mean force over time, with and without constraints, 5 keyframes in 0.9 s.

    python -m lab.paper.slicing

Synthetic body: the block under the paper's law, cut from 6 mm above it to 1 mm above the board.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from disect_sim import simulate
from disect_sim.cut_mesh import box_mesh
from lab.paper.kept import ROOT, Kept
from lab.paper.page import command, table, write_figure
from lab.paper.scene import HIGH, LOW, PAPER, Scene
from stages.optimize.confirmation import finer_cut
from stages.optimize.search import UNCONSTRAINED, optimize
from stages.runtime.params import load_params
from stages.shared.pictures import CUT, FRUIT, SCAN, TEXT, new_figure

NAME = "slicing"
SECONDS = 0.9


@dataclass(frozen=True)
class Size:
    """How fine and how long."""

    scene: Scene = field(default_factory=lambda: Scene(dt_s=0.005))
    iterations: int = 16


COARSE = Size(Scene((3, 2, 2), 0.01, 100.0), 3)
"""For a test."""


def run(size: Size, kept: Kept) -> dict[str, dict[str, Any]]:
    """One search."""
    shipped = load_params(ROOT / "params.yaml").optimize
    travel = HIGH[1] + shipped.cut.start_clearance_m - shipped.cut.board_clearance_m
    params = shipped.changed(
        damage_law="force",
        boundary="glued",
        dt_s=size.scene.dt_s,
        speed_m_s=travel / SECONDS,
        mean_over="time",
        iterations=size.iterations,
        ablation_iterations=size.iterations,
        starts=1,
        final_strokes=0,
        processes=1,
    )
    values = {name: np.asarray(value) for name, value in PAPER.items()}

    def work() -> dict[str, Any]:
        found = optimize(
            size.scene.model(),
            values,
            params,
            finer=finer_cut(*box_mesh(LOW, HIGH, size.scene.cells)),
        )
        free = found.runs[UNCONSTRAINED].best
        assert free is not None
        rates = np.arange(len(found.vertical.norm)) / found.cut.sample_rate_hz
        unbound = found.cut.cuts(free.variables)[0]
        force = simulate(unbound.model, unbound.motion, unbound.parameters, **unbound.options).force
        return {
            "mean_n": {
                "vertical": found.vertical.mean_n(),
                "constrained": found.slicing.mean_n(),
                "unconstrained": free.mean_force_n,
            },
            "residuals": {"constrained": found.residuals, "unconstrained": free.residuals},
            "time_s": rates,
            "force_n": {
                "vertical": found.vertical.norm,
                "constrained": found.slicing.norm,
                "unconstrained": np.linalg.norm(force, axis=1),
            },
            "keyframes": found.cut.keyframes,
        }

    return {NAME: kept.once(NAME, size, work)}


PAPERS = {"vertical": "89.7 N", "unconstrained": "76.5 N", "constrained": "76.7 N"}


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    result = found[NAME]
    means = result["mean_n"]
    rows = []
    for name, paper in PAPERS.items():
        off = result["residuals"].get(name)
        broken = [
            "–" if off is None else f"{1e3 * off['end_height_m']:.1f} mm",
            "–" if off is None else f"{1e3 * off['lateral_m']:.1f} mm",
            "–" if off is None else f"{off['speed_m_s']:.2f} m/s",
        ]
        less = 100.0 * (1.0 - means[name] / means["vertical"])
        rows.append([name, f"{means[name]:.1f} N", f"{less:.1f} %", *broken, paper])
    head = ["motion", "mean force", "less", "end height off", "fruit uncovered", "too fast by", "the paper's"]
    return table(head, rows) + (
        f"\n\n{result['keyframes']} keyframes, {SECONDS:g} s; {result['cpu_s']:.0f} CPU-seconds. Means over time, "
        "as the paper's."
    )


def draw(found: dict[str, Any], folder: Path) -> None:
    """Force over time."""
    result = found[NAME]
    figure, canvas = new_figure((6.4, 3.4))
    axis = figure.subplots()
    for name, colour in zip(PAPERS, (SCAN, CUT, FRUIT), strict=True):
        force = result["force_n"][name]
        axis.plot(result["time_s"][: len(force)], force, color=colour, label=name)
    axis.set(xlabel="time [s]", ylabel="force on the knife [N]", ylim=(0.0, None))
    axis.set_title("block under the paper's law", color=TEXT, fontsize=10)
    axis.legend(frameon=False)
    write_figure(NAME, canvas, folder)


main = command(NAME, run, text_of, draw, Size)


if __name__ == "__main__":
    main()
