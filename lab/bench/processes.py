"""Speed-up of many cuts by processes: python -m lab.bench.processes [PROCESSES ...]

The same gradients with 1 and with 2 processes (or those given), in turn, on a mesh of a fruit's size; wall seconds,
workers warm, the best of some rounds, and the ratio to the first.
Before it, the CPU seconds of one inner problem of optimize (300 steps of MDMM).
"""

import os
import sys
import time
from pathlib import Path

import numpy as np

from disect_sim import MATERIALS, Cut, Model, Result, SlicingMotion, build_model, cut_by_plane, simulate_many
from disect_sim.cut_mesh import box_mesh
from disect_sim.processes import Workers, cores_given
from stages.optimize.constraints import passage_of
from stages.optimize.search import drawn_motions
from stages.optimize.slicing_cut import SlicingCut
from stages.runtime.params import load_params

ROOT = Path(__file__).parents[2]
CUTS, ROUNDS = 4, 2
CELLS = (8, 6, 6)
"""Of the block: about 1.8 thousand tets with the cut."""
LOW_M, HIGH_M = (-0.03, 0.0, -0.03), (0.03, 0.04, 0.03)
DURATION_S = 0.3
OPTIONS = {"duration": DURATION_S, "dt": 3e-3, "differentiable": True, "device": "cpu"}


def body(cells: tuple[int, int, int]) -> Model:
    """A block of apple."""
    nodes, tets = box_mesh(LOW_M, HIGH_M, cells)
    return build_model(cut_by_plane(nodes, tets), MATERIALS["apple"])


def mean_and_slope(result: Result) -> tuple[float, np.ndarray]:
    """Mean square force, and its derivatives in the sawing speeds."""
    count = len(result.force)
    slope = result.gradient(2.0 * result.force / count).motion["amplitude"]
    return float((result.force**2).sum() / count), slope


def cuts_of(model: Model) -> list[Cut]:
    """Slicing motions that differ in speed."""
    return [
        Cut(
            model,
            SlicingMotion(duration=DURATION_S, initial_y=0.041, amplitude=0.02 + 0.01 * i, velocity_y=-0.06),
            {"cut_spring_softness": 0.1},
            OPTIONS,
        )
        for i in range(CUTS)
    ]


def wall_s(workers: Workers, cuts: list[Cut]) -> tuple[float, list[tuple[float, list[float]]]]:
    """Seconds for all, and what came out."""
    begun = time.monotonic()
    answers = simulate_many(cuts, of=mean_and_slope, workers=workers)
    seconds = time.monotonic() - begun
    return seconds, [(a.value[0], a.value[1].tolist()) for a in answers if a.value is not None]


def measure(counts: list[int]) -> None:
    """Print a row per number of processes."""
    pools = {count: Workers(count) for count in counts}
    try:
        cuts = cuts_of(body(CELLS))
        best, found = dict.fromkeys(counts, float("inf")), {}
        for pool in pools.values():
            simulate_many(cuts[: pool.processes], of=mean_and_slope, workers=pool)
        for _ in range(ROUNDS):
            for count, pool in pools.items():
                seconds, found[count] = wall_s(pool, cuts)
                best[count] = min(best[count], seconds)
        same = "same" if all(answer == found[counts[0]] for answer in found.values()) else "DIFFERENT"
        tets = cuts[0].model.tet_count
        for count in counts:
            ratio = best[counts[0]] / best[count]
            print(f"{tets:6}  {count:9}  {best[count]:8.2f}  {ratio:8.2f}  {same}")
    finally:
        for pool in pools.values():
            pool.__exit__(None, None, None)


def inner_problem_s() -> float:
    """CPU seconds of one inner problem with the shipped parameters, the mean of twelve."""
    params = load_params(ROOT / "params.yaml").optimize
    model = body(CELLS)
    cut = SlicingCut(model, ({},), passage_of(model.mesh, model.knife, params), params)
    begun = time.process_time()
    motions = drawn_motions(cut, params, params.candidates)
    return (time.process_time() - begun) / len(motions)


def main() -> None:
    """Measure and print."""
    counts = [int(word) for word in sys.argv[1:]] or [1, 2]
    print(f"one inner problem: {inner_problem_s():.3f} CPU-s", flush=True)
    print(f"{CUTS} cuts with gradient; {cores_given()} cores; load average {os.getloadavg()[0]:.1f}")
    print("  tets  processes  wall [s]  speed-up  numbers")
    measure(counts)


if __name__ == "__main__":
    main()
