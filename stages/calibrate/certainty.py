"""How well the log determines each shared parameter: the usual linear error estimate around the fit."""

from dataclasses import dataclass

import numpy as np
import torch

from stages.calibrate.problem import Problem
from stages.calibrate.residuals import DIFFERENCE, Residuals
from stages.calibrate.unknowns import Unknowns
from stages.shared.fitting.bounded import Bound

PRIOR_SPREAD = 3.0
"""Standard deviation of a free number about which nothing is known: 95 % of a parameter's range."""
IDENTIFIABLE_FRACTION = 0.1
"""A parameter counts as identifiable if its 95 % interval reaches less far than this share of its value (or range)."""
STANDARD_ERRORS = 2.0
"""Half-width of the 95 % interval, in standard errors."""


@dataclass(frozen=True)
class Certainty:
    """What the log says about one parameter."""

    standard_error: float
    """In the parameter's unit."""
    identifiable: bool


def certainties(
    problem: Problem, unknowns: Unknowns, free: torch.Tensor, *, low_pass_hz: float
) -> tuple[dict[str, Certainty], int]:
    """Standard errors of the shared parameters at the fit, and the number of simulations it took.

    The residual's root mean square stands for the noise. Of a low-passed signal, 2 × cutoff samples a second are
    independent.
    """
    residuals = Residuals(problem, unknowns)
    profile = residuals.profile(free)
    assert profile is not None
    residual = residuals.residual(profile)
    jacobian = residuals.jacobian(free, profile)
    duration = float(problem.time[-1] - problem.time[0])
    independent = min(len(residual), max(1.0, 2.0 * low_pass_hz * duration))
    information = jacobian.T @ jacobian * (independent / len(residual)) / float((residual**2).mean())
    covariance = np.linalg.inv(information + np.eye(len(free)) / PRIOR_SPREAD**2)
    spread = np.sqrt(np.diag(covariance))
    out = {}
    for i, (name, bound) in enumerate(unknowns.bounds.items()):
        error = float(spread[i]) * _slope(bound, float(free[i]))
        value = float(bound.value(free[i]))
        scale = abs(value) if bound.low > 0.0 else bound.high - bound.low
        out[name] = Certainty(error, STANDARD_ERRORS * error < IDENTIFIABLE_FRACTION * scale)
    return out, residuals.simulations


def _slope(bound: Bound, free: float) -> float:
    """d value / d free."""
    ends = bound.value(torch.tensor([free - DIFFERENCE, free + DIFFERENCE], dtype=torch.float64))
    return float(ends[1] - ends[0]) / (2.0 * DIFFERENCE)
