"""Time of the virtual node algorithm against the number of tets."""

import time

import numpy as np

from disect_sim.cut_mesh import box_mesh
from disect_sim.virtual_nodes.cutting import cut_by_plane

CELLS = (10, 14, 18, 24, 30, 38)
"""Cells along each side of the box; tets grow with the cube."""
REPEATS = 3


def precut_times() -> dict[int, float]:
    """Number of tets → best time [s] of a cut by a slightly tilted plane."""
    times = {}
    for cells in CELLS:
        nodes, tets = box_mesh((-0.03, 0.0, -0.03), (0.03, 0.06, 0.03), (cells, cells, cells))
        times[len(tets)] = min(_seconds(nodes, tets) for _ in range(REPEATS))
    return times


def _seconds(nodes: np.ndarray, tets: np.ndarray) -> float:
    start = time.perf_counter()
    cut_by_plane(nodes, tets, point=(0.0011, 0.0, 0.0), normal=(1.0, 0.1, 0.05))
    return time.perf_counter() - start


def growth_exponent(times: dict[int, float]) -> float:
    """k of time ∝ tets^k, by least squares on logarithms."""
    sizes, seconds = np.array(list(times)), np.array(list(times.values()))
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
