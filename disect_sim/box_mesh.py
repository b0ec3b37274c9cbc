"""A regular tet mesh of a box."""

from itertools import permutations

import numpy as np

Corner = tuple[float, float, float]


def box_mesh(low_m: Corner, high_m: Corner, cells: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Nodes [m], shape [n, 3], and tets, shape [6 * cells, 4], int32, of a box between two corners [m].

    Every cell is split into the six tets along its main diagonal, so that the faces of neighbours match.
    """
    axes = [np.linspace(a, b, k + 1) for a, b, k in zip(low_m, high_m, cells, strict=True)]
    nodes = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    nx, ny, nz = cells
    index = np.arange(len(nodes)).reshape(nx + 1, ny + 1, nz + 1)
    first = index[:-1, :-1, :-1].ravel()
    steps = np.array([(ny + 1) * (nz + 1), nz + 1, 1])
    tets = []
    for order in permutations(range(3)):
        path = np.concatenate([[0], np.cumsum(steps[list(order)])])
        odd = order in ((0, 2, 1), (1, 0, 2), (2, 1, 0))
        tets.append(first[:, None] + (path[[0, 2, 1, 3]] if odd else path))
    return nodes, np.concatenate(tets).astype(np.int32)
