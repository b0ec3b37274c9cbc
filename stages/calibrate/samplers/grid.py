"""Brute force: the posterior on a grid, for at most three unknowns; the reference for the other methods."""

import numpy as np
from numpy.typing import NDArray

from disect_sim.processes import Workers
from stages.calibrate.samplers.sampling import RememberedSimulations, Samples, Sampling
from stages.runtime.errors import InputError

_MOST_UNKNOWNS = 3
_REACH = 4.0
"""Extent of the grid in Laplace and prior standard deviations; it never exceeds the prior's."""
_OUTERMOST = 1.0e-3
"""Relative probability of an outermost layer of cells above which the grid is extended."""

_Array = NDArray[np.float64]


def sample_grid(sampling: Sampling) -> Samples:
    """Draw points from the cells of a grid; `simulations` is its size."""
    count = len(sampling.centre)
    if count > _MOST_UNKNOWNS:
        raise InputError(
            f"calibrate.posterior is grid, with {count} unknowns ({', '.join(sampling.target.names)}). A grid has at "
            f"most {_MOST_UNKNOWNS}. Take another method, or fewer in calibrate.material with calibrate.prior=uniform."
        )
    axes, values = grid_of(sampling)
    random = np.random.default_rng([sampling.seed, 2])
    points, logs = drawn_from(axes, values, sampling.chains * sampling.samples, random)
    t = points.reshape(sampling.chains, sampling.samples, count)
    return Samples(t, logs.reshape(t.shape[:2]), 0, values.size, False, t)


def drawn_from(
    axes: list[_Array], values: _Array, count: int, random: np.random.Generator
) -> tuple[_Array, _Array]:
    """Draw points from the cells by probability, evenly inside a cell, with the cells' log-probability."""
    weight = np.exp(values - values.max())
    chosen = random.choice(weight.size, size=count, p=(weight / weight.sum()).ravel())
    place = np.unravel_index(chosen, values.shape)
    points = np.stack([axis[i] for axis, i in zip(axes, place, strict=True)], axis=1)
    points += (random.random(points.shape) - 0.5) * np.array([axis[1] - axis[0] for axis in axes])
    return points, values.ravel()[chosen]


def cells_of(sampling: Sampling) -> tuple[list[_Array], _Array]:
    """Return the centres of the cells along every axis, and of all cells, shape [cell_count, unknown_count]."""
    count = len(sampling.centre)
    side = max(3, int(np.floor(sampling.simulations ** (1.0 / count) + 1e-9)))
    half = _REACH * np.sqrt(np.diag(sampling.covariance))
    low = np.maximum(sampling.centre - half, -_REACH)
    high = np.minimum(sampling.centre + half, _REACH)
    cells = (np.arange(side) + 0.5) / side
    axes = [a + (b - a) * cells for a, b in zip(low, high, strict=True)]
    return axes, _product(axes)


def grid_of(sampling: Sampling) -> tuple[list[_Array], _Array]:
    """Return the centres of the cells along every axis, and the log-probability of all, shape [side] * unknown_count.

    A grid that cuts off a tail is extended there, up to the ends of the prior.
    """
    axes, points = cells_of(sampling)
    with Workers(sampling.processes) as workers:
        ask = RememberedSimulations(
            lambda batch: sampling.target.log_probabilities(batch, workers), sampling.checkpoint("grid")
        )
        values = ask(
            points, lambda done: sampling.report(done / len(points), f"grid: {done} of {len(points)}")
        ).reshape([len(axis) for axis in axes])
        if not np.isfinite(values).any():
            raise InputError(
                "calibrate: no simulation of the grid finished. At least one must. Change calibrate.bounds or "
                "calibrate.start."
            )
        while (layer := _cut_off(axes, values)) is not None:
            axis, place = layer
            points = _product([*axes[:axis], np.array([place]), *axes[axis + 1 :]])
            found = ask(points).reshape([1 if i == axis else len(each) for i, each in enumerate(axes)])
            after = place > axes[axis][-1]
            values = np.concatenate([values, found] if after else [found, values], axis=axis)
            axes[axis] = np.append(axes[axis], place) if after else np.insert(axes[axis], 0, place)
    return axes, values


def _cut_off(axes: list[_Array], values: _Array) -> tuple[int, float] | None:
    """Return axis and position of a missing layer of cells; None if there is none."""
    weight = np.exp(values - values.max())
    for axis, middles in enumerate(axes):
        step = middles[1] - middles[0]
        layers = weight.sum(axis=tuple(i for i in range(len(axes)) if i != axis))
        for end, place in ((0, middles[0] - step), (-1, middles[-1] + step)):
            if layers[end] > _OUTERMOST * layers.max() and abs(place) < _REACH:
                return axis, float(place)
    return None


def _product(axes: list[_Array]) -> _Array:
    """Return all points of the axes, the last one fastest, shape [point_count, unknown_count]."""
    return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], axis=1)
