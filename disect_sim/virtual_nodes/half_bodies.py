"""The two half-bodies a cut leaves, as closed triangle meshes."""

from dataclasses import dataclass

import numpy as np

from disect_sim.cut_mesh import CutMesh
from disect_sim.virtual_nodes.piece_order import POLYGON_EDGES, order_pieces
from disect_sim.virtual_nodes.topology import outer_faces


@dataclass(frozen=True)
class HalfBody:
    """Closed, outward oriented surface of the material on one side of the cut."""

    vertices: np.ndarray
    """Vertex positions [m], shape [v, 3]."""
    faces: np.ndarray
    """Vertex indices of the triangles, shape [f, 3], int32."""
    face_on_cut: np.ndarray
    """True for triangles of the cut surface, False for the outer surface, shape [f], bool."""

    def volume(self) -> float:
        """Enclosed volume [m³]."""
        centred = self.vertices - self.vertices.mean(axis=0)
        a, b, c = (centred[self.faces[:, i]] for i in range(3))
        return float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6.0)

    def areas(self) -> np.ndarray:
        """Triangle areas [m²], shape [f]."""
        a, b, c = (self.vertices[self.faces[:, i]] for i in range(3))
        return 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1)


def half_body(cut: CutMesh, side: int) -> HalfBody:
    """Surface of the material on one side (+1 or -1) of a cut mesh, split where the virtual nodes are."""
    tets = cut.tets[cut.tet_side == side].astype(np.int64)
    split = _EdgeSplits(cut, side)
    outer = _outer_faces(cut, tets, split)
    on_cut = _cut_faces(cut, tets, split)
    faces = np.concatenate([outer, on_cut])
    used, compact = np.unique(faces, return_inverse=True)
    return HalfBody(
        vertices=np.concatenate([cut.nodes, cut.virtual_positions()])[used],
        faces=compact.reshape(-1, 3).astype(np.int32),
        face_on_cut=np.arange(len(faces)) >= len(outer),
    )


class _EdgeSplits:
    """Finds the virtual node on an edge (real node, ghost node); points are nodes, then virtual nodes."""

    def __init__(self, cut: CutMesh, side: int) -> None:
        self._count = len(cut.nodes)
        self._virtual = np.flatnonzero(cut.virtual_side == side)
        key = self._key(cut.virtual_parents[self._virtual, 0], cut.virtual_parents[self._virtual, 1])
        order = np.argsort(key)
        self._virtual, self._sorted_key = self._virtual[order], key[order]

    def _key(self, real: np.ndarray, ghost: np.ndarray) -> np.ndarray:
        return real.astype(np.int64) * self._count + ghost

    def __call__(self, real: np.ndarray, ghost: np.ndarray) -> np.ndarray:
        """Point index of the virtual node between real and ghost nodes (arrays of equal shape)."""
        return self._count + self._virtual[np.searchsorted(self._sorted_key, self._key(real, ghost))]


def _outer_faces(cut: CutMesh, tets: np.ndarray, split: _EdgeSplits) -> np.ndarray:
    """Material part of the outer faces, triangulated, shape [f, 3]."""
    faces = outer_faces(tets)
    ghost = cut.node_ghost[faces]
    ghosts = ghost.sum(axis=1)
    whole = faces[ghosts == 0]

    # Two ghosts: rotate so that the real vertex comes first. One ghost: so that the ghost comes last.
    a, g, h = _rotate(faces[ghosts == 2], np.argmin(ghost[ghosts == 2], axis=1)).T
    corner = np.stack([a, split(a, g), split(a, h)], axis=1)
    a, b, g = _rotate(faces[ghosts == 1], np.argmax(ghost[ghosts == 1], axis=1) + 1).T
    on_a, on_b = split(a, g), split(b, g)
    return np.concatenate([whole, corner, np.stack([a, b, on_b], axis=1), np.stack([a, on_b, on_a], axis=1)])


def _rotate(faces: np.ndarray, first: np.ndarray) -> np.ndarray:
    return np.take_along_axis(faces, (first[:, None] + np.arange(3)) % 3, axis=1)


def _cut_faces(cut: CutMesh, tets: np.ndarray, split: _EdgeSplits) -> np.ndarray:
    """Cut polygons of the crossed tets, triangulated along their canonical diagonal, shape [f, 3]."""
    ghost = cut.node_ghost[tets]
    crossed = ghost.any(axis=1)
    tets, real = tets[crossed], ~ghost[crossed]
    pieces = order_pieces(cut.node_original[tets], real)
    ordered = np.take_along_axis(tets, pieces.order, axis=1)
    triangles = []
    for real_count, edges in POLYGON_EDGES.items():
        rows = pieces.inside_count == real_count
        ends = ordered[rows][:, edges]
        ring = split(ends[..., 0], ends[..., 1])
        ring = np.where(pieces.even[rows][:, None], ring, ring[:, [0, *range(len(edges) - 1, 0, -1)]])
        triangles += [ring[:, [0, i, i + 1]] for i in range(1, len(edges) - 1)]
    return np.concatenate(triangles)
