"""The cut surface as triangles between the springs, and its normals."""

import numpy as np

from disect_sim.cut_mesh import CutMesh

TET_EDGES = np.array([(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)])


def cut_triangles(mesh: CutMesh) -> np.ndarray:
    """The cut surface as triangles between springs, shape [triangle_count, 3]."""
    crossed = mesh.tets[(mesh.tet_fraction < 1.0) & (mesh.tet_side == 1)]
    stride = len(mesh.nodes)
    ends = np.sort(mesh.virtual_parents[mesh.spring_virtual[:, 0]], axis=1).astype(np.int64)
    key = ends[:, 0] * stride + ends[:, 1]
    order = np.argsort(key)
    pairs = np.sort(crossed[:, TET_EDGES], axis=2).astype(np.int64)
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
