"""Repairs of connectivity: duplicate, degenerate and non-manifold faces, orientation, welding and edge flips.

No vertex moves, except by welding.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from stages.shared.surface import (
    Surface,
    drop_unused,
    edge_ids,
    edge_keys,
    edge_lengths,
    face_areas,
    half_edges,
)

# Edge flips (Delaunay criterion)


_MAX_ROUNDS = 30
"""Maximum number of rounds, each of which flips edges that do not share a face; a few rounds converge."""
_MIN_GAIN_RAD = 1e-3
"""An edge is flipped if its opposite angles exceed 180 degrees by this much, so that ties do not flip forever."""
_MIN_NORMAL_COSINE = 0.95
"""Minimum cosine between new faces and the pair they replace (18 degrees), so that flips create no ridge."""


def flip_edges(surface: Surface, *, locked_edges: NDArray[np.int32] | None = None) -> Surface:
    """Flip until every edge is Delaunay, is locked, or lies on a ridge.

    Args:
        surface: oriented surface with at most two faces per edge.
        locked_edges: edges that must stay, sorted vertex pairs, shape [edge_count, 2].
    """
    locked = edge_keys(locked_edges) if locked_edges is not None else np.empty(0, np.int64)
    faces = surface.faces.copy()
    for _ in range(_MAX_ROUNDS):
        edges, edge_of, count = edge_ids(faces)
        keys = edge_keys(edges)
        inner = np.flatnonzero((count == 2) & ~np.isin(keys, locked))
        order = np.argsort(edge_of, kind="stable")
        pairs = order[np.searchsorted(edge_of[order], inner)[:, None] + [0, 1]]
        flip, quads = _worth_flipping(surface.vertices, faces, pairs, keys)
        if not flip.any():
            break
        a, b, left, right = quads[flip].T
        face = pairs[flip] // 3
        faces[face[:, 0]] = np.column_stack([a, right, left])
        faces[face[:, 1]] = np.column_stack([right, b, left])
    return Surface(surface.vertices, faces)


def _worth_flipping(
    vertices: NDArray[np.float64],
    faces: NDArray[np.int32],
    pairs: NDArray[np.intp],
    keys: NDArray[np.int64],
) -> tuple[NDArray[np.bool_], NDArray[np.int32]]:
    """Return which of the half-edge pairs to flip now, and the corners (from, to, left, right) of each pair's quad."""
    face, corner = pairs // 3, pairs % 3
    a, b = faces[face[:, 0], corner[:, 0]], faces[face[:, 0], (corner[:, 0] + 1) % 3]
    left, right = faces[face[:, 0], (corner[:, 0] + 2) % 3], faces[face[:, 1], (corner[:, 1] + 2) % 3]
    quads = np.column_stack([a, b, left, right])
    pa, pb, pl, pr = (vertices[index] for index in quads.T)
    gain = _angle(pa - pl, pb - pl) + _angle(pa - pr, pb - pr) - np.pi
    new_keys = edge_keys(np.sort(quads[:, 2:], axis=1))
    allowed = (gain > _MIN_GAIN_RAD) & (left != right) & ~np.isin(new_keys, keys)
    old_normal = np.cross(pb - pa, pl - pa) + np.cross(pa - pb, pr - pb)
    for normal in (np.cross(pr - pa, pl - pa), np.cross(pb - pr, pl - pr)):
        cosine = np.einsum("ij,ij->i", normal, old_normal)
        lengths = np.linalg.norm(normal, axis=1) * np.linalg.norm(old_normal, axis=1)
        allowed &= cosine > _MIN_NORMAL_COSINE * lengths
    gain = np.where(allowed, gain, -np.inf)
    # One flip per face, new edge and round: the best of its face on both sides, the first of equal new edges.
    best = np.full(len(faces), -np.inf)
    np.maximum.at(best, face[:, 0], gain)
    np.maximum.at(best, face[:, 1], gain)
    chosen = np.flatnonzero(allowed & (gain == best[face[:, 0]]) & (gain == best[face[:, 1]]))
    chosen = chosen[np.unique(new_keys[chosen], return_index=True)[1]]
    used = np.concatenate([face[chosen, 0], face[chosen, 1]])
    ties = np.bincount(used, minlength=len(faces)) > 1
    chosen = chosen[~ties[face[chosen, 0]] & ~ties[face[chosen, 1]]]
    flip = np.zeros(len(pairs), bool)
    flip[chosen] = True
    return flip, quads


