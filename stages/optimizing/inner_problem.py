"""One step of the search: MDMM on the motion, with the mean force replaced by its linear model.

A simulation with its gradient takes seconds, a trajectory milliseconds. So between two simulations MDMM solves the
whole constrained problem, hundreds of small steps, and every motion that is simulated is (nearly) feasible.
"""

import torch

from stages.optimizing.constraints import Constraints
from stages.optimizing.slicing_cut import SlicingCut, speed_term
from stages.params import OptimizeParams

OPTIMISERS = {"adam": torch.optim.Adam, "adamax": torch.optim.Adamax}
STEPS_PER_RADIUS = 20.0
"""The optimiser's rate is the radius over this, so that it can cross the radius and come back."""

COARSE = 4
"""MDMM looks at every fourth millisecond, where a maximum is the same to 0.1 %; the iterate is judged at every one."""
LEAST_SLOPE = 1.0e-3
"""Of the model, so that a slope of 0 still has a nearest answer [-]."""


def solve(
    cut: SlicingCut,
    constraints: Constraints,
    centre: torch.Tensor,
    slope: torch.Tensor,
    radius: float,
    params: OptimizeParams,
) -> torch.Tensor:
    """The variables that minimise slope · d + |slope| |d|² / (2 radius) + speed term under the rules; d is the step.

    `slope`: gradient of the mean force over the vertical cut's in the variables. Without constraints and speed term
    the answer lies `radius` down the slope; with a slope of 0 it is the feasible motion next to the centre. The
    multipliers go on from where the last call left them.
    """
    variables = centre.clone().requires_grad_(True)
    rate = radius / STEPS_PER_RADIUS
    optimiser = OPTIMISERS[params.optimiser]([variables], lr=rate)
    shrink = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, params.inner_iterations)
    stiffness = max(float(slope.norm()), LEAST_SLOPE) / radius
    for _ in range(params.inner_iterations):
        optimiser.zero_grad()
        step = variables - centre
        trajectory = cut.trajectory(variables, every=COARSE)
        model = (slope * step).sum() + 0.5 * stiffness * (step * step).sum()
        constraints.lagrangian(model + speed_term(trajectory, params), trajectory).backward()
        optimiser.step()
        constraints.ascend(params.multiplier_rate)
        shrink.step()
    return variables.detach()
