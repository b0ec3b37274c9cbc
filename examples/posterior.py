"""Posterior: what one noisy cut says about toughness and friction, by Gauss-Newton and Laplace's approximation.

python examples/posterior.py [PICTURE.png]
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from disect_sim import MATERIALS, ConstantVelocity, Result, box_mesh, build_model, cut_by_plane, simulate

NAMES = ("edge_toughness", "sdf_mu")
TRUTH, PRIOR_MEDIAN, PRIOR_SPREAD = np.array([300.0, 0.25]), np.array([200.0, 0.3]), 0.5
NOISE_N, DURATION, BINS = 0.3, 0.15, 15
ITERATIONS = 6


def binned(force: np.ndarray) -> np.ndarray:
    """Return means of the vertical force over equal times [N], shape [BINS]."""
    return force[:, 1].reshape(BINS, -1).mean(axis=1)


def derivatives(result: Result, values: np.ndarray) -> np.ndarray:
    """Return the derivatives of the binned force in the logarithms, shape [BINS, 2]: one backward sweep for all."""
    bars = np.zeros((BINS, *result.force.shape))
    width = len(result.force) // BINS
    for i in range(BINS):
        bars[i, i * width : (i + 1) * width, 1] = 1.0 / width
    return np.array([[g.parameters[n].sum() for n in NAMES] for g in result.gradients(bars)]) * values


def main(picture: str = "posterior.png") -> tuple[np.ndarray, np.ndarray]:
    """Return median and log-spread of both parameters, and draw prior and posterior."""
    nodes, tets = box_mesh((-0.015, 0.0, -0.02), (0.015, 0.03, 0.02), (4, 4, 4))
    model = build_model(cut_by_plane(nodes, tets), MATERIALS["apple"], damage_law="edge")
    motion = ConstantVelocity(initial_y=0.03, velocity_y=-0.15)

    def cut(values: np.ndarray, *, differentiable: bool = False) -> Result:
        given = dict(zip(NAMES, values, strict=True))
        return simulate(model, motion, given, duration=DURATION, differentiable=differentiable)

    rng = np.random.default_rng(2)
    measured = binned(cut(TRUTH).force) + rng.normal(0.0, NOISE_N, BINS)
    shift = np.zeros(2)  # logarithm over the prior's median
    for _ in range(ITERATIONS):
        values = PRIOR_MEDIAN * np.exp(shift)
        result = cut(values, differentiable=True)
        slope = derivatives(result, values)
        precision = slope.T @ slope / NOISE_N**2 + np.eye(2) / PRIOR_SPREAD**2
        pull = slope.T @ (measured - binned(result.force)) / NOISE_N**2 - shift / PRIOR_SPREAD**2
        shift = shift + np.linalg.solve(precision, pull)
    median, covariance = PRIOR_MEDIAN * np.exp(shift), np.linalg.inv(precision)

    draws = median * np.exp(rng.multivariate_normal(np.zeros(2), covariance, 2000))
    before = PRIOR_MEDIAN * np.exp(rng.normal(0.0, PRIOR_SPREAD, (2000, 2)))
    plt.figure(figsize=(5, 4))
    plt.plot(*before.T, ".", markersize=1, label="prior")
    plt.plot(*draws.T, ".", markersize=1, label="posterior")
    plt.plot(*TRUTH, "k+", markersize=12, label="truth")
    plt.xlabel("edge toughness [J/m²]")
    plt.ylabel("friction coefficient [-]")
    plt.legend()
    plt.tight_layout()
    plt.savefig(picture, dpi=120)
    return median, np.sqrt(np.diag(covariance))


if __name__ == "__main__":
    for name, value, spread in zip(NAMES, *main(*sys.argv[1:2]), strict=True):
        print(f"{name}: {value:.3g} ± {100 * spread:.0f} %")
