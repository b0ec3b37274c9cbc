"""Cut a tet mesh by a plane."""

import numpy as np

from disect_sim.cut_mesh import CutMesh
from disect_sim.errors import InputError
from disect_sim.virtual_nodes.checks import check_both_sides_hit, check_snap_tolerance, check_tet_mesh
from disect_sim.virtual_nodes.snapping import crossed_edges, tet_edges, vertex_sides
from disect_sim.virtual_nodes.split import split_mesh

SNAP_TOLERANCE_FRACTION = 0.01
"""Default distance of crossings from the ends of their edge, as a fraction of the edge [-]."""


def cut_by_plane(
    nodes: np.ndarray,
    tets: np.ndarray,
    *,
    point: np.ndarray | tuple[float, float, float] = (0.0, 0.0, 0.0),
    normal: np.ndarray | tuple[float, float, float] = (1.0, 0.0, 0.0),
    snap_tolerance_fraction: float = SNAP_TOLERANCE_FRACTION,
) -> CutMesh:
    """Cut a tet mesh into two bodies by the plane through a point, side +1 being where the normal points.

    Args:
        nodes: Vertex positions [m], shape [n, 3].
        tets: Vertex indices, positively oriented, shape [m, 4].
        point: A point of the plane [m], shape [3].
        normal: Normal of the plane, of any length [-], shape [3].
        snap_tolerance_fraction: How near to its end an edge may be crossed, as a fraction of the edge [-].

    Raises:
        InputError: The mesh is no tet mesh, the plane misses it or does not leave one piece on each side.
    """
    nodes, tets = np.asarray(nodes, np.float64), np.asarray(tets, np.int64)
    origin, direction = np.asarray(point, np.float64), np.asarray(normal, np.float64)
    check_tet_mesh(nodes, tets)
    check_snap_tolerance(snap_tolerance_fraction)
    length = np.linalg.norm(direction)
    if not (np.isfinite(origin).all() and np.isfinite(length) and length > 0.0):
        raise InputError(
            f"precut: the plane has point {origin.tolist()} and normal {direction.tolist()}. Both must be "
            "numbers and the normal must not be zero. Set precut.plane_point_m and precut.plane_normal, for "
            "example to [0, 0, 0] and [1, 0, 0]."
        )
    unit_normal = direction / length
    distance = (nodes - origin) @ unit_normal

    edges = tet_edges(tets)
    side = vertex_sides(nodes, edges, distance, snap_tolerance_fraction=snap_tolerance_fraction)
    used = np.unique(tets)
    check_both_sides_hit(side[used], distance[used])
    crossed = crossed_edges(edges, side)
    height = np.abs(distance[crossed])
    return split_mesh(
        nodes,
        tets,
        side=side,
        crossed=crossed,
        coordinate=_share_of_first(height),
        axes=surface_axes(unit_normal),
        snap_tolerance_fraction=snap_tolerance_fraction,
    )


def _share_of_first(height: np.ndarray) -> np.ndarray:
    """First column over the sum of both, shape [c]; one half where both ends are in the plane."""
    total = height.sum(axis=1)
    return np.divide(height[:, 0], total, out=np.full(len(height), 0.5), where=total > 0.0)


def surface_axes(normal: np.ndarray) -> np.ndarray:
    """Two unit vectors in the plane of a unit normal, (z, y) for the normal x, shape [2, 3].

    The second is the upward direction y as seen in the plane (or, for a level plane, minus x), the first
    completes the right-handed triple (normal, second, first).
    """
    up = np.array([0.0, 1.0, 0.0])
    if abs(normal @ up) > 0.99:
        up = np.array([-1.0, 0.0, 0.0])
    second = up - (up @ normal) * normal
    second /= np.linalg.norm(second)
    return np.stack([np.cross(normal, second), second])
