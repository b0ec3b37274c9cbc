"""Posterior of the springs after the individual fit: Laplace's approximation for hundreds of values.

A log is a dozen mean forces over slices of depth, so the posterior covariance is the prior one minus a matrix of that
rank. One tape and one right-hand side per slice give all of it.
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

# Linear error estimate of the shared parameters


_PRIOR_SPREAD = 3.0
"""Prior standard deviation of a free number: 95 % of a parameter's range."""
_IDENTIFIABLE_FRACTION = 0.1
"""Half-width of the 95 % interval, as a fraction of the value (or range), below which a parameter is identifiable."""
_STANDARD_ERRORS = 2.0
"""Half-width of the 95 % interval, in standard errors."""


@dataclass(frozen=True)
class Certainty:
    """Error estimate of one parameter."""

    standard_error: float
    """Standard error in the parameter's unit."""
    identifiable: bool


def certainties(
    problem: Problem, unknowns: Unknowns, free: torch.Tensor, *, low_pass_hz: float
) -> tuple[dict[str, Certainty], int]:
    """Return standard errors of the shared parameters at the fit, and the number of simulations used.

    The root mean square residual is taken as the noise. A low-passed signal has 2 × cut-off independent samples per
    second.
    """
    residuals = Residuals(problem, unknowns)
    profile = residuals.profile(free)
    assert profile is not None
    residual = residuals.residual(profile)
    jacobian = residuals.jacobian(free, profile)
    duration = float(problem.time[-1] - problem.time[0])
    independent = min(len(residual), max(1.0, 2.0 * low_pass_hz * duration))
    information = jacobian.T @ jacobian * (independent / len(residual)) / float((residual**2).mean())
    covariance = np.linalg.inv(information + np.eye(len(free)) / _PRIOR_SPREAD**2)
    spread = np.sqrt(np.diag(covariance))
    out = {}
    for i, (name, bound) in enumerate(unknowns.bounds.items()):
        error = float(spread[i]) * _slope(bound, float(free[i]))
        value = float(bound.value(free[i]))
        scale = abs(value) if bound.low > 0.0 else bound.high - bound.low
        out[name] = Certainty(error, _STANDARD_ERRORS * error < _IDENTIFIABLE_FRACTION * scale)
    return out, residuals.simulations


def _slope(bound: Bound, free: float) -> float:
    """Return d value / d free."""
    ends = bound.value(torch.tensor([free - DIFFERENCE, free + DIFFERENCE], dtype=torch.float64))
    return float(ends[1] - ends[0]) / (2.0 * DIFFERENCE)


_ALIKE = 0.2
"""Prior correlation length of springs of a kind, as a fraction of the cut face's height, as for material layers."""

_Array = NDArray[np.float64]


@dataclass(frozen=True)
class SpringPosterior:
    """Posterior of one parameter of all springs; arrays of shape [spring_count]."""

    value: _Array
    """Fitted value."""
    low: _Array
    """5 % quantile."""
    high: _Array
    """95 % quantile."""
    left: _Array
    """Posterior / prior variance of the free number: 1 where the log has no information [-]."""


def spring_posteriors(
    problem: Problem,
    result: Result,
    values: Mapping[str, _Array],
    bounds: Mapping[str, Bound],
    uncertainty_n: float,
) -> dict[str, SpringPosterior]:
    """Return the posteriors of the parameters with bounds, around the fit.

    A priori a parameter's free number is anywhere within its bounds (_PRIOR_SPREAD), and correlated between springs
    that are close to each other and of the same kind.

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
    alike = _likeness(problem.model.mesh.spring_position, problem.model.mesh.spring_surface)
    out = {}
    for name, left in _variance_left(rows, alike).items():
        half = NINETY * _PRIOR_SPREAD * torch.as_tensor(np.sqrt(left))
        low, high = (bounds[name].value(free[name] + side * half).numpy() for side in (-1.0, 1.0))
        out[name] = SpringPosterior(np.asarray(values[name], float), low, high, left)
    return out


def _likeness(position: _Array, skin: NDArray[np.bool_]) -> _Array:
    """Return the prior correlation of springs, shape [spring_count, spring_count].

    position: on the cut surface [m], shape [spring_count, 2], the second upward.
    """
    length = _ALIKE * float(np.ptp(position[:, 1]))
    same = skin[:, None] == skin
    out: _Array = np.where(same, 1.0, 0.0)
    for axis in position.T:
        out = out * correlation(axis, axis, length)
    return out


def _variance_left(rows: Mapping[str, _Array], alike: _Array) -> dict[str, _Array]:
    """Return posterior / prior variances, by name, each of shape [spring_count].

    Args:
        rows: Derivatives of the residuals [standard deviations] in the free numbers, by name, each of shape
            [row_count, spring_count].
        alike: Prior correlation, the same for every name, shape [spring_count, spring_count].
    """
    seen = {name: _PRIOR_SPREAD * row @ alike for name, row in rows.items()}
    count = len(next(iter(rows.values())))
    information = np.eye(count) + sum(_PRIOR_SPREAD * seen[name] @ row.T for name, row in rows.items())
    factor = np.linalg.cholesky(information)
    return {
        name: np.clip(1.0 - (np.linalg.solve(factor, part) ** 2).sum(axis=0), 0.0, 1.0)
        for name, part in seen.items()
    }
