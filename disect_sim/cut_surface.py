"""The cut surface: triangles between the springs, normals, and the samples of the edge law."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from disect_sim.cut_mesh import CutMesh
from disect_sim.virtual_nodes.springs import triangle_areas

# Samples of the edge law, finer than the springs


_SPACING_M = 1.25e-3
"""Distance between samples [m], shorter than the edge rise length so that the force is smooth."""


@dataclass(frozen=True)
class EdgeSamples:
    """Samples of a cut surface."""

    area: np.ndarray
    """Sample areas [m^2], sum to the area of the cut, shape [sample_count]."""
    to_springs: sp.csr_matrix
    """Barycentric weights of the springs at the corners of each sample's triangle, shape [sample_count, spring_count].
    """
    middles: sp.csr_matrix
    """Midpoints of the springs: middles @ x, shape [spring_count, node_count]."""
    skin_distance: np.ndarray
    """Distance from the skin at rest, along the cut [m], shape [sample_count]; infinite without skin."""
    skin_above: np.ndarray
    """Upward component of the direction to the nearest skin [-], shape [sample_count]: 1 below level skin, at least
    0.
    """

    def __len__(self) -> int:
        return len(self.area)

    def repeated(self, copies: int) -> "EdgeSamples":
        """Return the samples of `copies` copies of the body."""
        return EdgeSamples(
            np.tile(self.area, copies),
            sp.block_diag([self.to_springs] * copies, format="csr"),
            sp.block_diag([self.middles] * copies, format="csr"),
            np.tile(self.skin_distance, copies),
            np.tile(self.skin_above, copies),
        )

    def places(self, x: np.ndarray) -> np.ndarray:
        """Return sample positions [m], midway between the sides of the cut, for node positions x [m].

        Further axes are kept.
        """
        flat = self.to_springs @ (self.middles @ x.reshape(len(x), -1))
        return flat.reshape(len(self), *x.shape[1:])


def edge_samples(mesh: CutMesh, triangles: np.ndarray, spring_operator: sp.csr_matrix) -> EdgeSamples:
    """Sample the cut surface; each sample is at most half of a square with side SPACING_M.

    triangles: from `cut_triangles`. spring_operator: the model's; its weights on either side of the cut are those of
    the springs' ends.
    """
    positions = mesh.virtual_positions()[mesh.spring_virtual[:, 0]]
    area, matrix = _divided(positions, triangles, _SPACING_M)
    return EdgeSamples(
        area,
        matrix,
        0.5 * abs(spring_operator),
        *_skin(matrix @ positions, positions, triangles, mesh.spring_surface),
    )


_RIGID_SPACING_M = 4.0e-4
"""Distance between the points at which the edge may meet a rigid region [m]: the stop is found this exactly."""


@dataclass(frozen=True)
class RigidPoints:
    """Points of the cut surface inside rigid regions."""

    to_nodes: sp.csr_matrix
    """Positions = to_nodes @ x, shape [point_count, node_count]."""
    region: np.ndarray
    """Number of the region of each point, shape [point_count]."""


def rigid_points(mesh: CutMesh, triangles: np.ndarray, spring_operator: sp.csr_matrix) -> RigidPoints | None:
    """Return the points of the cut surface inside rigid regions; None if there are none."""
    regions = () if mesh.anatomy is None else mesh.anatomy.regions
    rigid = np.array([one.rigid for one in regions], bool)
    if mesh.anatomy is None or not rigid.any():
        return None
    positions = mesh.virtual_positions()[mesh.spring_virtual[:, 0]]
    _, matrix = _divided(positions, triangles, _RIGID_SPACING_M)
    inside = mesh.anatomy.contained(matrix @ positions) * rigid
    which = np.flatnonzero(inside.any(axis=1))
    if not len(which):
        return None
    return RigidPoints((matrix[which] @ (0.5 * abs(spring_operator))).tocsr(), inside[which].argmax(axis=1))


def _divided(
    positions: np.ndarray, triangles: np.ndarray, spacing_m: float
) -> tuple[np.ndarray, sp.csr_matrix]:
    """Divide triangles between springs at positions [m] into equal parts of at most half a square of that side.

    Return their areas [m^2], shape [part_count], and the weights of the springs, shape [part_count, spring_count].
    """
    area = triangle_areas(*np.moveaxis(positions[triangles], 1, 0))
    parts = np.maximum(1, np.ceil(np.sqrt(2.0 * area) / spacing_m)).astype(int)
    rows, weights, areas = [], [], []
    for count in np.unique(parts):
        chosen = np.flatnonzero(parts == count)
        inside = _centroids(int(count))
        rows.append(np.repeat(triangles[chosen], len(inside), axis=0))
        weights.append(np.tile(inside, (len(chosen), 1)))
        areas.append(np.repeat(area[chosen] / len(inside), len(inside)))
    corner, weight = np.concatenate(rows), np.concatenate(weights)
    size = len(corner)
    matrix = sp.csr_matrix(
        (weight.ravel(), (np.repeat(np.arange(size), 3), corner.ravel())), shape=(size, len(positions))
    )
    return np.concatenate(areas), matrix


def _centroids(count: int) -> np.ndarray:
    """Return barycentric coordinates of the centroids of count^2 equal parts of a triangle, shape [count^2, 3]."""
    i, j = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
    up, down = i + j < count, i + j < count - 1
    first = np.concatenate([i[up] + 1.0 / 3.0, i[down] + 2.0 / 3.0]) / count
    second = np.concatenate([j[up] + 1.0 / 3.0, j[down] + 2.0 / 3.0]) / count
    return np.stack([first, second, 1.0 - first - second], axis=1)


def _skin(
    points: np.ndarray, positions: np.ndarray, triangles: np.ndarray, skin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the distance of points from the skin part of the cut's rim [m], and its upward component."""
    sides = np.sort(
        np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=1
    )
    unique, counts = np.unique(sides, axis=0, return_counts=True)
    rim = unique[counts == 1]
    rim = rim[skin[rim].all(axis=1)]
    distance, above = np.full(len(points), np.inf), np.zeros(len(points))
    for a, b in rim:
        way = positions[b] - positions[a]
        share = np.clip((points - positions[a]) @ way / (way @ way), 0.0, 1.0)
        to_skin = positions[a] + share[:, None] * way - points
        length = np.linalg.norm(to_skin, axis=1)
        nearer = length < distance
        distance[nearer] = length[nearer]
        above[nearer] = np.maximum(0.0, to_skin[nearer, 1]) / np.maximum(length[nearer], 1e-12)
    return distance, above


