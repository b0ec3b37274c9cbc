"""One step of the search: MDMM on the motion, with the mean force replaced by a quadratic model.

A simulation with its gradient takes seconds, a trajectory milliseconds. So between two simulations MDMM solves the
whole constrained problem, hundreds of small steps, and every motion that is simulated is (nearly) feasible.
"""

import torch

from stages.optimize.constraints import Constraints
from stages.optimize.curvature import Curvature
from stages.optimize.optimisers import OPTIMISERS
from stages.optimize.params import OptimizeParams
from stages.optimize.slicing_cut import SlicingCut, speed_term
from stages.runtime.named import load

STEPS_PER_RADIUS = 20.0
"""The optimiser's rate is the radius over this, so that it can cross the radius and come back."""

COARSE = 4
"""MDMM looks at every fourth millisecond, where a maximum is the same to 0.1 %; the iterate is judged at every one."""
LEAST_SLOPE = 1.0e-3
"""Of the wall, so that there is one without a slope [-]."""
FAR = 1.0
"""How far a wish may be outside the limits, in the variables' units; farther costs accuracy."""
WALL = 10.0
"""Stiffness of the wall at the radius, in slopes per radius: the step ends at most a tenth of it beyond."""


def solve(
    cut: SlicingCut,
    constraints: Constraints,
    centre: torch.Tensor,
    slope: torch.Tensor,
    curvature: Curvature,
    radius: float,
    params: OptimizeParams,
) -> torch.Tensor:
    """The variables that minimise the model of the mean force plus the speed term under the rules.

    The model of a step d from the centre is slope · d + d · curvature d / 2, with a steep wall where d is longer than
    the radius. `slope`: gradient of the mean force over the vertical cut's in the variables; with a slope of 0 the
    answer is the feasible motion next to the centre. The multipliers go on from where the last call left them.
    """
    variables = centre.clone().requires_grad_(True)
    rate = radius / STEPS_PER_RADIUS
    optimiser = load(OPTIMISERS[params.optimiser])([variables], lr=rate)
    shrink = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, params.inner_iterations)
    wall = WALL * max(float(slope.norm()), LEAST_SLOPE) / radius
    for _ in range(params.inner_iterations):
        optimiser.zero_grad()
        step = variables - centre
        trajectory = cut.trajectory(variables, every=COARSE)
        beyond = ((step * step).sum().add(1e-12).sqrt() - radius).relu()
        model = (slope * step).sum() + curvature.energy(step) + 0.5 * wall * beyond * beyond
        constraints.lagrangian(model + speed_term(trajectory, params), trajectory).backward()
        optimiser.step()
        constraints.ascend(params.multiplier_rate)
        shrink.step()
    return variables.detach()


def nearest_feasible(
    cut: SlicingCut, constraints: Constraints, wish: torch.Tensor, params: OptimizeParams
) -> torch.Tensor:
    """The motion inside all limits that is nearest to the wish."""
    flat = torch.full_like(wish, LEAST_SLOPE / wish.numel() ** 0.5)
    return solve(cut, constraints, wish, torch.zeros_like(wish), Curvature(flat, FAR), FAR, params)
