"""Gradient check: the exact gradient of a cut's mean force against central differences, parameter by parameter.

python examples/gradient_check.py [PICTURE.png]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from disect_sim import MATERIALS, SlicingMotion, box_mesh, build_model, cut_by_plane, simulate

NAMES = ("edge_toughness", "edge_press", "edge_drag", "skin_toughness", "sdf_ke", "sdf_mu")
DURATION = 0.12


def main(picture: str = "gradient_check.png") -> dict[str, float]:
    """Return the relative error of every derivative and draw them."""
    nodes, tets = box_mesh((-0.015, 0.0, -0.02), (0.015, 0.03, 0.02), (4, 4, 4))
    model = build_model(cut_by_plane(nodes, tets), MATERIALS["apple"], damage_law="edge")
    motion = SlicingMotion(duration=DURATION, initial_y=0.032, amplitude=0.2, velocity_y=-0.3, window_s=0.02)
    start = {
        "edge_toughness": 300.0,
        "edge_press": 0.25,
        "edge_drag": 0.3,
        "skin_toughness": 400.0,
        "sdf_mu": 0.3,
    }

    def mean_force(values: dict[str, float]) -> float:
        return float(simulate(model, motion, values, duration=DURATION).force[:, 1].mean())

    result = simulate(model, motion, start, duration=DURATION, differentiable=True)
    weights = np.zeros_like(result.force)
    weights[:, 1] = 1.0 / len(result.force)
    exact = result.gradient(weights).parameters

    errors = {}
    for name in NAMES:
        value = start.get(name, 1000.0)
        step = 1e-6 * value
        difference = (mean_force(start | {name: value + step}) - mean_force(start | {name: value - step})) / (
            2 * step
        )
        errors[name] = abs(float(exact[name].sum()) - difference) / abs(difference)

    plt.figure(figsize=(6, 3))
    plt.barh(list(errors), list(errors.values()))
    plt.xscale("log")
    plt.xlim(1e-8, 1e-2)
    plt.xlabel("relative difference from central differences")
    plt.tight_layout()
    plt.savefig(picture, dpi=120)
    return errors


if __name__ == "__main__":
    for name, error in main(*sys.argv[1:2]).items():
        print(f"{name:16s} {error:.1e}")
