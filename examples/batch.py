"""Batch: many cuts on all cores, with a function of each result evaluated where it was computed.

python examples/batch.py [PICTURE.png]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from disect_sim import (
    MATERIALS,
    ConstantVelocity,
    Cut,
    Result,
    box_mesh,
    build_model,
    cut_by_plane,
    simulate_many,
)

TOUGHNESS, FRICTION = (100.0, 200.0, 400.0, 800.0), (0.1, 0.3, 0.5)


def peak_force(result: Result) -> float:
    """Return the largest force [N]."""
    return float(result.force_norm.max())


def main(picture: str = "batch.png") -> np.ndarray:
    """Return the peak force [N] for every toughness and friction, shape [4, 3], and draw it."""
    nodes, tets = box_mesh((-0.015, 0.0, -0.02), (0.015, 0.03, 0.02), (4, 4, 4))
    model = build_model(cut_by_plane(nodes, tets), MATERIALS["apple"], damage_law="edge")
    motion = ConstantVelocity(initial_y=0.03, velocity_y=-0.15)
    cuts = [
        Cut(model, motion, {"edge_toughness": toughness, "sdf_mu": friction}, {"duration": 0.15})
        for toughness in TOUGHNESS
        for friction in FRICTION
    ]
    answers = simulate_many(cuts, of=peak_force)
    peaks = np.array([answer.value for answer in answers]).reshape(len(TOUGHNESS), len(FRICTION))

    plt.figure(figsize=(5, 3))
    for friction, column in zip(FRICTION, peaks.T, strict=True):
        plt.plot(TOUGHNESS, column, "o-", label=f"friction {friction}")
    plt.xlabel("edge toughness [J/m²]")
    plt.ylabel("peak force [N]")
    plt.legend()
    plt.tight_layout()
    plt.savefig(picture, dpi=120)
    return peaks


if __name__ == "__main__":
    print(main(*sys.argv[1:2]).round(1))
