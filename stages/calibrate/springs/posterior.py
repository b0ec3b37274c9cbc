"""What the log tells about each spring after the individual fit: Laplace's approximation of hundreds of numbers.

A log is a dozen mean forces over slices of depth, so it tells a dozen things: the covariance after it is that before
it less a matrix of that rank. One tape and one right-hand side per slice give them all.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from disect_sim.result import Result
from stages.calibrate.material.likelihood import depth_likelihood
from stages.calibrate.phase import DIFFERENCE, Residuals, Unknowns
from stages.calibrate.problem import Problem
from stages.shared.fitting import Bound, correlation
from stages.shared.library.library import NINETY

# How well the log determines each shared parameter: the usual linear error estimate around the fit.


PRIOR_SPREAD = 3.0
"""Standard deviation of a free number about which nothing is known: 95 % of a parameter's range."""
_IDENTIFIABLE_FRACTION = 0.1
"""A parameter counts as identifiable if its 95 % interval reaches less far than this share of its value (or range)."""
_STANDARD_ERRORS = 2.0
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
        out[name] = Certainty(error, _STANDARD_ERRORS * error < _IDENTIFIABLE_FRACTION * scale)
    return out, residuals.simulations


def _slope(bound: Bound, free: float) -> float:
    """d value / d free."""
    ends = bound.value(torch.tensor([free - DIFFERENCE, free + DIFFERENCE], dtype=torch.float64))
    return float(ends[1] - ends[0]) / (2.0 * DIFFERENCE)


_ALIKE = 0.2
"""Springs of a kind are alike over this share of the cut face's height, as the layers of a material are."""

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class SpringPosterior:
    """One parameter of all springs; arrays of shape [spring_count]."""

    value: _Array
    """Fitted."""
    low: _Array
    """With 5 % probability it is below."""
    high: _Array
    """With 5 % above."""
    left: _Array
    """Variance after the log over that before it, of the free number: 1 where the log says nothing [-]."""


def spring_posteriors(
    problem: Problem,
    result: Result,
    values: Mapping[str, _Array],
    bounds: Mapping[str, Bound],
    uncertainty_n: float,
) -> dict[str, SpringPosterior]:
    """Of the parameters with bounds, around the fit.

    Before the log a parameter's free number is anywhere within its bounds (PRIOR_SPREAD), and alike in springs that are
    near each other and of the same kind.

    Args:
        problem: The cut.
        result: Its differentiable run with the fitted values.
        values: Fitted, by name, each of shape [spring_count].
        bounds: Of the parameters that differ from spring to spring.
        uncertainty_n: Of the log's force [N].
    """
    seen = problem.contact & problem.valid & ~problem.held_out
    likelihood = depth_likelihood(problem, seen, uncertainty_n)
    gradients = result.gradients(likelihood.force_bars())
    free, rows = {}, {}
    for name, bound in bounds.items():
        x = bound.free(torch.as_tensor(values[name])).requires_grad_(True)
        bound.value(x).sum().backward()
        assert x.grad is not None
        free[name] = x.detach()
        rows[name] = np.array([each.parameters[name] for each in gradients]) * x.grad.numpy()
    alike = likeness(problem.model.mesh.spring_position, problem.model.mesh.spring_surface)
    out = {}
    for name, left in variance_left(rows, alike).items():
        half = NINETY * PRIOR_SPREAD * torch.as_tensor(np.sqrt(left))
        low, high = (bounds[name].value(free[name] + side * half).numpy() for side in (-1.0, 1.0))
        out[name] = SpringPosterior(np.asarray(values[name], float), low, high, left)
    return out


def likeness(position: _Array, skin: NDArray[np.bool_]) -> _Array:
    """Correlation of springs before the log, shape [spring_count, spring_count].

    position: on the cut surface [m], shape [spring_count, 2], the second upward.
    """
    length = _ALIKE * float(np.ptp(position[:, 1]))
    same = skin[:, None] == skin
    out: _Array = np.where(same, 1.0, 0.0)
    for axis in position.T:
        out = out * correlation(axis, axis, length)
    return out


def variance_left(rows: Mapping[str, _Array], alike: _Array) -> dict[str, _Array]:
    """Variances after the log over those before it, by name, each of shape [spring_count].

    Args:
        rows: Derivatives of the residuals [standard deviations] in the free numbers, by name, each of shape
            [row_count, spring_count].
        alike: Correlation before the log, the same for every name, shape [spring_count, spring_count].
    """
    seen = {name: PRIOR_SPREAD * row @ alike for name, row in rows.items()}
    count = len(next(iter(rows.values())))
    information = np.eye(count) + sum(PRIOR_SPREAD * seen[name] @ row.T for name, row in rows.items())
    factor = np.linalg.cholesky(information)
    return {
        name: np.clip(1.0 - (np.linalg.solve(factor, part) ** 2).sum(axis=0), 0.0, 1.0)
        for name, part in seen.items()
    }
