"""Error of the force over the time step: `python -m lab.bench.simulator_steps`.

NMAE of |F| at 1 kHz against a step of 0.25 ms, over the mean force, for cuts of an irregular box at 50 mm/s.
"""

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from disect_sim import MATERIALS, ConstantVelocity, SlicingMotion, build_model, simulate
from disect_sim.model import Model
from disect_sim.motions import Motion
from lab.bench.simulator_meshes import jittered_box

CELLS, EDGE_M = (8, 5, 5), 0.007
"""A box of 56 × 35 × 35 mm."""
DURATION_S = 0.6
FINE_S = 2.5e-4
STEPS_S = (1.0e-3, 2.0e-3, 3.0e-3, 4.0e-3, 6.0e-3)
"""All divide the duration."""
HEIGHT_M = CELLS[1] * EDGE_M + 1.0e-3


def straight() -> Motion:
    """Down at 50 mm/s."""
    return ConstantVelocity(initial_y=HEIGHT_M, velocity_y=-0.05)


def sawing() -> Motion:
    """The default slicing motion: some millimetres along the blade at 5 Hz, on the way down."""
    return SlicingMotion(duration=DURATION_S, initial_y=HEIGHT_M)


CASES: dict[str, tuple[Callable[[], Motion], dict[str, float], dict[str, Any]]] = {
    "straight": (straight, {}, {}),
    "sawing": (sawing, {}, {}),
    "sharp tip (0.2 mm)": (straight, {"sdf_tip": 2.0e-4}, {}),
    "soft (30 kPa)": (straight, {"young_pa": 3.0e4}, {}),
    "stretch law": (straight, {"cut_spring_softness": 1000.0}, {"damage_law": "stretch"}),
    "free on the board": (straight, {}, {"boundary": "free"}),
}
"""Motion, parameters, options of the model."""


def main() -> None:
    """Print the table."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("cut", *(f"{1e3 * dt:g} ms" for dt in STEPS_S), "rate", "mean force (N)", title=__doc__)
    mesh = jittered_box(CELLS, EDGE_M)
    started = time.process_time()
    for name, (motion, parameters, options) in CASES.items():
        model = build_model(mesh, MATERIALS["apple"], **options)
        values = {"cut_spring_softness": 0.1} | parameters
        fine, *coarser = (_force(model, motion(), values, dt) for dt in (FINE_S, *STEPS_S))
        errors = [float(np.abs(force - fine).mean() / fine.mean()) for force in coarser]
        rate = np.log(errors[3] / errors[1]) / np.log(STEPS_S[3] / STEPS_S[1])
        table.add_row(name, *(f"{100 * e:.3f} %" for e in errors), f"{rate:.1f}", f"{fine.mean():.2f}")
    console.print(table)
    console.print(f"rate: from 2 to 4 ms; {time.process_time() - started:.0f} CPU s")


def _force(model: Model, motion: Motion, values: dict[str, float], dt: float) -> np.ndarray:
    """|F| [N] of the cut with this time step [s]."""
    result = simulate(model, motion, values, duration=DURATION_S, dt=dt, device="cpu")
    assert result.outcome.ok, result.outcome
    return result.force_norm


if __name__ == "__main__":
    main()
