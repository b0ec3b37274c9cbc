"""Draws the pictures of docs/simulator.md and prints how the force converges with the time step.

    python -m lab.docs.draw_simulator                about two minutes

Writes docs/pictures/simulator_cut.png (the sample's halves at four times), simulator_force.png (force, contact area and
damage of that cut) and simulator_convergence.png (a box at four time steps).
"""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from disect_sim import MATERIALS, ConstantVelocity, build_model, simulate
from lab.bench.simulator_meshes import jittered_box
from stages.clean.clean import clean
from stages.clean.scan_file import read_scan
from stages.precut.precut import precut
from stages.runtime.params import load_params
from stages.shared.pictures import cut_views
from stages.simulate.simulate import NominalCut
from stages.simulate.simulate import simulate as nominal_cut
from stages.tetrahedralize.tetrahedralize import tetrahedralize

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "pictures"
SAMPLE = ROOT / "data" / "sample" / "synthetic_apple.ply"
INK, FRUIT, GREY, RED, BLUE = "#30343b", "#e3a857", "#b9bec6", "#d1383d", "#5b8db8"
STEPS_S = (2.0e-3, 1.0e-3, 0.5e-3, 0.25e-3)
"""Time steps of the convergence plot; the last is the reference."""
BOX_CELLS, BOX_EDGE_M = (8, 7, 6), 0.006
"""A box of 48 x 42 x 36 mm with 2,500 tets, made irregular."""
SAMPLE_RATE_HZ = 500.0
"""Of the forces that are compared: once per longest step."""


def sample_cut() -> NominalCut:
    """The nominal cut of params.yaml through the bundled synthetic apple."""
    params = load_params(ROOT / "params.yaml")
    fruit = clean(read_scan(SAMPLE, max_faces=params.clean.max_faces), params.clean).surface
    mesh = tetrahedralize(fruit, params.tetrahedralize).mesh
    cut = precut(mesh.nodes, mesh.tets, params.precut).cut
    return nominal_cut(cut, MATERIALS["apple"], params.simulate)


def draw_cut(cut: NominalCut) -> None:
    """The halves opening at four times."""
    picture = Image.fromarray(cut_views(cut.model.mesh, cut.model.knife, cut.moments))
    picture = picture.resize((1380, 322), Image.Resampling.LANCZOS)
    picture.quantize(256).save(PICTURES / "simulator_cut.png", optimize=True)


def draw_force(cut: NominalCut) -> None:
    """Force, contact area and share of cut springs over the height of the knife's edge."""
    result = cut.result
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.0), layout="constrained")
    axes[0].plot(result.time, result.force_norm, color=INK, lw=1.6)
    axes[0].set(xlabel="time [s]", ylabel="norm of the force on the knife [N]", ylim=(0.0, None))
    axes[1].plot(
        result.time, 1e4 * result.contact_area, color=BLUE, lw=1.6, label="touching area, both halves"
    )
    axes[1].set(xlabel="time [s]", ylabel="area [cm²]", ylim=(0.0, None))
    right = axes[1].twinx()
    right.plot(
        result.step_time, 100.0 * result.cut_fraction, color=RED, lw=1.4, ls="--", label="stiffness lost"
    )
    right.set(ylabel="stiffness lost [%]", ylim=(0.0, 105.0))
    handles = [line for axis in (axes[1], right) for line in axis.get_lines()]
    axes[1].legend(handles=handles, loc="upper left", frameon=False, fontsize=8)
    _save(figure, "simulator_force.png")


def draw_convergence() -> list[float]:
    """Force profiles with ever shorter steps, and their distance from the shortest; returns the distances."""
    model = build_model(jittered_box(BOX_CELLS, BOX_EDGE_M), MATERIALS["apple"])
    motion = ConstantVelocity(initial_y=0.046, velocity_y=-0.05)
    runs = [
        simulate(
            model, motion, {"cut_spring_softness": 0.1}, duration=0.9, dt=dt, sample_rate_hz=SAMPLE_RATE_HZ
        )
        for dt in STEPS_S
    ]
    reference = runs[-1].force_norm
    errors = [float(np.abs(run.force_norm - reference).mean() / reference.mean()) for run in runs[:-1]]
    figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.2), layout="constrained", width_ratios=(1.6, 1.0))
    for run, dt, colour in zip(runs, STEPS_S, (RED, FRUIT, BLUE, INK), strict=True):
        axes[0].plot(run.time, run.force_norm, color=colour, lw=1.2, label=f"{1e3 * dt:g} ms")
    axes[0].set(xlabel="time [s]", ylabel="norm of the force on the knife [N]", ylim=(0.0, None))
    axes[0].legend(title="time step", frameon=False, fontsize=8)
    _draw_errors(axes[1], errors)
    _save(figure, "simulator_convergence.png")
    return errors


def _draw_errors(axis: Axes, errors: list[float]) -> None:
    steps = 1e3 * np.array(STEPS_S[:-1])
    reference = 1e3 * STEPS_S[-1]
    first_order = (steps - reference) / (steps[0] - reference)
    axis.loglog(
        steps, 100.0 * errors[0] * first_order, color=GREY, lw=2.5, ls="--", label="of a first-order method"
    )
    axis.loglog(steps, 100.0 * np.array(errors), "o", color=INK, ms=6)
    axis.set(xlabel="time step [ms]", ylabel=f"mean difference from {reference:g} ms [%]")
    axis.set_xticks(steps, [f"{step:g}" for step in steps])
    axis.set_yticks([100.0 * error for error in errors], [f"{100.0 * error:.2f}" for error in errors])
    axis.minorticks_off()
    axis.legend(frameon=False, fontsize=8)


def _save(figure: plt.Figure, name: str) -> None:
    figure.savefig(PICTURES / name, dpi=110, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    cut = sample_cut()
    draw_cut(cut)
    draw_force(cut)
    for dt, error in zip(STEPS_S, draw_convergence(), strict=False):
        print(f"{1e3 * dt:g} ms: {error:.2%} from {1e3 * STEPS_S[-1]:g} ms")
