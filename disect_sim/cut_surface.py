"""The cut surface as triangles between the springs, and its normals."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from disect_sim.cut_mesh import CutMesh
from disect_sim.virtual_nodes.springs import triangle_areas

# Small pieces of the cut surface, finer than the springs: where the edge law looks at what the edge has passed.


_SPACING_M = 1.25e-3
"""Distance between samples [m]: the edge's force rises over more, so that it comes out smooth."""


@dataclass(frozen=True)
class EdgeSamples:
    """The samples of a cut surface."""

    area: np.ndarray
    """[m^2], sums to the area of the cut, shape [sample_count]."""
    to_springs: sp.csr_matrix
    """What a sample takes of the springs at the corners of its triangle, shape [sample_count, spring_count]."""
    middles: sp.csr_matrix
    """Places half-way between the ends of the springs: middles @ x, shape [spring_count, node_count]."""
    skin_distance: np.ndarray
    """From the skin, at rest, along the cut [m], shape [sample_count]; infinite without skin."""
    skin_above: np.ndarray
    """How much the skin next to it lies across the way down [-], shape [sample_count]: 1 level, 0 upright or below."""

    def __len__(self) -> int:
        return len(self.area)

    def repeated(self, copies: int) -> "EdgeSamples":
        """The samples of so many copies of the body."""
        return EdgeSamples(
            np.tile(self.area, copies),
            sp.block_diag([self.to_springs] * copies, format="csr"),
            sp.block_diag([self.middles] * copies, format="csr"),
            np.tile(self.skin_distance, copies),
            np.tile(self.skin_above, copies),
        )

    def places(self, x: np.ndarray) -> np.ndarray:
        """Where the samples are [m], between the sides of the cut, for node positions x [m]; further axes stay."""
        flat = self.to_springs @ (self.middles @ x.reshape(len(x), -1))
        return flat.reshape(len(self), *x.shape[1:])


def edge_samples(mesh: CutMesh, triangles: np.ndarray, spring_operator: sp.csr_matrix) -> EdgeSamples:
    """Samples of the cut surface, each at most half of a square with the side SPACING_M.

    triangles: those of `cut_triangles`. spring_operator: the model's; its weights on either side of the cut are those
    of the springs' ends.
    """
    places = mesh.virtual_positions()[mesh.spring_virtual[:, 0]]
    corners = places[triangles]
    area = triangle_areas(*np.moveaxis(corners, 1, 0))
    parts = np.maximum(1, np.ceil(np.sqrt(2.0 * area) / _SPACING_M)).astype(int)
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
        (weight.ravel(), (np.repeat(np.arange(size), 3), corner.ravel())), shape=(size, len(places))
    )
    return EdgeSamples(
        np.concatenate(areas),
        matrix,
        0.5 * abs(spring_operator),
        *_skin(matrix @ places, places, triangles, mesh.spring_surface),
    )


def _centroids(count: int) -> np.ndarray:
    """Barycentric coordinates of the middles of the count^2 equal parts of a triangle, shape [count^2, 3]."""
    i, j = np.meshgrid(np.arange(count), np.arange(count), indexing="ij")
    up, down = i + j < count, i + j < count - 1
    first = np.concatenate([i[up] + 1.0 / 3.0, i[down] + 2.0 / 3.0]) / count
    second = np.concatenate([j[up] + 1.0 / 3.0, j[down] + 2.0 / 3.0]) / count
    return np.stack([first, second, 1.0 - first - second], axis=1)


def _skin(
    points: np.ndarray, places: np.ndarray, triangles: np.ndarray, skin: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Distance of the points from the rim of the cut surface where it is skin [m], and how much it lies above them."""
    sides = np.sort(
        np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=1
    )
    unique, counts = np.unique(sides, axis=0, return_counts=True)
    rim = unique[counts == 1]
    rim = rim[skin[rim].all(axis=1)]
    distance, above = np.full(len(points), np.inf), np.zeros(len(points))
    for a, b in rim:
        way = places[b] - places[a]
        share = np.clip((points - places[a]) @ way / (way @ way), 0.0, 1.0)
        to_skin = places[a] + share[:, None] * way - points
        length = np.linalg.norm(to_skin, axis=1)
        nearer = length < distance
        distance[nearer] = length[nearer]
        above[nearer] = np.maximum(0.0, to_skin[nearer, 1]) / np.maximum(length[nearer], 1e-12)
    return distance, above


_TET_EDGES = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


def cut_triangles(mesh: CutMesh) -> np.ndarray:
    """The cut surface as triangles between springs, shape [triangle_count, 3]."""
    crossed = mesh.tets[(mesh.tet_fraction < 1.0) & (mesh.tet_side == 1)]
    stride = len(mesh.nodes)
    ends = np.sort(mesh.virtual_parents[mesh.spring_virtual[:, 0]], axis=1).astype(np.int64)
    key = ends[:, 0] * stride + ends[:, 1]
    order = np.argsort(key)
    pairs = np.sort(crossed[:, _TET_EDGES], axis=2).astype(np.int64)
    wanted = pairs[..., 0] * stride + pairs[..., 1]
    at = np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)
    spring = np.where(key[order[at]] == wanted, order[at], -1)
    places = mesh.virtual_positions()[mesh.spring_virtual[:, 0]]
    out = []
    for row in spring:
        corners = row[row >= 0]
        if len(corners) == 4:
            corners = _around(corners, places)
            out.append(corners[[0, 2, 3]])
        if len(corners) >= 3:
            out.append(corners[:3])
    return np.array(out)


def _around(corners: np.ndarray, places: np.ndarray) -> np.ndarray:
    """The four corners in the order in which they follow one another."""
    away = places[corners] - places[corners].mean(axis=0)
    across, along = np.linalg.svd(away)[2][:2]
    return corners[np.argsort(np.arctan2(away @ along, away @ across))]


def cut_normals(mesh: CutMesh, triangles: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Unit normals of the cut surface at the springs, towards side +1, shape [spring_count, 3].

    The mean over the triangles around a spring, each by its area: where many springs crowd around a node next to the
    surface their own places span no plane. triangles: those of `cut_triangles`; across: from side -1 to side +1 at each
    spring, shape [spring_count, 3].
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
    out: np.ndarray = normal / length
    return out
