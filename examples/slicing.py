"""Slicing: draw the blade so that a block is cut with less force, by gradient descent in the motion's keyframes.

python examples/slicing.py [PICTURE.png]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import torch

from disect_sim import MATERIALS, CuttingForce, SlicingMotion, box_mesh, build_model, cut_by_plane

DURATION, MAX_DRAW_M_S = 0.5, 0.1
ITERATIONS = 12


def main(picture: str = "slicing.png") -> tuple[float, float]:
    """Return the mean force of the vertical and of the optimised cut [N] and draw both."""
    nodes, tets = box_mesh((-0.015, 0.0, -0.02), (0.015, 0.03, 0.02), (4, 4, 4))
    model = build_model(cut_by_plane(nodes, tets), MATERIALS["apple"], damage_law="edge")
    motion = SlicingMotion(  # frequency 0: one long draw, which starts with the block at one end of the 150 mm blade
        duration=DURATION,
        initial_y=0.033,
        initial_z=-0.05,
        amplitude=0.0,
        frequency=0.0,
        velocity_y=-0.04,
        sigma2_s2=0.01,
    )
    law = {"edge_toughness": 300.0, "edge_press": 0.25, "edge_drag": 0.32}
    cut = CuttingForce(model, motion, law, duration=DURATION)
    raw = torch.full((5,), 0.1, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([raw], lr=0.3)
    curves = []
    for _ in range(ITERATIONS):
        adam.zero_grad()
        force = cut(None, {"amplitude": MAX_DRAW_M_S * torch.tanh(raw)}).norm(dim=1)
        force.mean().backward()
        adam.step()
        curves.append(force.detach().numpy())
    vertical = cut(None, {"amplitude": torch.zeros(5, dtype=torch.float64)}).norm(dim=1).detach().numpy()

    time = np.arange(1, len(vertical) + 1) * 1e-3
    plt.figure(figsize=(6, 3))
    plt.plot(time, vertical, label=f"vertical, mean {vertical.mean():.1f} N")
    plt.plot(time, curves[-1], label=f"drawn, mean {curves[-1].mean():.1f} N")
    plt.xlabel("time [s]")
    plt.ylabel("force [N]")
    plt.legend()
    plt.tight_layout()
    plt.savefig(picture, dpi=120)
    return float(vertical.mean()), float(curves[-1].mean())


if __name__ == "__main__":
    print("mean force {:.2f} N vertical, {:.2f} N drawn".format(*main(*sys.argv[1:2])))
