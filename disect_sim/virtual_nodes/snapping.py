"""On which side each vertex is, and where the crossings are, kept away from vertices."""

import numpy as np

from disect_sim.virtual_nodes.topology import LOCAL_EDGES


def tet_edges(tets: np.ndarray) -> np.ndarray:
    """All edges of the tets (shape [m, 4]), each once, ends ascending, shape [e, 2]."""
    ends = np.sort(tets[:, LOCAL_EDGES].reshape(-1, 2), axis=1).astype(np.int64)
    stride = int(ends.max()) + 1
    key = np.unique(ends[:, 0] * stride + ends[:, 1])
    return np.stack(np.divmod(key, stride), axis=1)


def longest_edges(nodes: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Length of the longest edge (of edges, shape [e, 2]) at each vertex [m], shape [n]; 0 if it has none."""
    length = np.linalg.norm(nodes[edges[:, 0]] - nodes[edges[:, 1]], axis=1)
    longest = np.zeros(len(nodes))
    np.maximum.at(longest, edges.ravel(), np.repeat(length, 2))
    return longest


def vertex_sides(
    nodes: np.ndarray, edges: np.ndarray, distance: np.ndarray, *, snap_tolerance_fraction: float
) -> np.ndarray:
    """Side of each vertex, +1 or -1, shape [n], int8, from its signed distance to the surface [m], shape [n].

    A vertex nearer than the tolerance (a fraction of its mean edge length) is on the side of its neighbours
    that are not near, if these agree: so a face of the body that lies in the surface does not become a
    flake. If they do not agree it keeps the sign of its distance, and 0 counts as +1.
    """
    length = np.linalg.norm(nodes[edges[:, 0]] - nodes[edges[:, 1]], axis=1)
    ends, count = edges.ravel(), len(nodes)
    degree = np.bincount(ends, minlength=count)
    mean_length = np.bincount(ends, np.repeat(length, 2), minlength=count) / np.maximum(degree, 1)
    near = np.abs(distance) < snap_tolerance_fraction * mean_length

    sign = np.where(distance >= 0.0, 1, -1)
    vote = np.where(near, 0, sign)
    other_end = edges[:, ::-1].ravel()
    positive = np.bincount(ends, vote[other_end] > 0, minlength=count) > 0
    negative = np.bincount(ends, vote[other_end] < 0, minlength=count) > 0
    side = np.where(near & (positive != negative), np.where(positive, 1, -1), sign)
    return side.astype(np.int8)


def crossed_edges(edges: np.ndarray, side: np.ndarray) -> np.ndarray:
    """The edges whose ends are on different sides, as (end on +1, end on -1), shape [c, 2]."""
    ends = edges[side[edges[:, 0]] != side[edges[:, 1]]]
    return np.where(side[ends[:, :1]] > 0, ends, ends[:, ::-1])


def keep_off_ends(coordinate: np.ndarray, snap_tolerance_fraction: float) -> np.ndarray:
    """Move crossing coordinates [-], shape [c], that are within the tolerance of an end of their edge off it.

    Vertices stay where they are, so volume and outer area do not change; only the place where the edge is
    split does, by at most the tolerance. No piece of an edge, hence no material fraction, then becomes
    arbitrarily small.
    """
    return np.clip(coordinate, snap_tolerance_fraction, 1.0 - snap_tolerance_fraction)
