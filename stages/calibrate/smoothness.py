"""The prior of the individual fit: neighbouring springs are alike, skin and flesh apart."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree


def neighbour_pairs(
    position: NDArray[np.float64], skin: NDArray[np.bool_], neighbours: int
) -> NDArray[np.int64]:
    """Pairs of near springs of the same kind, each once, shape [pair_count, 2]; position [m], shape [s, 2]."""
    pairs = []
    for kind in (True, False):
        index = np.flatnonzero(skin == kind)
        if len(index) < 2:
            continue
        k = min(neighbours + 1, len(index))
        _, near = cKDTree(position[index]).query(position[index], k=k)
        own = np.repeat(index, k - 1)
        pairs.append(np.sort(np.stack([own, index[near[:, 1:].ravel()]], axis=1), axis=1))
    if not pairs:
        return np.zeros((0, 2), np.int64)
    return np.unique(np.concatenate(pairs), axis=0)


class Smoothness:
    """Mean squared difference of the named free numbers of neighbours, times a weight."""

    def __init__(self, pairs: NDArray[np.int64], weight: float, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._a, self._b = torch.as_tensor(pairs[:, 0]), torch.as_tensor(pairs[:, 1])
        self._weight = weight

    def __call__(self, parts: dict[str, torch.Tensor]) -> torch.Tensor:
        """The prior's loss [-]."""
        total = torch.zeros((), dtype=torch.float64)
        if len(self._a):
            for free in (parts[name] for name in self._names):
                total = total + ((free[self._a] - free[self._b]) ** 2).mean()
        return self._weight * total
