"""Quality of tetrahedra, and removal of tets that only touch the body."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

_EDGES = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
_OPPOSITE_FACES = np.array([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]])
"""Face opposite to each corner, counter-clockwise seen from outside a positively oriented tet."""


@dataclass(frozen=True)
class TetQuality:
    """Quality measures, each of shape [tet_count]."""

    volume_m3: NDArray[np.float64]
    """Signed volume [m³]; positive for a positively oriented tet."""
    radius_ratio: NDArray[np.float64]
    """3 × inscribed / circumscribed radius [-]; 1 for a regular tet, 0 for a flat one."""
    min_altitude_m: NDArray[np.float64]
    """Smallest altitude [m]."""
    min_edge_m: NDArray[np.float64]
    """Shortest edge [m]."""
    max_edge_m: NDArray[np.float64]
    """Longest edge [m]."""


def tet_quality(nodes: NDArray[np.float64], tets: NDArray[np.int32]) -> TetQuality:
    """Measure all tets; nodes [m] of shape [node_count, 3], tets of shape [tet_count, 4]."""
    corners = nodes[tets]
    a, b, c = np.moveaxis(corners[:, 1:] - corners[:, :1], 1, 0)
    volume = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6.0
    faces = corners[:, _OPPOSITE_FACES]
    areas = 0.5 * np.linalg.norm(
        np.cross(faces[:, :, 1] - faces[:, :, 0], faces[:, :, 2] - faces[:, :, 0]), axis=2
    )
    edges = np.linalg.norm(corners[:, _EDGES[:, 0]] - corners[:, _EDGES[:, 1]], axis=2)
    # Circumradius from the products of opposite edges, p: 6 V R is the area of the triangle with sides p.
    p = edges[:, [0, 1, 2]] * edges[:, [5, 4, 3]]
    squared = (p.sum(axis=1)) * (p @ [-1, 1, 1]) * (p @ [1, -1, 1]) * (p @ [1, 1, -1])
    positive = np.maximum(np.abs(volume), 1e-300)
    circumradius = np.sqrt(np.maximum(squared, 1e-300)) / (24.0 * positive)
    inradius = 3.0 * np.abs(volume) / areas.sum(axis=1)
    return TetQuality(
        volume_m3=volume,
        radius_ratio=3.0 * inradius / circumradius,
        min_altitude_m=3.0 * np.abs(volume) / areas.max(axis=1),
        min_edge_m=edges.min(axis=1),
        max_edge_m=edges.max(axis=1),
    )


def unique_edges(tets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the undirected edges of a tet mesh, shape [edge_count, 2]."""
    return np.unique(np.sort(tets[:, _EDGES].reshape(-1, 2), axis=1), axis=0)


def boundary_faces(tets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the faces that belong to one tet only, counter-clockwise seen from outside, shape [face_count, 3]."""
    return boundary_faces_and_owners(tets)[0]


def boundary_faces_and_owners(tets: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """Return the boundary faces, shape [face_count, 3], and the tet each belongs to, shape [face_count]."""
    faces = tets[:, _OPPOSITE_FACES].reshape(-1, 3)
    _, inverse, count = np.unique(np.sort(faces, axis=1), axis=0, return_inverse=True, return_counts=True)
    single = count[inverse.reshape(-1)] == 1
    return faces[single], np.flatnonzero(single) // 4


def count_pieces(tets: NDArray[np.int32]) -> int:
    """Return the number of bodies that share no face; tets that only touch at an edge or a node count as separate."""
    faces = np.sort(tets[:, _OPPOSITE_FACES].reshape(-1, 3), axis=1)
    inverse, count = np.unique(faces, axis=0, return_inverse=True, return_counts=True)[1:]
    inverse = inverse.reshape(-1)
    order = np.argsort(inverse, kind="stable")
    pairs = order[count[inverse[order]] == 2].reshape(-1, 2) // 4
    graph = coo_matrix((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), (len(tets), len(tets)))
    return int(connected_components(graph, directed=False)[0])


# Removing tets by which a mesh touches itself only at an edge or a node
#
# Thin spikes of a scan produce them. The simulator needs a manifold boundary, so of the groups of tets that meet at
# such
# an edge or node without sharing a face there, all but the largest are dropped.


_MAX_ROUNDS = 20
"""Maximum number of rounds: dropping tets may uncover another touching edge.

A few rounds suffice unless the mesh is a sponge.
"""


def drop_touching(tets: NDArray[np.int32], volume_m3: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Select the tets to keep so that the rest is one piece with a manifold boundary.

    Args:
        tets: node indices, shape [tet_count, 4].
        volume_m3: volume of each tet [m³], shape [tet_count].

    Returns:
        Flags of shape [tet_count].
    """
    kept = np.arange(len(tets))
    for _ in range(_MAX_ROUNDS):
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
    """Return pairs of tets that share a face, shape [pair_count, 2], and that face's nodes, shape [pair_count, 3]."""
    faces = np.sort(tets[:, _OPPOSITE_FACES].reshape(-1, 3), axis=1)
    order = np.lexsort(faces.T[::-1])
    same = np.flatnonzero(np.all(faces[order[1:]] == faces[order[:-1]], axis=1))
    return np.column_stack([order[same], order[same + 1]]) // 4, faces[order[same]]


def _minor_groups(
    tets: NDArray[np.int32],
    volume_m3: NDArray[np.float64],
    pairs: NDArray[np.intp],
    faces: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Return the tets in all but the largest group around some edge or node, shape [tet_count]."""
    count = len(tets)
    size = int(tets.max()) + 1
    node_keys = tets.astype(np.int64)
    edge_keys = _edge_keys(tets[:, _EDGES], size)
    loose = np.zeros(count, bool)
    face_edges = _edge_keys(faces[:, [[0, 1], [0, 2], [1, 2]]], size)
    for element_keys, shared in ((node_keys, faces.astype(np.int64)), (edge_keys, face_edges)):
        # One graph node for each node (or edge) of each tet; a shared face joins its three between two tets.
        joined = []
        for k in range(3):
            sides = [
                pairs[:, s] * element_keys.shape[1]
                + np.argmax(element_keys[pairs[:, s]] == shared[:, k, None], axis=1)
                for s in (0, 1)
            ]
            joined.append(np.column_stack(sides))
        group = _components(element_keys.size, np.concatenate(joined))
        weight = np.bincount(group, weights=np.repeat(volume_m3, element_keys.shape[1]))
        key_of_group = np.empty(len(weight), np.int64)
        key_of_group[group] = element_keys.reshape(-1)
        order = np.lexsort([-weight, key_of_group])
        minor = np.zeros(len(weight), bool)
        minor[order[1:]] = key_of_group[order[1:]] == key_of_group[order[:-1]]
        loose |= minor[group].reshape(element_keys.shape).any(axis=1)
    return loose


def _edge_keys(ends: NDArray[np.int32], size: int) -> NDArray[np.int64]:
    ordered = np.sort(ends, axis=-1).astype(np.int64)
    return ordered[..., 0] * size + ordered[..., 1]


def _components(count: int, links: NDArray[np.intp]) -> NDArray[np.int32]:
    graph = coo_matrix((np.ones(len(links), bool), (links[:, 0], links[:, 1])), (count, count))
    return connected_components(graph, directed=False)[1]
