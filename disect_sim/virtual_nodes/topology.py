"""Edges, faces and connectivity of tetrahedral and triangle meshes, vectorised."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

LOCAL_EDGES = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
"""The six edges of a tet, shape [6, 2]."""
LOCAL_FACES = np.array([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]])
"""The four faces of a positively oriented tet, outward, face i opposite to vertex i, shape [4, 3]."""


@dataclass(frozen=True)
class FacePairs:
    """Matching of the faces of a tet mesh. A face is numbered 4 * tet + local face."""

    inner: np.ndarray
    """Pairs of faces that coincide, shape [p, 2], int64."""
    outer: np.ndarray
    """Faces that belong to one tet only, shape [b], int64."""
    crowded: int
    """Number of faces shared by more than two tets; 0 in a valid mesh."""


def _face_vertices(tets: np.ndarray) -> np.ndarray:
    """Return all faces of the tets (shape [m, 4]), outward, in face order, shape [4 m, 3]."""
    return tets[:, LOCAL_FACES].reshape(-1, 3)


def pair_faces(tets: np.ndarray) -> FacePairs:
    """Match the faces of the tets, shape [m, 4]."""
    faces = np.sort(_face_vertices(tets), axis=1)
    order = np.lexsort((faces[:, 2], faces[:, 1], faces[:, 0]))
    same = (faces[order[1:]] == faces[order[:-1]]).all(axis=1)
    with_next, with_previous = np.append(same, False), np.insert(same, 0, False)
    first = with_next & ~with_previous
    return FacePairs(
        inner=np.stack([order[first], order[np.flatnonzero(first) + 1]], axis=1),
        outer=np.sort(order[~with_next & ~with_previous]),
        crowded=int((with_next & with_previous).sum()),
    )


def outer_faces(tets: np.ndarray, pairs: FacePairs | None = None) -> np.ndarray:
    """Return the faces (vertex indices, outward, shape [b, 3]) on the outer surface of the tets, shape [m, 4]."""
    return _face_vertices(tets)[(pairs or pair_faces(tets)).outer]


def component_labels(count: int, pairs: np.ndarray) -> tuple[int, np.ndarray]:
    """Return the number of connected components of `count` items joined by pairs (shape [p, 2]), and labels [count]."""
    graph = coo_matrix((np.ones(len(pairs), np.int8), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    number, labels = connected_components(graph, directed=False)
    return int(number), labels


def pinched_edges(faces: np.ndarray) -> np.ndarray:
    """Return the edges (shape [k, 2]) of a triangle mesh (shape [f, 3]) not used exactly once in each direction."""
    directed = faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
    ends = np.sort(directed, axis=1)
    edges, inverse = np.unique(ends, axis=0, return_inverse=True)
    forward = np.bincount(inverse.ravel(), directed[:, 0] == ends[:, 0], minlength=len(edges))
    uses = np.bincount(inverse.ravel(), minlength=len(edges))
    return edges[(uses != 2) | (forward != 1)]


def pinched_vertices(faces: np.ndarray) -> np.ndarray:
    """Return the vertices where triangles (shape [f, 3]) of an edge-manifold mesh form more than one fan, shape [k]."""
    start, end = faces.ravel(), np.roll(faces, -1, axis=1).ravel()
    corner = np.arange(faces.size)
    next_corner = np.roll(corner.reshape(-1, 3), -1, axis=1).ravel()
    # Half edge (start, end) and its twin (end, start): the corners at both ends belong to the same fans.
    half = np.lexsort((end, start))
    twin = np.lexsort((start, end))
    pairs = np.concatenate(
        [
            np.stack([corner[half], next_corner[twin]], axis=1),
            np.stack([next_corner[half], corner[twin]], axis=1),
        ]
    )
    number, fan = component_labels(faces.size, pairs)
    vertex_of_fan = np.empty(number, np.int64)
    vertex_of_fan[fan] = start
    vertex, fans = np.unique(vertex_of_fan, return_counts=True)
    return vertex[fans > 1]
