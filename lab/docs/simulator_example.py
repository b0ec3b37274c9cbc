"""The example of docs/simulator.md: simulate a cut, compute its gradient, fit a parameter with torch's Adam.

It is a function to read and to import, not a command; `tests/disect_sim/test_simulator_example.py` calls it.
"""

import numpy as np
import torch

from disect_sim import (
    MATERIALS,
    ConstantVelocity,
    CuttingForce,
    Gradients,
    build_model,
    cut_by_plane,
    simulate,
)


def fit_softness(
    nodes: np.ndarray, tets: np.ndarray, *, duration: float = 0.12, iterations: int = 8
) -> tuple[Gradients, list[float]]:
    """Find the damage rate of a cut from its force: the gradients of the first cut, and the losses of the fit."""
    mesh = cut_by_plane(nodes, tets, point=(0, 0, 0), normal=(1, 0, 0))
    model = build_model(mesh, MATERIALS["apple"])
    motion = ConstantVelocity(initial_y=float(nodes[:, 1].max()), velocity_y=-0.2)
    result = simulate(model, motion, {"cut_spring_softness": 0.1}, duration=duration, differentiable=True)
    gradients = result.gradient(2.0 * result.force)  # of the loss sum |F|^2, in every parameter at once

    target = torch.as_tensor(result.force_norm)
    cut = CuttingForce(model, motion, duration=duration)
    log_softness = torch.tensor(np.log(0.2), requires_grad=True)
    adam = torch.optim.Adam([log_softness], lr=0.1)
    losses = []
    for _ in range(iterations):
        adam.zero_grad()
        loss = (cut({"cut_spring_softness": log_softness.exp()}).norm(dim=1) - target).abs().mean()
        loss.backward()
        adam.step()
        losses.append(loss.item())
    return gradients, losses
