"""Fit: find the toughness of a block from the force of its cut, with torch's Adam and the simulator's gradients.

python examples/fit.py [PICTURE.png]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

from disect_sim import (
    MATERIALS,
    ConstantVelocity,
    CuttingForce,
    box_mesh,
    build_model,
    cut_by_plane,
    simulate,
)

TRUTH, START, NOISE_N, DURATION = 300.0, 150.0, 0.3, 0.15
ITERATIONS = 25


def main(picture: str = "fit.png") -> list[float]:
    """Return the toughness after every iteration [J/m²] and draw measured and fitted force."""
    nodes, tets = box_mesh((-0.015, 0.0, -0.02), (0.015, 0.03, 0.02), (4, 4, 4))
    mesh = cut_by_plane(nodes, tets, point=(0, 0, 0), normal=(1, 0, 0))
    model = build_model(mesh, MATERIALS["apple"], damage_law="edge")
    motion = ConstantVelocity(initial_y=float(nodes[:, 1].max()), velocity_y=-0.15)
    truth = simulate(model, motion, {"edge_toughness": TRUTH}, duration=DURATION)
    measured = torch.as_tensor(truth.force + np.random.default_rng(1).normal(0.0, NOISE_N, truth.force.shape))

    cut = CuttingForce(model, motion, duration=DURATION)
    log_toughness = torch.tensor(np.log(START), requires_grad=True)
    adam = torch.optim.Adam([log_toughness], lr=0.1, betas=(0.6, 0.9))
    path = []
    for _ in range(ITERATIONS):
        adam.zero_grad()
        force = cut({"edge_toughness": log_toughness.exp()})
        loss = (force - measured).square().mean()
        loss.backward()
        adam.step()
        path.append(float(log_toughness.detach().exp()))

    plt.figure(figsize=(6, 3))
    plt.plot(truth.time, measured[:, 1], ".", markersize=2, label="measured (synthetic)")
    plt.plot(truth.time, force.detach()[:, 1], label=f"fitted, {path[-1]:.0f} J/m²")
    plt.xlabel("time [s]")
    plt.ylabel("force [N]")
    plt.legend()
    plt.tight_layout()
    plt.savefig(picture, dpi=120)
    return path


if __name__ == "__main__":
    print("toughness [J/m²]:", " ".join(f"{value:.0f}" for value in main(*sys.argv[1:2])))
