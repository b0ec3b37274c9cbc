"""Cuts of soft and firm bodies: python -m lab.bench.soft_bodies [MATERIAL ...]

A block of 40 x 40 x 30 mm, 30 mm along the blade, under every boundary that makes sense, cut vertically and sawing (100
mm/s at 12 rad/s) at 50 mm/s with the shipped step of 3 ms. Columns: parted fraction of what the edge passed, inverted
tets, mean vertical force beside toughness x width, energy that is dissipated as a share of the knife's work (negative
would be energy from nowhere), change of the mean force with half the step and with a finer mesh, and the error of the
gradient in seven parameters against central differences on a coarse mesh. About 15 CPU minutes.
"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from disect_sim import ConstantVelocity, Result, build_model, cut_by_plane, simulate
from disect_sim.cut_mesh import box_mesh
from disect_sim.motions import Motion, RecordedMotion
from disect_sim.newton import NewtonOptions
from disect_sim.parameters import MATERIALS, Material
from stages.shared.cut import outcome_of
from stages.shared.library.library import prior_of

WIDTH_M, HEIGHT_M, SPEED_M_S, DT_S = 0.03, 0.04, 0.05, 3.0e-3
START_M, END_M = HEIGHT_M + 0.006, 0.001
DURATION_S = (START_M - END_M) / SPEED_M_S
STROKE_M_S, STROKE_RAD_S = 0.1, 12.0
NORMAL, FINE, COARSE = (7, 6, 6), (9, 9, 9), (3, 3, 3)
"""Cells of the block's mesh."""
BOUNDARIES = ("guided", "held", "glued")
BODIES: dict[str, tuple[Material, float]] = {
    "1 kPa": (Material(1.0e3, 0.45, 1000.0), 3.0),
    "banana": (MATERIALS["banana"], prior_of("banana")["edge_toughness"][0]),
    "jelly": (MATERIALS["jelly"], prior_of("jelly")["edge_toughness"][0]),
    "10 kPa": (Material(1.0e4, 0.49, 1000.0), 20.0),
    "tomato": (MATERIALS["tomato"], prior_of("tomato")["edge_toughness"][0]),
    "avocado": (MATERIALS["avocado"], prior_of("avocado")["edge_toughness"][0]),
    "apple": (MATERIALS["apple"], 400.0),
    "10 MPa": (Material(1.0e7, 0.3, 1000.0), 1000.0),
}
"""Material and toughness [J/m²]."""
STORED = ("kinetic", "gravity", "elastic", "springs", "contact", "board", "hold", "fracture", "drag")
ROW = "{:>8}  {:>8}  {:>8}  {:>6}  {:>8}  {:>7}  {:>5}  {:>10}  {:>9}  {:>9}  {:>8}"


def main() -> None:
    """Print the table, a row as soon as it is there."""
    header = ("body", "boundary", "motion", "parted", "inverted", "force N", "G w N", "dissipated")
    print(ROW.format(*header, "step", "mesh", "gradient"), flush=True)
    for name in sys.argv[1:] or BODIES:
        for boundary in BOUNDARIES:
            for sawing in (False, True):
                print(ROW.format(*_row(name, boundary, sawing)), flush=True)


def _row(name: str, boundary: str, sawing: bool) -> list[str]:
    _, toughness = BODIES[name]
    result, model = _cut(name, boundary, sawing)
    outcome = outcome_of("cut", result, model.mesh)
    force = _mean_force(result)
    shorter = _mean_force(_cut(name, boundary, sawing, dt=DT_S / 2.0)[0])
    finer = _mean_force(_cut(name, boundary, sawing, cells=FINE)[0])
    total = sum(result.energy[part] for part in STORED)
    work = result.energy["knife_work"][-1]
    return [
        name,
        boundary,
        "sawing" if sawing else "vertical",
        f"{outcome.reached_fraction:.3f}",
        str(outcome.inverted_tets),
        f"{force:.3g}",
        f"{toughness * WIDTH_M:.3g}",
        f"{(work - (total[-1] - total[0])) / work:.3f}",
        f"{100.0 * (force / shorter - 1.0):+.2f} %",
        f"{100.0 * (force / finer - 1.0):+.2f} %",
        f"{_gradient_error(name, boundary, sawing):.0e}",
    ]


def _cut(name, boundary, sawing, *, values=None, cells=NORMAL, dt=DT_S, **options):  # type: ignore[no-untyped-def]
    material, toughness = BODIES[name]
    mesh = cut_by_plane(*box_mesh((-0.02, 0.0, -WIDTH_M / 2.0), (0.02, HEIGHT_M, WIDTH_M / 2.0), cells))
    model = build_model(mesh, material, boundary=boundary, damage_law="edge")
    given = {"edge_toughness": toughness, "sdf_mu": 0.15} | (values or {})
    options = {"duration": DURATION_S, "dt": dt, "sample_rate_hz": 200.0} | options
    return simulate(model, _motion(sawing), given, **options), model


def _motion(sawing: bool) -> Motion:
    if not sawing:
        return ConstantVelocity(initial_y=START_M, velocity_y=-SPEED_M_S)
    time = np.linspace(0.0, DURATION_S, 400)
    stroke = STROKE_M_S / STROKE_RAD_S * np.sin(STROKE_RAD_S * time)
    return RecordedMotion(time, np.stack([START_M - SPEED_M_S * time, stroke], axis=1))


def _mean_force(result: Result) -> float:
    """Mean vertical force while the edge is well inside the block [N]."""
    inside = (result.time > 0.35 * DURATION_S) & (result.time < 0.75 * DURATION_S)
    return float(result.force[inside, 1].mean())


def _gradient_error(name: str, boundary: str, sawing: bool) -> float:
    """Relative error of the adjoint of sum |F|² against central differences along one direction in all parameters."""
    material, toughness = BODIES[name]
    values = {"edge_toughness": toughness, "sdf_mu": 0.15, "sdf_ke": 1000.0, "sdf_radius": 0.5e-3}
    values |= {"cut_spring_ke": 500.0, "young_pa": material.young_pa, "poisson": material.poisson}
    tight = {"cells": COARSE, "dt": 6.0e-3, "newton": NewtonOptions(tolerance_m=1e-11, cg_tolerance=1e-7)}
    direction = dict(zip(values, np.random.default_rng(0).uniform(0.5, 1.5, len(values)), strict=True))

    def loss(share: float) -> float:
        moved = {key: value * (1.0 + share * direction[key]) for key, value in values.items()}
        return float((_cut(name, boundary, sawing, values=moved, **tight)[0].force ** 2).sum())

    result, _ = _cut(name, boundary, sawing, values=values, differentiable=True, **tight)
    adjoint = result.gradient(2.0 * result.force).parameters
    slope = sum(float(adjoint[key]) * value * direction[key] for key, value in values.items())
    shares = (1e-5, 1e-6, 1e-7)
    return min(abs((loss(share) - loss(-share)) / (2.0 * share) / slope - 1.0) for share in shares)


if __name__ == "__main__":
    main()
