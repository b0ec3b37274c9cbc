"""Where learnt posteriors have their probability: further rounds take points of the prior from there."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

CUT_OFF = 1.0e-3
"""Of a posterior's probability is left outside: what a round misses no later one finds."""
POINTS = 20_000
"""Of a posterior, to find the density at its edge."""
BATCH = 20_000
MOST = 2_000_000
"""Points of the prior that are tried: some seconds."""
DRAWN = 200_000
"""Points of a posterior that are weighed where the prior has too few inside."""

Array = NDArray[np.float64]


class Region:
    """The whole space at first; every posterior cuts off what it holds for impossible."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._edges: list[tuple[Any, torch.Tensor]] = []
        """Posteriors and the density at their edge."""

    def narrow(self, posterior: Any) -> None:
        """Leave out where a posterior of sbi, with its log, has the last CUT_OFF of its probability."""
        drawn = posterior.sample((POINTS,), show_progress_bars=False)
        density = posterior.log_prob(drawn, norm_posterior=False)
        self._edges.append((posterior, torch.quantile(density, CUT_OFF)))

    def depth(self, points: Array) -> NDArray[np.int64]:
        """How many posteriors, from the first, have a point inside, shape [point_count]."""
        depth, inside = np.zeros(len(points), np.int64), np.ones(len(points), bool)
        for posterior, edge in self._edges:
            density = posterior.log_prob(torch.as_tensor(points, dtype=torch.float32), norm_posterior=False)
            inside &= (density >= edge).numpy()
            depth += inside
        return depth

    def enough(self, points: Array, wanted: int) -> NDArray[np.bool_]:
        """Points in the narrowest of the regions so far that has as many as wanted, shape [point_count].

        If points were drawn by `of_prior` as the region got narrower, these are the prior's in that one.
        """
        depth = self.depth(points)
        while_enough = [k for k in range(len(self._edges) + 1) if (depth >= k).sum() >= wanted]
        return depth >= max(while_enough, default=0)

    def of_prior(self, wanted: int, random: np.random.Generator) -> Array:
        """Points of the standard normal prior inside; none if there are fewer than wanted.

        Drawn from it, or where that finds too few, from the last posterior.
        """
        if not self._edges:
            return random.standard_normal((wanted, self._count))
        found: list[Array] = []
        for _ in range(MOST // BATCH):
            points = random.standard_normal((BATCH, self._count))
            found.append(points[self.depth(points) == len(self._edges)])
            if sum(map(len, found)) >= wanted:
                return np.concatenate(found)[:wanted]
        return self._resampled(wanted, random)

    def _resampled(self, wanted: int, random: np.random.Generator) -> Array:
        """Points of the last posterior inside, taken as often as the prior has them more often than it."""
        posterior, _ = self._edges[-1]
        drawn = posterior.sample((DRAWN,), show_progress_bars=False)
        density = posterior.log_prob(drawn, norm_posterior=False).double().numpy()
        points = drawn.double().numpy()
        inside = self.depth(points) == len(self._edges)
        points, log_weight = points[inside], (-0.5 * (points**2).sum(axis=1) - density)[inside]
        weight = np.exp(log_weight - log_weight.max(initial=-np.inf))
        if not len(points) or weight.sum() ** 2 < wanted * (weight**2).sum():  # effective number of points
            return points[:0]
        return points[random.choice(len(points), wanted, replace=False, p=weight / weight.sum())]
