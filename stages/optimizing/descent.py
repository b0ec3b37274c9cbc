"""MDMM descent from one start: keeps the best feasible iterate, not the last."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from stages.optimizing.constraints import Constraints, rules_of
from stages.optimizing.slicing_cut import SlicingCut
from stages.params import OptimizeParams


@dataclass
class Best:
    """The best feasible motion so far."""

    variables: torch.Tensor
    objective: float


@dataclass
class Descent:
    """What one start gave."""

    best: Best | None = None
    history: list[dict[str, float]] = field(default_factory=list)
    """Per iteration: objective, mean force and the residual of every rule."""
    ended: str = "budget used"


def objective_of(cut: SlicingCut, force: torch.Tensor, variables: torch.Tensor, params: OptimizeParams, scale_n: float):
    """Mean force over that of the vertical cut, plus the weight of the knife's speed."""
    velocity = cut.trajectory(variables).velocity
    mean = force.norm(dim=1).mean()
    return mean / scale_n + params.speed_weight_s2_m2 * (velocity * velocity).sum(dim=1).mean(), mean


def descend(
    cut: SlicingCut,
    start: torch.Tensor,
    params: OptimizeParams,
    *,
    scale_n: float,
    constrained: bool = True,
    progress: Callable[[int, float], None] = lambda iteration, mean: None,
) -> Descent:
    """Minimise the objective under the constraints, or without them for the ablation."""
    variables = start.clone().requires_grad_(True)
    constraints = Constraints(rules_of(cut, params), params.damping)
    if constrained:
        with torch.no_grad():
            constraints.lagrangian(torch.zeros(()), cut.trajectory(start))
        optimiser = constraints.module.make_optimizer([variables], optimizer=torch.optim.Adamax, lr=params.learning_rate)
    else:
        optimiser = torch.optim.Adamax([variables], lr=params.learning_rate)
    run = Descent()
    for iteration in range(params.iterations):
        optimiser.zero_grad()
        force = cut.force(variables)
        if not cut.result.outcome.ok:
            run.ended = f"stopped: {cut.result.outcome}"
            break
        objective, mean = objective_of(cut, force, variables, params, scale_n)
        trajectory = cut.trajectory(variables)
        value = constraints.lagrangian(objective, trajectory) if constrained else objective
        with torch.no_grad():
            residuals = constraints.residuals(trajectory)
            run.history.append({"objective": objective.item(), "mean_force_n": mean.item(), **residuals})
            better = run.best is None or objective.item() < run.best.objective
            if better and (constraints.feasible(trajectory) or not constrained):
                run.best = Best(variables.detach().clone(), objective.item())
        progress(iteration, mean.item())
        value.backward()
        optimiser.step()
    return run
