"""Losses compared: what their landscape looks like along each parameter, and where Adam gets with them.

    python -m lab.paper.losses

Synthetic truth: two parameters of the paper's law, as in two_parameters, noise of 0.3 N, same mesh.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lab.paper.kept import Kept
from lab.paper.page import command, table, write_figure
from lab.paper.scene import PAPER, Scene
from lab.paper.two_parameters import BOUNDS, NAMES
from stages.calibrate.methods import LOSSES
from stages.calibrate.phase import parameter_bounds, shared_unknowns
from stages.calibrate.problem import Problem, pose_problem
from stages.calibrate.springs.fit import SharedFit, fit_from_starts
from stages.shared.pictures import CUT, FRUIT, STRAY, TEXT, WARNING, new_figure

NAME = "losses"
COMPARED = ("l1", "l2", "inverse_cosine", "log_sum_exp")
START = {"sdf_ke": 1500.0, "cut_spring_ke": 900.0}
COLOURS = (FRUIT, CUT, STRAY, WARNING)


@dataclass(frozen=True)
class Size:
    """How fine and how long."""

    scene: Scene = field(default_factory=Scene)
    points: int = 13
    iterations: int = 20


COARSE = Size(Scene((3, 2, 2), 0.01, 100.0), 3, 3)
"""For a test."""


def _problem(size: Size) -> tuple[Problem, Any]:
    scene = size.scene
    params = scene.params(
        fit="springs",
        shared=list(NAMES),
        individual_iterations=0,
        shared_optimiser="adam",
        shared_iterations=size.iterations,
        learning_rate=0.3,
        patience=size.iterations,
        bounds=BOUNDS,
        start=PAPER | START,
        hold_out_fraction=0.0,
        puncture_weight=1,
    )
    model = scene.model()
    return pose_problem(model, scene.record(model, PAPER), params), params


def run(size: Size, kept: Kept) -> dict[str, dict[str, Any]]:
    """The landscape once, and a fit with every loss."""
    problem, params = _problem(size)
    measured, use = torch.as_tensor(problem.measured), torch.as_tensor(problem.contact & problem.valid)

    def landscape() -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name in NAMES:
            values = np.linspace(*BOUNDS[name], size.points)
            rows = []
            for value in values:
                profile, _ = problem.run(
                    {key: np.asarray(v) for key, v in (PAPER | {name: value}).items()}, differentiable=False
                )
                shown = torch.as_tensor(profile)
                rows.append(
                    [float(LOSSES[loss](shown[use], measured[use], problem.mean_force)) for loss in COMPARED]
                )
            out[name] = {"values": values, "losses": rows}
        return out

    found = {"landscape": kept.once("landscape", size, landscape)}
    for loss in COMPARED:

        def work(loss: str = loss) -> dict[str, Any]:
            bounds = parameter_bounds(
                params.shared, damage_law="force", offset_range_m=params.offset_range_m, given=params.bounds
            )
            unknowns, start = shared_unknowns(params.start, bounds)
            fit = SharedFit(
                problem, unknowns, params.changed(shared_loss=loss), kept.folder, f"{loss} {size}"
            )
            best, history = fit_from_starts(fit, [unknowns.free(start)])
            values = unknowns.values(best.best.free)
            return {"nmae": [row.nmae for row in history]} | {name: float(values[name]) for name in NAMES}

        found[loss] = kept.once(loss, size, work)
    return found


def text_of(found: dict[str, dict[str, Any]]) -> str:
    """The part of the page."""
    rows = []
    for loss in COMPARED:
        result = found[loss]
        reached = next((i + 1 for i, n in enumerate(result["nmae"]) if n < 1.1 * result["nmae"][-1]), None)
        off = [f"{100 * (result[name] / PAPER[name] - 1):+.0f} %" for name in NAMES]
        rows.append([loss, f"{100 * result['nmae'][-1]:.2f} %", reached, *off])
    head = [
        "loss",
        "NMAE at the end",
        "iterations to within a tenth of it",
        "sdf_ke off",
        "cut_spring_ke off",
    ]
    cost = sum(result["cpu_s"] for result in found.values())
    return (
        table(head, rows)
        + f"\n\nAdam from sdf_ke 1500, cut_spring_ke 900; {cost:.0f} CPU-seconds. The paper prefers L1."
    )


def draw(found: dict[str, dict[str, Any]], folder: Path) -> None:
    """Landscapes, each over its own largest value, and the errors over iterations."""
    figure, canvas = new_figure((12.0, 3.6))
    axes = figure.subplots(1, 3)
    for axis, name in zip(axes, NAMES, strict=False):
        part = found["landscape"][name]
        for column, loss, colour in zip(np.array(part["losses"]).T, COMPARED, COLOURS, strict=True):
            low, high = column.min(), column.max()
            axis.plot(part["values"], (column - low) / (high - low), color=colour, label=loss)
        axis.axvline(PAPER[name], color=TEXT, ls=":", lw=1.0)
        axis.set(xlabel=f"{name} [N/m]", ylabel="loss over its range")
    for loss, colour in zip(COMPARED, COLOURS, strict=True):
        axes[2].semilogy(
            range(1, len(found[loss]["nmae"]) + 1), found[loss]["nmae"], color=colour, label=loss
        )
    axes[2].set(xlabel="iteration of Adam", ylabel="NMAE")
    axes[2].legend(frameon=False, fontsize=8)
    write_figure(NAME, canvas, folder)


main = command(NAME, run, text_of, draw, Size)


if __name__ == "__main__":
    main()
