"""Shape of tetrahedra, and the explicit time step they allow."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from disect_sim.materials import Material

EDGES = np.array([[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
OPPOSITE_FACES = np.array([[1, 2, 3], [0, 3, 2], [0, 1, 3], [0, 2, 1]])
"""Face opposite to each corner, counter-clockwise seen from outside a positively oriented tet."""


@dataclass(frozen=True)
class TetQuality:
    """One number per tet, each of shape [tet_count]."""

    volume_m3: NDArray[np.float64]
    """Signed volume [m³]; positive for a positively oriented tet."""
    radius_ratio: NDArray[np.float64]
    """3 × inscribed / circumscribed radius [-]; 1 for a regular tet, 0 for a flat one."""
    min_altitude_m: NDArray[np.float64]
    """Smallest altitude [m]."""
    min_edge_m: NDArray[np.float64]
    """Shortest edge [m]."""
    max_edge_m: NDArray[np.float64]
    """Longest edge [m]."""


def tet_quality(nodes: NDArray[np.float64], tets: NDArray[np.int32]) -> TetQuality:
    """Measure all tets; nodes [m] of shape [node_count, 3], tets of shape [tet_count, 4]."""
    corners = nodes[tets]
    a, b, c = np.moveaxis(corners[:, 1:] - corners[:, :1], 1, 0)
    volume = np.einsum("ij,ij->i", a, np.cross(b, c)) / 6.0
    faces = corners[:, OPPOSITE_FACES]
    areas = 0.5 * np.linalg.norm(
        np.cross(faces[:, :, 1] - faces[:, :, 0], faces[:, :, 2] - faces[:, :, 0]), axis=2
    )
    edges = np.linalg.norm(corners[:, EDGES[:, 0]] - corners[:, EDGES[:, 1]], axis=2)
    # Circumradius by the products of opposite edges, p: 6 V R is the area of the triangle with sides p.
    p = edges[:, [0, 1, 2]] * edges[:, [5, 4, 3]]
    squared = (p.sum(axis=1)) * (p @ [-1, 1, 1]) * (p @ [1, -1, 1]) * (p @ [1, 1, -1])
    positive = np.maximum(np.abs(volume), 1e-300)
    circumradius = np.sqrt(np.maximum(squared, 1e-300)) / (24.0 * positive)
    inradius = 3.0 * np.abs(volume) / areas.sum(axis=1)
    return TetQuality(
        volume_m3=volume,
        radius_ratio=3.0 * inradius / circumradius,
        min_altitude_m=3.0 * np.abs(volume) / areas.max(axis=1),
        min_edge_m=edges.min(axis=1),
        max_edge_m=edges.max(axis=1),
    )


def p_wave_speed(material: Material) -> float:
    """Speed of pressure waves [m/s]."""
    return float(np.sqrt((material.lame_lambda_pa + 2.0 * material.lame_mu_pa) / material.density_kg_m3))


def stable_step(min_altitude_m: NDArray[np.float64], material: Material) -> float:
    """Estimated largest stable explicit step [s]: the time a pressure wave takes across the smallest
    altitude."""
    return float(min_altitude_m.min() / p_wave_speed(material))


def unique_edges(tets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Undirected edges of a tet mesh, shape [edge_count, 2]."""
    return np.unique(np.sort(tets[:, EDGES].reshape(-1, 2), axis=1), axis=0)


def boundary_faces(tets: NDArray[np.int32]) -> NDArray[np.int32]:
    """Faces that belong to one tet only, counter-clockwise seen from outside, shape [face_count, 3]."""
    return boundary_faces_and_owners(tets)[0]


def boundary_faces_and_owners(tets: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.intp]]:
    """The boundary faces, shape [face_count, 3], and the tet each belongs to, shape [face_count]."""
    faces = tets[:, OPPOSITE_FACES].reshape(-1, 3)
    _, inverse, count = np.unique(np.sort(faces, axis=1), axis=0, return_inverse=True, return_counts=True)
    single = count[inverse.reshape(-1)] == 1
    return faces[single], np.flatnonzero(single) // 4


def count_pieces(tets: NDArray[np.int32]) -> int:
    """Number of bodies that share no face; tets that only touch in an edge or a node count as separate."""
    faces = np.sort(tets[:, OPPOSITE_FACES].reshape(-1, 3), axis=1)
    inverse, count = np.unique(faces, axis=0, return_inverse=True, return_counts=True)[1:]
    inverse = inverse.reshape(-1)
    order = np.argsort(inverse, kind="stable")
    pairs = order[count[inverse[order]] == 2].reshape(-1, 2) // 4
    graph = coo_matrix((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), (len(tets), len(tets)))
    return int(connected_components(graph, directed=False)[0])
