"""Soft body: a block of jelly sags under its weight, bulges under the knife, and is cut to the end.

python examples/soft_body.py [PICTURE.png]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from disect_sim import MATERIALS, ConstantVelocity, Result, box_mesh, build_model, cut_by_plane, simulate

TIMES = (0.003, 0.15, 0.3, 0.45)


def main(picture: str = "soft_body.png") -> Result:
    """Return the cut and draw the body, seen along the blade, at four times."""
    nodes, tets = box_mesh((-0.02, 0.0, -0.015), (0.02, 0.03, 0.015), (7, 6, 3))
    model = build_model(cut_by_plane(nodes, tets), MATERIALS["jelly"], damage_law="edge")
    motion = ConstantVelocity(initial_y=0.031, velocity_y=-0.06)
    result = simulate(model, motion, {"edge_toughness": 3.0}, duration=0.5, keep_times=TIMES)

    figure, axes = plt.subplots(1, 4, figsize=(10, 2.6), sharey=True)
    for axis, time in zip(axes, TIMES, strict=True):
        state = result.positions[time]
        height = np.interp(time, result.step_time, result.pose[:, 1])
        for node_indices in model.mesh.tets[~model.mesh.node_ghost[model.mesh.tets].any(axis=1)]:
            outline = state[np.append(node_indices, node_indices[0])]
            axis.plot(1e3 * outline[:, 0], 1e3 * outline[:, 1], color="tab:green", linewidth=0.3)
        real, ghost = state[model.mesh.virtual_parents].transpose(1, 2, 0)  # edges that end at the cut
        ends = real + model.mesh.virtual_coordinate * (ghost - real)
        axis.plot(
            1e3 * np.stack([real[0], ends[0]]),
            1e3 * np.stack([real[1], ends[1]]),
            color="tab:green",
            linewidth=0.3,
        )
        axis.plot([0, 0], [1e3 * height, 1e3 * height + 12], color="k", linewidth=2)
        axis.set(title=f"{time:.2f} s", xlabel="x [mm]", aspect="equal", ylim=(-2, 45))
    axes[0].set_ylabel("y [mm]")
    figure.tight_layout()
    figure.savefig(picture, dpi=120)
    return result


if __name__ == "__main__":
    cut = main(*sys.argv[1:2])
    print(f"cut {100 * cut.cut_fraction[-1]:.0f} % of the section, peak force {cut.force_norm.max():.2f} N")
