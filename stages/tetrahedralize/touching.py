"""Removing the few tets by which a mesh touches itself in an edge or a node only.

Thin spikes of a scan come out of the mesher like that. The simulator needs a manifold boundary, so of the groups of
tets that meet in such an edge or node without sharing a face there, all but the largest are dropped.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from stages.tetrahedralize.quality import EDGES, OPPOSITE_FACES

MAX_ROUNDS = 20
"""Dropping tets may uncover another touching edge; a few rounds are enough unless the mesh is a sponge."""


def drop_touching(tets: NDArray[np.int32], volume_m3: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which tets to keep so that the rest is one piece with a manifold boundary.

    Args:
        tets: node indices, shape [tet_count, 4].
        volume_m3: volume of each tet [m³], shape [tet_count].

    Returns:
        Flags of shape [tet_count].
    """
    kept = np.arange(len(tets))
    for _ in range(MAX_ROUNDS):
        pairs, faces = _face_neighbours(tets[kept])
        loose = _minor_groups(tets[kept], volume_m3[kept], pairs, faces)
        if not loose.any():
            break
        kept = kept[~loose]
    pairs, _ = _face_neighbours(tets[kept])
    piece = _components(len(kept), pairs)
    largest = np.argmax(np.bincount(piece, weights=volume_m3[kept]))
    keep = np.zeros(len(tets), bool)
    keep[kept[piece == largest]] = True
    return keep


def _face_neighbours(tets: NDArray[np.int32]) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
    """Pairs of tets that share a face, shape [pair_count, 2], and that face's nodes, shape [pair_count, 3]."""
    faces = np.sort(tets[:, OPPOSITE_FACES].reshape(-1, 3), axis=1)
    order = np.lexsort(faces.T[::-1])
    same = np.flatnonzero(np.all(faces[order[1:]] == faces[order[:-1]], axis=1))
    return np.column_stack([order[same], order[same + 1]]) // 4, faces[order[same]]


def _minor_groups(
    tets: NDArray[np.int32],
    volume_m3: NDArray[np.float64],
    pairs: NDArray[np.intp],
    faces: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Tets in all but the largest group around some edge or node, shape [tet_count]."""
    count = len(tets)
    size = int(tets.max()) + 1
    node_keys = tets.astype(np.int64)
    edge_keys = _edge_keys(tets[:, EDGES], size)
    loose = np.zeros(count, bool)
    face_edges = _edge_keys(faces[:, [[0, 1], [0, 2], [1, 2]]], size)
    for own, shared in ((node_keys, faces.astype(np.int64)), (edge_keys, face_edges)):
        # One graph node for each node (or edge) of each tet; a shared face joins its three between two tets.
        joined = []
        for k in range(3):
            sides = [
                pairs[:, s] * own.shape[1] + np.argmax(own[pairs[:, s]] == shared[:, k, None], axis=1)
                for s in (0, 1)
            ]
            joined.append(np.column_stack(sides))
        group = _components(own.size, np.concatenate(joined))
        weight = np.bincount(group, weights=np.repeat(volume_m3, own.shape[1]))
        key_of_group = np.empty(len(weight), np.int64)
        key_of_group[group] = own.reshape(-1)
        order = np.lexsort([-weight, key_of_group])
        minor = np.zeros(len(weight), bool)
        minor[order[1:]] = key_of_group[order[1:]] == key_of_group[order[:-1]]
        loose |= minor[group].reshape(own.shape).any(axis=1)
    return loose


def _edge_keys(ends: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    ordered = np.sort(ends, axis=-1).astype(np.int64)
    return ordered[..., 0] * size + ordered[..., 1]


def _components(count: int, links: NDArray[np.intp]) -> NDArray[np.int32]:
    graph = coo_matrix((np.ones(len(links), bool), (links[:, 0], links[:, 1])), (count, count))
    return connected_components(graph, directed=False)[1]
