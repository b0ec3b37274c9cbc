"""Cut a tet mesh by a plane or by a triangle surface that passes right through it."""

import numpy as np

from disect_sim.cut_mesh import CutMesh
from disect_sim.outcome import InputError
from disect_sim.virtual_nodes.signed_distance import CuttingSurface
from disect_sim.virtual_nodes.split import (
    check_both_sides_hit,
    check_snap_tolerance,
    check_tet_mesh,
    crossed_edges,
    longest_edges,
    split_mesh,
    tet_edges,
    vertex_sides,
)
from disect_sim.virtual_nodes.topology import component_labels

# Cut by a plane


_SNAP_TOLERANCE_FRACTION = 0.01
"""Default minimum distance of crossings from the ends of their edge, as a fraction of the edge [-]."""


def cut_by_plane(
    nodes: np.ndarray,
    tets: np.ndarray,
    *,
    point: np.ndarray | tuple[float, float, float] = (0.0, 0.0, 0.0),
    normal: np.ndarray | tuple[float, float, float] = (1.0, 0.0, 0.0),
    snap_tolerance_fraction: float = _SNAP_TOLERANCE_FRACTION,
) -> CutMesh:
    """Cut a tet mesh into two bodies by the plane through a point, side +1 being where the normal points.

    Args:
        nodes: Vertex positions [m], shape [n, 3].
        tets: Vertex indices, positively oriented, shape [m, 4].
        point: A point of the plane [m], shape [3].
        normal: Normal of the plane, of any length [-], shape [3].
        snap_tolerance_fraction: Minimum distance of a crossing from its edge's ends, in edge lengths [-].

    Raises:
        InputError: The mesh is malformed, or the plane misses it or does not leave one piece on each side.
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
        axes=_surface_axes(unit_normal),
        snap_tolerance_fraction=snap_tolerance_fraction,
    )


def _share_of_first(height: np.ndarray) -> np.ndarray:
    """Return the first column divided by the sum of both, shape [c]; one half where both ends are in the plane."""
    total = height.sum(axis=1)
    return np.divide(height[:, 0], total, out=np.full(len(height), 0.5), where=total > 0.0)


def _surface_axes(normal: np.ndarray) -> np.ndarray:
    """Return two unit vectors in the plane of a unit normal, (z, y) for the normal x, shape [2, 3].

    The second is the upward direction y projected onto the plane (or, for a horizontal plane, minus x), the first
    completes the right-handed triple (normal, second, first).
    """
    up = np.array([0.0, 1.0, 0.0])
    if abs(normal @ up) > 0.99:
        up = np.array([-1.0, 0.0, 0.0])
    second = up - (up @ normal) * normal
    second /= np.linalg.norm(second)
    return np.stack([np.cross(normal, second), second])


_REACH = 1.5
"""Multiple of a vertex's longest edge up to which distances are computed [-].

Farther away none of its edges is crossed; the additional half covers all neighbours of a near vertex.
"""
_SAMPLES_PER_EDGE = 7
"""Number of inner points of an edge at which the side is evaluated to detect a second crossing [-]."""
_MAX_FOLD_FRACTION = 0.1
"""Depth to which the surface may bulge through an edge and back undetected, as a fraction of the edge [-].

