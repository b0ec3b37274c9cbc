"""Signed distance to an open or closed, oriented triangle surface."""

import numpy as np

from disect_sim.outcome import InputError

_LEAF_SIZE = 4
"""Triangles per leaf: a few more distances are cheaper than one more level of boxes."""
_CHUNK = 8192
"""Points searched together: bounds the memory of the search (about 100 MB), not the result."""

_ROUNDING = 1e-12
"""Margin for the rounding of distances, as a fraction of the largest coordinate [-]."""


class TriangleBvh:
    """Bounding volume hierarchy over triangles that finds the exact nearest triangle of many points at once."""

    def __init__(self, corners: np.ndarray) -> None:
        """Build over triangles with corners [m], shape [f, 3, 3]."""
        self._corners = corners
        self._rounding = _ROUNDING * np.abs(corners).max()
        self._depth = max(0, int(np.ceil(np.log2(len(corners) / _LEAF_SIZE))))
        centroid = corners.mean(axis=1)
        # Fill up the last leaf with repeats, then halve every group at the median of its longest extent.
        order = np.resize(np.arange(len(corners)), (1, _LEAF_SIZE << self._depth))
        for _ in range(self._depth):
            centres = centroid[order]
            axis = np.argmax(np.ptp(centres, axis=1), axis=1)
            along = np.take_along_axis(centres, axis[:, None, None], axis=2)[:, :, 0]
            order = np.take_along_axis(order, np.argsort(along, axis=1, kind="stable"), axis=1)
            order = order.reshape(2 * len(order), -1)
        self._leaves = order
        low, high = corners[order].min(axis=(1, 2)), corners[order].max(axis=(1, 2))
        self._boxes = [(low, high)]
        for _ in range(self._depth):
            low, high = np.minimum(low[::2], low[1::2]), np.maximum(high[::2], high[1::2])
            self._boxes.insert(0, (low, high))

    def nearest(self, points: np.ndarray, limit: np.ndarray | None = None) -> np.ndarray:
        """Return the index of the nearest triangle to each point [m], shape [p, 3]; result has shape [p].

        With a limit [m], shape [p], a point without a triangle within its limit gets -1.
        """
        limit = np.full(len(points), np.inf) if limit is None else limit
        starts = range(0, len(points), _CHUNK)
        parts = [self._nearest(points[i : i + _CHUNK], limit[i : i + _CHUNK]) for i in starts]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _nearest(self, points: np.ndarray, limit: np.ndarray) -> np.ndarray:
        node = np.zeros(len(points), np.int64)
        for level in range(1, self._depth + 1):
            left, right = 2 * node, 2 * node + 1
            go_left = self._box_distance2(level, left, points) <= self._box_distance2(level, right, points)
            node = np.where(go_left, left, right)
        reached = np.sqrt(self._leaf_distances2(points, node).min(axis=1))
        bound = np.minimum(reached + self._rounding, limit) ** 2

        point, node = np.arange(len(points)), np.zeros(len(points), np.int64)
        for level in range(1, self._depth + 1):
            point, node = np.repeat(point, 2), (2 * node[:, None] + (0, 1)).ravel()
            keep = self._box_distance2(level, node, points[point]) <= bound[point]
            point, node = point[keep], node[keep]
        distance2 = self._leaf_distances2(points[point], node)
        best = distance2.argmin(axis=1)
        triangle, distance2 = self._leaves[node, best], distance2[np.arange(len(node)), best]
        order = np.lexsort((triangle, distance2, point))
        order = order[distance2[order] <= bound[point[order]]]
        hit, first = np.unique(point[order], return_index=True)
        nearest = np.full(len(points), -1)
        nearest[hit] = triangle[order[first]]
        return nearest

    def _box_distance2(self, level: int, node: np.ndarray, points: np.ndarray) -> np.ndarray:
        low, high = self._boxes[level]
        outside = np.maximum(np.maximum(low[node] - points, points - high[node]), 0.0)
        return np.einsum("ij,ij->i", outside, outside)

    def _leaf_distances2(self, points: np.ndarray, node: np.ndarray) -> np.ndarray:
        corners = self._corners[self._leaves[node]].reshape(-1, 3, 3)
        closest, _ = _closest_on_triangles(np.repeat(points, _LEAF_SIZE, axis=0), corners)
        offset = closest - np.repeat(points, _LEAF_SIZE, axis=0)
        return np.einsum("ij,ij->i", offset, offset).reshape(-1, _LEAF_SIZE)


