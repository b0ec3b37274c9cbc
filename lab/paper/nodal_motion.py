"""Is the force known from how the body moves? Fit to positions of nodes at 18 times, no force is shown.

    python -m lab.paper.nodal_motion

Synthetic truth: four parameters of the paper's law on the same mesh (nodes must correspond), noise of 0.02 mm on every
coordinate.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from disect_sim import ConstantVelocity, CuttingMotion
from disect_sim.model import Model
from lab.paper.kept import Kept
from lab.paper.page import command, table, write_figure
from lab.paper.scene import ABOVE_M, END_M, HIGH, PAPER, Scene
from lab.paper.springs import SOUGHT, START
from stages.calibrate.phase import parameter_bounds
from stages.shared.pictures import CUT, FRUIT, TEXT, new_figure

NAME = "nodal_motion"
TIMES = 18
NOISE_M = 2.0e-5
SPEED_M_S = 0.05
TRUTH = PAPER | {"sdf_ke": 4000.0, "cut_spring_ke": 800.0, "sdf_mu": 0.6, "cut_spring_softness": 0.3}
RATE = 0.3
"""Of Adam, in free (sigmoid) numbers."""


@dataclass(frozen=True)
class Size:
    """How fine and how long."""

    scene: Scene = field(default_factory=Scene)
    iterations: int = 40


COARSE = Size(Scene((3, 2, 2), 0.01, 100.0), 6)
"""For a test."""


def _cutting(size: Size, model: Model) -> tuple[CuttingMotion, float]:
    top = HIGH[1] + ABOVE_M
    steps = int((top - END_M) / SPEED_M_S / size.scene.dt_s)
    duration = steps * size.scene.dt_s
    motion = ConstantVelocity(initial_y=top, velocity_y=-SPEED_M_S)
    times = tuple(np.linspace(duration / TIMES, duration, TIMES))
    cutting = CuttingMotion(
        model,
        motion,
        duration=duration,
        dt=size.scene.dt_s,
        sample_rate_hz=size.scene.rate_hz,
        keep_times=times,
    )
    return cutting, duration


def run(size: Size, kept: Kept) -> dict[str, dict[str, Any]]:
    """Adam on the mean squared distance of the nodes."""

    def work() -> dict[str, Any]:
        model = size.scene.model()
        cutting, _ = _cutting(size, model)
        shown = {name: torch.tensor(value, dtype=torch.float64) for name, value in TRUTH.items()}
        with torch.no_grad():
            true_force, true_nodes = cutting(shown)
        noise = np.random.default_rng(0).normal(0.0, NOISE_M, true_nodes.shape)
        measured = true_nodes + torch.as_tensor(noise)
        bounds = parameter_bounds(SOUGHT, damage_law="force", offset_range_m=0.0, given={})
        free = {name: bounds[name].free(START[name]).requires_grad_(True) for name in SOUGHT}
        adam = torch.optim.Adam(list(free.values()), lr=RATE)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, size.iterations)
        history = []
        for _ in range(size.iterations):
            adam.zero_grad()
            values = {name: bounds[name].value(part) for name, part in free.items()}
            force, nodes = cutting(shown | values)
            loss = ((nodes - measured) ** 2).sum(dim=2).mean()
            loss.backward()
            adam.step()
            schedule.step()
            far = (
                (nodes.detach() - true_nodes).norm(dim=2).mean(),
                (force.detach() - true_force).norm(dim=1).mean(),
            )
            history.append([float(loss.detach()), 1e3 * float(far[0]), float(far[1])])
        found = {name: float(bounds[name].value(part.detach())) for name, part in free.items()}
        return {"history": history, "values": found, "force_n": float(true_force.norm(dim=1).mean())}

    return {NAME: kept.once(NAME, size, work)}


def text_of(found: dict[str, Any]) -> str:
    """The part of the page."""
    result = found[NAME]
    first, last = result["history"][0], min(result["history"])
    rows = [
        [
            "mean distance of the nodes from the truth",
            f"{first[1]:.3f} mm",
            f"{last[1]:.3f} mm",
            "1.554 → 1.289 mm",
        ],
        [
            "mean error of the force, which was not shown",
            f"{first[2]:.2f} N",
            f"{last[2]:.2f} N",
            "28.4 → 0.55 N",
        ],
    ]
    values = ", ".join(f"{name} {result['values'][name]:.3g} ({TRUTH[name]:g})" for name in SOUGHT)
    return table(["", "start", "fitted", "the paper's"], rows) + (
        f"\n\nFound (truth): {values}. {len(result['history'])} gradients, {result['cpu_s']:.0f} CPU-seconds; the mean "
        f"force is {result['force_n']:.1f} N. The paper's reference is a simulation by another program, so its "
        "distance can't vanish; ours is our own simulator on the same mesh, so it can."
    )


def draw(found: dict[str, Any], folder: Path) -> None:
    """Both errors over iterations."""
    figure, canvas = new_figure((6.5, 3.4))
    left = figure.subplots()
    history = np.array(found[NAME]["history"])
    left.semilogy(history[:, 1], color=CUT)
    left.set(xlabel="iteration of Adam")
    left.set_ylabel("distance of the nodes [mm]", color=CUT)
    right = left.twinx()
    right.semilogy(history[:, 2], color=FRUIT)
    right.set_ylabel("error of the force [N]", color=FRUIT)
    left.set_title("only the nodes were shown", color=TEXT, fontsize=10)
    write_figure(NAME, canvas, folder)


main = command(NAME, run, text_of, draw, Size)


if __name__ == "__main__":
    main()
