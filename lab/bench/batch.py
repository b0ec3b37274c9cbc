"""Cuts one by one and in one batch: python -m lab.bench.batch [CUTS] [DEVICE]

Slicing motions that differ in speed, on a block of a fruit's size, forward, with the solver that stays on the device;
seconds on the wall and of the CPU, the best of two rounds in turn, and how far the forces differ.
"""

import os
import sys
import time

import numpy as np

from disect_sim import Cut, Model, SlicingMotion, simulate_many
from disect_sim.many import force_of
from disect_sim.simulation import choose_device
from lab.bench.processes import CELLS, body
from lab.bench.simulator_scene import simulate_tiny

CUTS, ROUNDS = 8, 2
DURATION_S = 0.3
SOLVER = "conjugate_gradients"


def cuts_of(model: Model, count: int, device: str) -> list[Cut]:
    """Slicing motions that differ in speed."""
    options = {"duration": DURATION_S, "dt": 3e-3, "device": device, "solver": SOLVER}
    return [
        Cut(
            model,
            SlicingMotion(duration=DURATION_S, initial_y=0.041, amplitude=0.01 * i, velocity_y=-0.06),
            {"cut_spring_softness": 0.1},
            options,
        )
        for i in range(count)
    ]


def measured(cuts: list[Cut], *, batch: bool) -> tuple[float, float, np.ndarray]:
    """Wall and CPU seconds, and the forces [N], shape [cuts, samples, 3]."""
    wall, cpu = time.monotonic(), time.process_time()
    answers = simulate_many(cuts, of=force_of, processes=1, batch=batch)
    forces = np.stack([answer.value for answer in answers if answer.value is not None])
    return time.monotonic() - wall, time.process_time() - cpu, forces


def main() -> None:
    """Measure and print."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else CUTS
    device = choose_device(sys.argv[2] if len(sys.argv) > 2 else None)
    simulate_tiny(SOLVER)
    cuts = cuts_of(body(CELLS), count, device)
    rounds = [[measured(cuts, batch=batch) for batch in (False, True)] for _ in range(ROUNDS)]
    apart, together = (min(each[side][:2] for each in rounds) for side in (0, 1))
    forces = [rounds[0][side][2] for side in (0, 1)]
    off = np.abs(forces[0] - forces[1]).max() / np.abs(forces[0]).max()
    print(f"{count} cuts of {cuts[0].model.tet_count} tets on {device}; load {os.getloadavg()[0]:.1f}")
    for name, (wall, cpu) in (("one by one", apart), ("one batch", together)):
        print(f"{name:>10}: {wall:6.2f} s, {cpu:6.2f} CPU-s")
    print(
        f"ratio {apart[0] / together[0]:.2f} of wall, {apart[1] / together[1]:.2f} of CPU; forces differ by {off:.1e}"
    )


if __name__ == "__main__":
    main()