def _closest_on_triangles(points: np.ndarray, corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return closest points [m], shape [p, 3], on one triangle each (corners [m], shape [p, 3, 3]), and their feature.

    Features, shape [p]: 0 the inside; 1, 2, 3 the edge that starts at corner 0, 1, 2; 4, 5, 6 the corner 0,
    1, 2.
    """
    start, edge = corners, np.roll(corners, -1, axis=1) - corners
    normal = np.cross(edge[:, 0], edge[:, 1])
    offset = points[:, None] - start
    inside = (np.einsum("pij,pij->pi", np.cross(normal[:, None], edge), offset) > 0.0).all(axis=1)
    height = np.einsum("pi,pi->p", offset[:, 0], normal) / np.einsum("pi,pi->p", normal, normal)
    on_plane = points - height[:, None] * normal

    t = np.einsum("pij,pij->pi", offset, edge) / np.einsum("pij,pij->pi", edge, edge)
    t = np.clip(t, 0.0, 1.0)
    on_edges = start + t[:, :, None] * edge
    nearest = np.argmin(((points[:, None] - on_edges) ** 2).sum(axis=2), axis=1)
    row = np.arange(len(points))
    t_nearest = t[row, nearest]
    at_start, at_end = t_nearest <= 0.0, t_nearest >= 1.0
    edge_feature = np.select([at_start, at_end], [4 + nearest, 4 + (nearest + 1) % 3], 1 + nearest)
    closest = np.where(inside[:, None], on_plane, on_edges[row, nearest])
    return closest, np.where(inside, 0, edge_feature)


class CuttingSurface:
    """An oriented manifold triangle mesh; the positive side is where the triangle normals point.

    The sign comes from the pseudo-normal of the nearest feature (face, edge, or vertex with its faces weighted by their
    angle), which is right everywhere if the surface is closed (Bærentzen and Aanæs 2005). Beyond the border of an open
    surface it is the sign of the border face, which is no crossing: see `cutting.py`.
    """

    def __init__(self, vertices: np.ndarray, faces: np.ndarray) -> None:
        """Check and index a surface with vertices [m], shape [v, 3], and triangles, shape [f, 3]."""
        vertices, faces = np.asarray(vertices, np.float64), np.asarray(faces, np.int64)
        _check_surface_arrays(vertices, faces)
        self._corners = vertices[faces]
        edge = np.roll(self._corners, -1, axis=1) - self._corners
        face_normal = np.cross(edge[:, 0], edge[:, 1])
        double_area = np.linalg.norm(face_normal, axis=1)
        _check_no_slivers(double_area, edge)
        face_normal /= double_area[:, None]
        self._bvh = TriangleBvh(self._corners)
        # Normals by feature, in the numbering of _closest_on_triangles, shape [f, 7, 3].
        self._normals = np.concatenate(
            [
                face_normal[:, None],
                _edge_normals(faces, face_normal),
                _vertex_normals(faces, edge, face_normal),
            ],
            axis=1,
        )

    def signed_distance(self, points: np.ndarray, limit: np.ndarray | None = None) -> np.ndarray:
        """Return the signed distance to the surface [m], shape [p], of points [m], shape [p, 3].

        With a limit [m], shape [p], points farther than their limit get infinity, which shortens the search.
        """
        face = self._bvh.nearest(points, limit)
        near = face >= 0
        distance = np.full(len(points), np.inf)
        closest, feature = _closest_on_triangles(points[near], self._corners[face[near]])
        offset = points[near] - closest
        above = np.einsum("pi,pi->p", offset, self._normals[face[near], feature]) >= 0.0
        distance[near] = np.where(above, 1.0, -1.0) * np.linalg.norm(offset, axis=1)
        return distance


def _edge_normals(faces: np.ndarray, face_normal: np.ndarray) -> np.ndarray:
    """Return the sum of the normals of the faces at each edge of each face, shape [f, 3, 3]."""
    start, end = faces, np.roll(faces, -1, axis=1)
    ends = np.stack([np.minimum(start, end).ravel(), np.maximum(start, end).ravel()], axis=1)
    edges, inverse = np.unique(ends, axis=0, return_inverse=True)
    inverse = inverse.ravel()
    uses = np.bincount(inverse)
    forward = np.bincount(inverse, (start < end).ravel())
    bad = (uses > 2) | ((uses == 2) & (forward != 1))
    if bad.any():
        raise InputError(
            f"precut: {bad.sum()} edges of the cutting surface join more than two triangles or triangles "
            "of opposite orientation. The surface must be an oriented manifold. Repair it or orient its "
            "triangles consistently."
        )
    normals = np.zeros((len(edges), 3))
    np.add.at(normals, inverse, np.repeat(face_normal, 3, axis=0))
    return normals[inverse].reshape(-1, 3, 3)


def _vertex_normals(faces: np.ndarray, edge: np.ndarray, face_normal: np.ndarray) -> np.ndarray:
    """Return the angle-weighted normal at each corner of each face, shape [f, 3, 3]."""
    forward = edge / np.linalg.norm(edge, axis=2, keepdims=True)
    backward = -np.roll(forward, 1, axis=1)
    angle = np.arccos(np.clip(np.einsum("fij,fij->fi", forward, backward), -1.0, 1.0))
    normals = np.zeros((faces.max() + 1, 3))
    np.add.at(normals, faces.ravel(), (angle[:, :, None] * face_normal[:, None]).reshape(-1, 3))
    return normals[faces]


def _check_surface_arrays(vertices: np.ndarray, faces: np.ndarray) -> None:
    if vertices.shape != (len(vertices), 3) or faces.shape != (len(faces), 3) or not len(faces):
        raise InputError(
            f"precut: the cutting surface has vertices of shape {vertices.shape} and faces of shape "
            f"{faces.shape}. They must be [v, 3] and [f, 3] with at least one triangle. Give a triangle mesh "
            "as precut.surface_file."
        )
    if not np.isfinite(vertices).all():
        raise InputError(
            "precut: the cutting surface has vertices that are not finite. Positions must be numbers in "
            "metres. Repair precut.surface_file."
        )
    if faces.min() < 0 or faces.max() >= len(vertices):
        raise InputError(
            f"precut: the cutting surface's triangles point to vertices {faces.min()} … {faces.max()}, "
            f"but there are {len(vertices)}. Repair precut.surface_file."
        )


def _check_no_slivers(double_area: np.ndarray, edge: np.ndarray) -> None:
    longest2 = (edge**2).sum(axis=2).max(axis=1)
    flat = double_area <= 1e-12 * longest2
    if flat.any():
        raise InputError(
            f"precut: {flat.sum()} triangles of the cutting surface have no area (first id "
            f"{np.flatnonzero(flat)[0]}). Their normal is undefined. Remove degenerate triangles from "
            "precut.surface_file."
        )