Every curved surface grazes some edges; cutting them straight is within the error of the mesh.
"""
_ROOT_TOLERANCE = 1e-10
"""Distance to the surface at which a crossing is accepted, as a fraction of its edge [-]."""
_ROOT_STEPS = 60
"""Maximum number of steps of the root search: enough for plain bisection to reach the tolerance with margin."""


def cut_by_surface(
    nodes: np.ndarray,
    tets: np.ndarray,
    *,
    surface_vertices: np.ndarray,
    surface_faces: np.ndarray,
    snap_tolerance_fraction: float = _SNAP_TOLERANCE_FRACTION,
) -> CutMesh:
    """Cut a tet mesh into two bodies by a triangle surface, side +1 being where its normals point.

    The surface may be curved and tilted, open or closed, but must divide the body in two. A tet edge is cut once: folds
    shallower than a tenth or narrower than an eighth of the edge are cut straight, deeper ones are rejected.

    Args:
        nodes: Vertex positions [m], shape [n, 3].
        tets: Vertex indices, positively oriented, shape [m, 4].
        surface_vertices: Vertex positions of the surface [m], shape [v, 3].
        surface_faces: Vertex indices of its triangles, consistently oriented, shape [f, 3].
        snap_tolerance_fraction: Minimum distance of a crossing from the ends of its edge, as a fraction of the edge
        [-].

    Raises:
        InputError: The mesh or surface is malformed, or the surface misses the body, ends inside it, crosses
            an edge more than once, or does not leave one piece on each side.
    """
    nodes, tets = np.asarray(nodes, np.float64), np.asarray(tets, np.int64)
    check_tet_mesh(nodes, tets)
    check_snap_tolerance(snap_tolerance_fraction)
    surface = CuttingSurface(surface_vertices, surface_faces)

    edges = tet_edges(tets)
    distance = surface.signed_distance(nodes, _REACH * longest_edges(nodes, edges))
    far = np.isinf(distance)
    if far.all():
        distance = surface.signed_distance(nodes)
    guess = vertex_sides(nodes, edges, distance, snap_tolerance_fraction=snap_tolerance_fraction)
    candidates = crossed_edges(edges[~far[edges].any(axis=1)], guess)
    crossed, coordinate = _true_crossings(surface, nodes, candidates, distance)
    side = _sides_by_flood(edges, crossed, np.where(far, 0, guess))
    used = np.unique(tets)
    check_both_sides_hit(side[used], distance[used])
    _check_crossed_once(surface, nodes, edges, side, distance, snap_tolerance_fraction)

    return split_mesh(
        nodes,
        tets,
        side=side,
        crossed=crossed,
        coordinate=coordinate,
        axes=_surface_axes(_mean_normal(nodes, crossed, coordinate)),
        snap_tolerance_fraction=snap_tolerance_fraction,
    )


def _true_crossings(
    surface: CuttingSurface, nodes: np.ndarray, crossed: np.ndarray, distance: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the candidate edges (end on +1, end on -1; shape [c, 2]) the surface meets, and the coordinates, shape
    [c].

    Between its ends the signed distance has a root, or a jump where the surface has ended and the sign is that of its
    continuation. The root is bracketed and found by false position with the Illinois safeguard.
    """
    start, end = nodes[crossed[:, 0]], nodes[crossed[:, 1]]
    tolerance = _ROOT_TOLERANCE * np.linalg.norm(end - start, axis=1)
    low, high = np.zeros(len(crossed)), np.ones(len(crossed))
    # An end assigned to the other side because it is near counts as lying in the surface.
    f_low, f_high = np.maximum(distance[crossed[:, 0]], 0.0), np.minimum(distance[crossed[:, 1]], 0.0)
    root = np.where(f_low <= tolerance, low, high)
    active = np.flatnonzero((f_low > tolerance) & (f_high < -tolerance))
    is_root = np.ones(len(crossed), bool)
    is_root[active] = False
    last = np.zeros(len(crossed))
    for _ in range(_ROOT_STEPS):
        if not len(active):
            break
        a, b, fa, fb = low[active], high[active], f_low[active], f_high[active]
        t = a + (b - a) * fa / (fa - fb)
        f = surface.signed_distance((1.0 - t)[:, None] * start[active] + t[:, None] * end[active])
        root[active] = t
        converged = np.abs(f) <= tolerance[active]
        is_root[active[converged]] = True
        above = f > 0.0
        low[active], high[active] = np.where(above, t, a), np.where(above, b, t)
        repeated = np.where(above, 1.0, -1.0) == last[active]
        f_low[active] = np.where(above, f, np.where(repeated, 0.5 * fa, fa))
        f_high[active] = np.where(above, np.where(repeated, 0.5 * fb, fb), f)
        last[active] = np.where(above, 1.0, -1.0)
        active = active[~converged]
    return crossed[is_root], root[is_root]


