"""The same body with every edge halved, for the check whether a result depends on the mesh."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from disect_sim.cut_mesh import CutMesh, tet_volumes
from disect_sim.virtual_nodes import cut_by_plane
from stages.optimize.slicing_cut import Values

Array = NDArray[np.float64]
NEIGHBOURS = 4
"""Springs of the coarse mesh from which a spring of the fine one takes its values."""
PAIRS = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))
"""Edges of a tet; the edge's middle is corner 4 + its number."""
CORNERS = ((0, 4, 5, 6), (1, 4, 7, 8), (2, 5, 7, 9), (3, 6, 8, 9))
"""The four small tets at the corners."""
DIAGONALS = (
    ((4, 9), (5, 6, 8, 7)),
    ((5, 8), (4, 6, 9, 7)),
    ((6, 7), (4, 5, 9, 8)),
)
"""The octahedron in the middle: its three diagonals, each with the ring of corners around it."""


def halve_edges(nodes: Array, tets: NDArray[np.int32]) -> tuple[Array, NDArray[np.int32]]:
    """Every tet in eight: four at its corners, and the octahedron between them split along its shortest diagonal.

    nodes [m], shape [n, 3]; tets, shape [m, 4] -> the same of the finer mesh.
    """
    pairs = np.sort(tets[:, PAIRS].reshape(-1, 2), axis=1)
    edges, which = np.unique(pairs, axis=0, return_inverse=True)
    middles = len(nodes) + which.reshape(-1, 6)
    fine = np.concatenate([nodes, nodes[edges].mean(axis=1)])
    ten = np.concatenate([tets, middles], axis=1)
    corners = ten[:, CORNERS].reshape(-1, 4)
    lengths = [np.linalg.norm(fine[ten[:, a]] - fine[ten[:, b]], axis=1) for (a, b), _ in DIAGONALS]
    shortest = np.argmin(lengths, axis=0)
    inner = []
    for number, ((a, b), ring) in enumerate(DIAGONALS):
        chosen = ten[shortest == number]
        for one, other in zip(ring, ring[1:] + ring[:1], strict=True):
            inner.append(chosen[:, (a, b, one, other)])
    out = np.concatenate([corners, *inner]).astype(np.int32)
    flipped = tet_volumes(fine, out) < 0.0
    out[flipped] = out[flipped][:, [0, 1, 3, 2]]
    return fine, out


def finer_cut(nodes: Array, tets: NDArray[np.int32]) -> CutMesh:
    """The finer mesh of an uncut body, cut by the knife's plane x = 0."""
    return cut_by_plane(*halve_edges(nodes, tets))


def values_on(fine: CutMesh, coarse: CutMesh, values: Values) -> dict[str, Array]:
    """The parameters of the coarse mesh's springs on those of the fine one, skin from skin, flesh from flesh.

    Weights fall with the inverse distance on the cut surface. Values that are no spring's (shape []) stay.
    """
    weights = np.zeros((len(fine.spring_area), len(coarse.spring_area)))
    for skin in (True, False):
        to, source = (np.flatnonzero(mesh.spring_surface == skin) for mesh in (fine, coarse))
        if len(source) == 0:
            source = np.arange(len(coarse.spring_area))
        if len(to) == 0:
            continue
        count = min(NEIGHBOURS, len(source))
        distance, near = cKDTree(coarse.spring_position[source]).query(fine.spring_position[to], k=count)
        share = 1.0 / (distance.reshape(len(to), count) + 1e-6)
        share /= share.sum(axis=1, keepdims=True)
        weights[to[:, None], source[near.reshape(len(to), count)]] = share
    return {name: value if np.ndim(value) == 0 else weights @ value for name, value in values.items()}
