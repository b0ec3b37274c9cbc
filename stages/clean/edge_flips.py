"""Swapping the diagonal of two neighbouring triangles where that makes both rounder (Delaunay criterion)."""

import numpy as np
from numpy.typing import NDArray

from stages.shared.surface.triangles import Surface, edge_ids, edge_keys

MAX_ROUNDS = 30
"""A round flips edges that do not share a face; a few rounds reach the point where nothing changes."""
MIN_GAIN_RAD = 1e-3
"""An edge is flipped if its opposite angles exceed 180 degrees by this much, so that ties do not flip for
ever."""
MIN_NORMAL_COSINE = 0.95
"""New faces must look the same way as the pair they replace, within 18 degrees: flips may not make a
ridge."""


def flip_edges(surface: Surface, *, locked_edges: NDArray[np.int32] | None = None) -> Surface:
    """Flip until every edge is Delaunay, is locked, or lies on a ridge.

    Args:
        surface: oriented surface with at most two faces per edge.
        locked_edges: edges that must stay, sorted vertex pairs, shape [edge_count, 2].
    """
    locked = edge_keys(locked_edges) if locked_edges is not None else np.empty(0, np.int64)
    faces = surface.faces.copy()
    for _ in range(MAX_ROUNDS):
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
    """Which of the half-edge pairs to flip now, and the corners (from, to, left, right) of each pair's
    quad."""
    face, corner = pairs // 3, pairs % 3
    a, b = faces[face[:, 0], corner[:, 0]], faces[face[:, 0], (corner[:, 0] + 1) % 3]
    left, right = faces[face[:, 0], (corner[:, 0] + 2) % 3], faces[face[:, 1], (corner[:, 1] + 2) % 3]
    quads = np.column_stack([a, b, left, right])
    pa, pb, pl, pr = (vertices[index] for index in quads.T)
    gain = _angle(pa - pl, pb - pl) + _angle(pa - pr, pb - pr) - np.pi
    new_keys = edge_keys(np.sort(quads[:, 2:], axis=1))
    allowed = (gain > MIN_GAIN_RAD) & (left != right) & ~np.isin(new_keys, keys)
    old_normal = np.cross(pb - pa, pl - pa) + np.cross(pa - pb, pr - pb)
    for normal in (np.cross(pr - pa, pl - pa), np.cross(pb - pr, pl - pr)):
        cosine = np.einsum("ij,ij->i", normal, old_normal)
        lengths = np.linalg.norm(normal, axis=1) * np.linalg.norm(old_normal, axis=1)
        allowed &= cosine > MIN_NORMAL_COSINE * lengths
    gain = np.where(allowed, gain, -np.inf)
    # One flip per face and per new edge and round: the best of its face on both sides, the first of equal
    # new edges.
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