def _sides_by_flood(edges: np.ndarray, crossed: np.ndarray, guess: np.ndarray) -> np.ndarray:
    """Return the side of each vertex, shape [n], constant on each part that no true crossing divides.

    A part without crossings follows the guess (+1, -1, or 0 for unknown, shape [n]).
    """
    stride = len(guess)
    walls = crossed.min(axis=1) * stride + crossed.max(axis=1)
    passable = edges[~np.isin(edges[:, 0] * stride + edges[:, 1], walls)]
    number, part = component_labels(len(guess), passable)
    positive, negative = (np.bincount(part[crossed[:, i]], minlength=number) for i in (0, 1))
    torn = (positive > 0) & (negative > 0)
    if torn.any():
        raise InputError(
            f"precut: the cutting surface ends inside the body and leaves it in one piece: {len(crossed)} "
            "edges are crossed, but material on both sides is still connected around its border. The "
            "surface must pass right through the body. Extend it beyond the body."
        )
    votes = np.bincount(part, guess, minlength=number)
    side_of_part = np.select([positive > 0, negative > 0], [1, -1], np.where(votes >= 0.0, 1, -1))
    return side_of_part[part].astype(np.int8)


def _check_crossed_once(
    surface: CuttingSurface,
    nodes: np.ndarray,
    edges: np.ndarray,
    side: np.ndarray,
    distance: np.ndarray,
    snap_tolerance_fraction: float,
) -> None:
    """Reject a surface that crosses an edge (shape [e, 2]) more than once, tested at its inner points."""
    length = np.linalg.norm(nodes[edges[:, 0]] - nodes[edges[:, 1]], axis=1)
    # A path from one end to the surface and on to the other is at least as long as both distances.
    reach = np.abs(distance[edges]).sum(axis=1) <= length
    edges, length = edges[reach], length[reach]
    t = np.linspace(0.0, 1.0, _SAMPLES_PER_EDGE + 2)
    start, end = nodes[edges[:, 0]], nodes[edges[:, 1]]
    samples = start[:, None] + t[1:-1, None] * (end - start)[:, None]
    inner = surface.signed_distance(samples.reshape(-1, 3)).reshape(-1, _SAMPLES_PER_EDGE)
    at_ends = side[edges] * np.abs(distance[edges])
    height = np.concatenate([at_ends[:, :1], inner, at_ends[:, 1:]], axis=1) / length[:, None]
    counts = np.abs(height) >= max(_MAX_FOLD_FRACTION, snap_tolerance_fraction)
    counts[:, [0, -1]] = True
    positive = np.concatenate([side[edges[:, :1]], np.sign(inner), side[edges[:, 1:]]], axis=1) > 0

    last_t, last_height, last_positive = np.zeros(len(edges)), height[:, 0], positive[:, 0]
    changes = np.zeros(len(edges), int)
    for i in range(1, _SAMPLES_PER_EDGE + 2):
        # Same argument on this stretch; otherwise the sign jumps beyond the surface's border.
        crosses = np.abs(last_height) + np.abs(height[:, i]) <= (t[i] - last_t) * (1.0 + 1e-9)
        changes += counts[:, i] & (positive[:, i] != last_positive) & crosses
        last_t = np.where(counts[:, i], t[i], last_t)
        last_height = np.where(counts[:, i], height[:, i], last_height)
        last_positive = np.where(counts[:, i], positive[:, i], last_positive)
    many = changes > 1
    if many.any():
        raise InputError(
            f"precut: the cutting surface crosses {many.sum()} tet edges more than once (up to "
            f"{changes.max()} times). An edge can be cut once. Refine the mesh near the surface "
            "(tetrahedralize.cut_edge_m) or smooth the surface."
        )


def _mean_normal(nodes: np.ndarray, crossed: np.ndarray, coordinate: np.ndarray) -> np.ndarray:
    """Return the unit normal of the plane that best fits the crossings, pointing to side +1, shape [3]."""
    start, end = nodes[crossed[:, 0]], nodes[crossed[:, 1]]
    points = start + coordinate[:, None] * (end - start)
    normal = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2][-1]
    return normal if normal @ (start - end).sum(axis=0) >= 0.0 else -normal
