"""One step of the search: MDMM on the motion, with the mean force replaced by a quadratic model.

A simulation with its gradient takes seconds, a trajectory a fraction of a millisecond. So between two simulations MDMM
solves the whole constrained problem, hundreds of small steps, and every motion that is simulated is (nearly) feasible.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.optimize.constraints import Constraints
from stages.optimize.curvature import Curvature
from stages.optimize.kinematics import Trajectory
from stages.optimize.optimisers import OPTIMISERS
from stages.optimize.params import OptimizeParams
from stages.optimize.slicing_cut import SlicingCut, speed_term
from stages.runtime.named import load

STEPS_PER_RADIUS = 20.0
"""The optimiser's rate is the radius over this, so that it can cross the radius and come back."""
LEAST_SLOPE = 1.0e-3
"""Of the wall, so that there is one without a slope [-]."""
FAR = 1.0
"""How far a wish may be outside the limits, in the variables' units; farther costs accuracy."""
WALL = 10.0
"""Stiffness of the wall at the radius, in slopes per radius: the step ends at most a tenth of it beyond."""

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ForceModel:
    """The mean force near a motion, over the vertical cut's: slope · d + d · curvature d / 2 for a step d."""

    centre: Array
    """Variables of the motion, shape [3, keyframes]."""
    slope: Array
    """Gradient in them, same shape."""
    curvature: Curvature

    def change(self, variables: Array) -> tuple[float, Array]:
        """Change of the mean force from the centre [-], and the derivatives in the variables."""
        step = variables - self.centre
        bent, bent_slope = self.curvature.energy(step)
        return float((self.slope * step).sum()) + bent, self.slope + bent_slope


def solve(
    cut: SlicingCut, constraints: Constraints, model: ForceModel, radius: float, params: OptimizeParams
) -> Array:
    """The variables that minimise the model of the mean force plus the speed term under the rules.

    There is a steep wall where the step is longer than the radius. With a slope of 0 the answer is the feasible motion
    next to the centre. The multipliers go on from where the last call left them.
    """
    variables = model.centre.copy()
    optimiser = load(OPTIMISERS[params.optimiser])()
    for number in range(params.inner_iterations):
        rate = 0.5 * radius / STEPS_PER_RADIUS * (1.0 + np.cos(np.pi * number / params.inner_iterations))
        _, gradient, ascent = lagrangian(cut, constraints, model, radius, params, variables)
        variables = variables + optimiser.step(gradient, rate)
        constraints.multipliers = constraints.multipliers + params.multiplier_rate * ascent
    return variables


def lagrangian(
    cut: SlicingCut,
    constraints: Constraints,
    model: ForceModel,
    radius: float,
    params: OptimizeParams,
    variables: Array,
) -> tuple[float, Array, Array]:
    """What MDMM descends [-], its derivatives in the variables, and those in the multipliers."""
    trajectory, pullback = cut.coarse_trajectory(variables)
    bar = Trajectory.zeros(len(trajectory.velocity))
    force, force_slope = model.change(variables)
    beyond, beyond_slope = _wall(variables - model.centre, model.slope, radius)
    speed = speed_term(trajectory, params, bar)
    rules, ascent = constraints.lagrangian(trajectory, bar)
    return force + beyond + speed + rules, force_slope + beyond_slope + pullback(bar), ascent


def _wall(step: Array, slope: Array, radius: float) -> tuple[float, Array]:
    """Energy of a step beyond the radius [-], and its derivatives in the step."""
    stiffness = WALL * max(float(np.linalg.norm(slope)), LEAST_SLOPE) / radius
    length = float(np.sqrt((step * step).sum() + 1e-12))
    beyond = max(0.0, length - radius)
    return 0.5 * stiffness * beyond * beyond, stiffness * beyond / length * step


def nearest_feasible(cut: SlicingCut, constraints: Constraints, wish: Array, params: OptimizeParams) -> Array:
    """The motion inside all limits that is nearest to the wish."""
    flat = Curvature(np.full_like(wish, LEAST_SLOPE / wish.size**0.5), FAR)
    return solve(cut, constraints, ForceModel(wish, np.zeros_like(wish), flat), FAR, params)
