"""Signed distance to an open or closed, oriented triangle surface."""

import numpy as np

from disect_sim.errors import InputError
from disect_sim.virtual_nodes.triangle_bvh import TriangleBvh, closest_on_triangles


class CuttingSurface:
    """An oriented manifold triangle mesh; the positive side is where the triangle normals point.

    The sign comes from the pseudo-normal of the nearest feature (face, edge, or vertex with its faces
    weighted by their angle), which is right everywhere if the surface is closed (Bærentzen and Aanæs 2005).
    Beyond the border of an open surface it is the sign of the border face, which is no crossing: see
    `surface.py`.
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
        # Normals by feature, in the numbering of closest_on_triangles, shape [f, 7, 3].
        self._normals = np.concatenate(
            [
                face_normal[:, None],
                _edge_normals(faces, face_normal),
                _vertex_normals(faces, edge, face_normal),
            ],
            axis=1,
        )

    def signed_distance(self, points: np.ndarray, limit: np.ndarray | None = None) -> np.ndarray:
        """Signed distance to the surface [m], shape [p], of points [m], shape [p, 3].

        With a limit [m], shape [p], points farther than their limit get infinity, which saves much search.
        """
        face = self._bvh.nearest(points, limit)
        found = face >= 0
        distance = np.full(len(points), np.inf)
        closest, feature = closest_on_triangles(points[found], self._corners[face[found]])
        offset = points[found] - closest
        above = np.einsum("pi,pi->p", offset, self._normals[face[found], feature]) >= 0.0
        distance[found] = np.where(above, 1.0, -1.0) * np.linalg.norm(offset, axis=1)
        return distance


def _edge_normals(faces: np.ndarray, face_normal: np.ndarray) -> np.ndarray:
    """Sum of the normals of the faces at each edge of each face, shape [f, 3, 3]."""
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
            "triangles alike."
        )
    normals = np.zeros((len(edges), 3))
    np.add.at(normals, inverse, np.repeat(face_normal, 3, axis=0))
    return normals[inverse].reshape(-1, 3, 3)


def _vertex_normals(faces: np.ndarray, edge: np.ndarray, face_normal: np.ndarray) -> np.ndarray:
    """Angle-weighted normal at each corner of each face, shape [f, 3, 3]."""
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