_TET_EDGES = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


def cut_triangles(mesh: CutMesh) -> np.ndarray:
    """Return the cut surface as triangles between springs, shape [triangle_count, 3]."""
    crossed = mesh.tets[(mesh.tet_fraction < 1.0) & (mesh.tet_side == 1)]
    stride = len(mesh.nodes)
    ends = np.sort(mesh.virtual_parents[mesh.spring_virtual[:, 0]], axis=1).astype(np.int64)
    key = ends[:, 0] * stride + ends[:, 1]
    order = np.argsort(key)
    pairs = np.sort(crossed[:, _TET_EDGES], axis=2).astype(np.int64)
    pair_key = pairs[..., 0] * stride + pairs[..., 1]
    at = np.minimum(np.searchsorted(key, pair_key, sorter=order), len(key) - 1)
    spring = np.where(key[order[at]] == pair_key, order[at], -1)
    positions = mesh.virtual_positions()[mesh.spring_virtual[:, 0]]
    triangles = []
    for row in spring:
        corners = row[row >= 0]
        if len(corners) == 4:
            corners = _around(corners, positions)
            triangles.append(corners[[0, 2, 3]])
        if len(corners) >= 3:
            triangles.append(corners[:3])
    return np.array(triangles)


def _around(corners: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Sort four corners in cyclic order."""
    away = positions[corners] - positions[corners].mean(axis=0)
    across, along = np.linalg.svd(away)[2][:2]
    return corners[np.argsort(np.arctan2(away @ along, away @ across))]


def cut_normals(mesh: CutMesh, triangles: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Return unit normals of the cut surface at the springs, towards side +1, shape [spring_count, 3].

    Each is the area-weighted mean over the triangles around a spring; where many springs crowd around a node next to
    the surface, their own positions span no plane. triangles: from `cut_triangles`; across: from side -1 to side +1 at
    each spring, shape [spring_count, 3].
    """
    a, b, c = np.moveaxis(mesh.virtual_positions()[mesh.spring_virtual[:, 0]][triangles], 1, 0)
    twice = np.cross(b - a, c - a)
    ahead = np.einsum("ij,ij->i", twice, across[triangles].sum(axis=1)) >= 0.0
    normal = np.zeros_like(across)
    for corner in triangles.T:
        np.add.at(normal, corner, np.where(ahead[:, None], twice, -twice))
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    none = length[:, 0] == 0.0
    normal[none], length[none] = across[none], np.linalg.norm(across[none], axis=1, keepdims=True)
    unit_normal: np.ndarray = normal / length
    return unit_normal