def _angle(u: NDArray[np.float64], v: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.arctan2(np.linalg.norm(np.cross(u, v), axis=1), np.einsum("ij,ij->i", u, v))


_DEGENERATE_AREA_FRACTION = 1e-14
"""Area as a fraction of the squared diagonal below which a face has no usable normal in float64."""

_CRACK_FRACTION, _CRACK_EDGE_FRACTION = 1e-3, 0.25
"""Widest crack closed by welding, as fractions of the diagonal and of the median edge."""


def merge_identical_vertices(surface: Surface) -> Surface:
    """Merge vertices at exactly the same position (as written by STL and at texture seams)."""
    order, is_first = _sorted_rows(surface.vertices)
    label = np.empty(len(order), np.int32)
    label[order] = np.cumsum(is_first) - 1
    return Surface(surface.vertices[order[is_first]], label[surface.faces])


def _sorted_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a stable order of the rows of an [n, 3] array, and which ordered rows differ from the previous one."""
    order = np.lexsort(rows.T[::-1])
    is_first = np.ones(len(rows), bool)
    is_first[1:] = np.any(rows[order[1:]] != rows[order[:-1]], axis=1)
    return order, is_first


def crack_width(surface: Surface) -> float:
    """Return the width [m] up to which gaps are cracks: small relative to size and edges, so that no face collapses."""
    edges = edge_lengths(surface)
    return min(_CRACK_FRACTION * surface.diagonal_m, _CRACK_EDGE_FRACTION * float(np.median(edges)))


def weld_close_vertices(surface: Surface, tolerance_m: float) -> Surface:
    """Merge every cluster of vertices within tolerance of each other into one vertex at the mean position."""
    pairs = cKDTree(surface.vertices).query_pairs(tolerance_m, output_type="ndarray")
    count = len(surface.vertices)
    graph = coo_matrix((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), (count, count))
    clusters, label = connected_components(graph, directed=False)
    sums = np.zeros((clusters, 3))
    np.add.at(sums, label, surface.vertices)
    means = sums / np.bincount(label, minlength=clusters)[:, None]
    return Surface(means, label[surface.faces].astype(np.int32))


def drop_degenerate_faces(surface: Surface) -> Surface:
    """Remove faces that use a vertex twice or have no area."""
    f = surface.faces
    distinct = (f[:, 0] != f[:, 1]) & (f[:, 1] != f[:, 2]) & (f[:, 2] != f[:, 0])
    if not len(f):
        return surface
    has_area = face_areas(surface) > _DEGENERATE_AREA_FRACTION * surface.diagonal_m**2
    # A needle with distinct vertices is kept if removing it would open the surface: its edges still connect.
    edge_of, count = edge_ids(f)[1:]
    closing = np.all(count[edge_of].reshape(-1, 3) == 2, axis=1)
    return drop_unused(Surface(surface.vertices, f[distinct & (has_area | closing)]))


def drop_duplicate_faces(surface: Surface) -> Surface:
    """Remove faces that use the same three vertices as an earlier one, in any order."""
    order, is_first = _sorted_rows(np.sort(surface.faces, axis=1))
    return Surface(surface.vertices, surface.faces[np.sort(order[is_first])])


def count_non_manifold_edges(surface: Surface) -> int:
    """Count the edges with three or more faces."""
    return int(np.count_nonzero(edge_ids(surface.faces)[2] > 2))


def count_open_edges(surface: Surface) -> int:
    """Count the edges that are not shared by exactly two faces."""
    return int(np.count_nonzero(edge_ids(surface.faces)[2] != 2))


def separate_non_manifold(surface: Surface) -> Surface:
    """Copy vertices until every vertex has one fan of faces and every edge at most two.

    Faces stay connected around a vertex only across edges with exactly two faces, so sheets that merely touch along an
    edge or at a point are separated.
    """
    faces = surface.faces
    edge_of, count = edge_ids(faces)[1:]
    order = np.argsort(edge_of, kind="stable")
    order = order[count[edge_of[order]] == 2].reshape(-1, 2)
    corner_vertex = faces.reshape(-1)
    # Half edge k of a face runs from its corner k to its corner k + 1; corners are numbered 3 * face + k.
    tail = order
    head = 3 * (order // 3) + (order + 1) % 3
    same = corner_vertex[tail[:, 0]] == corner_vertex[tail[:, 1]]
    links = np.concatenate(
        [
            np.column_stack([tail[:, 0], np.where(same, tail[:, 1], head[:, 1])]),
            np.column_stack([head[:, 0], np.where(same, head[:, 1], tail[:, 1])]),
        ]
    )
    corners = len(corner_vertex)
    graph = coo_matrix((np.ones(len(links), bool), (links[:, 0], links[:, 1])), (corners, corners))
    label = connected_components(graph, directed=False)[1]
    _, first = np.unique(label, return_index=True)
    return Surface(surface.vertices[corner_vertex[first]], label.reshape(-1, 3).astype(np.int32))


def orient_consistently(surface: Surface) -> Surface | None:
    """Orient neighbouring faces consistently and the whole outward; return None for a one-sided surface.

    Each face is two nodes of a graph, as is and flipped; neighbours that agree link equal nodes, others opposite ones.
    """
    faces, n = surface.faces, len(surface.faces)
    edge_of, count = edge_ids(faces)[1:]
    order = np.argsort(edge_of, kind="stable")
    pairs = order[count[edge_of[order]] == 2].reshape(-1, 2)
    directed = half_edges(faces)
    agree = directed[pairs[:, 0], 0] == directed[pairs[:, 1], 1]
    a, b = pairs[:, 0] // 3, pairs[:, 1] // 3
    rows = np.concatenate([a, a + n])
    columns = np.concatenate([np.where(agree, b, b + n), np.where(agree, b + n, b)])
    graph = coo_matrix((np.ones(len(rows), bool), (rows, columns)), (2 * n, 2 * n))
    label = connected_components(graph, directed=False)[1]
    as_is, turned = label[:n], label[n:]
    if np.any(as_is == turned):
        return None
    # Of the two solutions per component take the one that keeps more faces, then check the volume.
    keeps = np.bincount(as_is, minlength=label.max() + 1)
    flip = keeps[turned] > keeps[as_is]
    tie = (keeps[turned] == keeps[as_is]) & (turned < as_is)
    oriented = Surface(surface.vertices, _flipped(faces, flip | tie))
    return _turn_outward(oriented)


def _turn_outward(surface: Surface) -> Surface:
    """Flip all faces if the enclosed volume is negative."""
    if surface.volume_m3 < 0.0:
        return Surface(surface.vertices, _flipped(surface.faces, np.ones(len(surface.faces), bool)))
    return surface


def _flipped(faces: np.ndarray, flip: np.ndarray) -> np.ndarray:
    return np.where(flip[:, None], faces[:, ::-1], faces).astype(np.int32)
