"""Smoothing, resampling to a target edge length, and displacement of the surface by cleaning."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from stages.clean.topology import flip_edges
from stages.shared.surface import Surface, edge_ids, edge_keys, face_areas, open3d

# Displacement by cleaning, and area the scan did not see


_SEEN_WITHIN_FRACTION = 0.02
"""Distance from the scan, as a fraction of the diagonal, beyond which clean surface counts as filled in."""


@dataclass(frozen=True)
class Displacement:
    """Distances between the raw scan (without removed pieces) and the clean surface."""

    raw_to_clean_max_m: float
    raw_to_clean_rms_m: float
    clean_to_raw_max_m: float
    """Includes patches over holes, so it is about the radius of the largest hole."""
    clean_to_raw_rms_m: float
    filled_area_fraction: float
    """Fraction of the clean surface's area that was not scanned."""
    diagonal_m: float
    """Diagonal of the clean surface, to which the fractions refer."""

    @property
    def moved_fraction(self) -> float:
        """Largest displacement of the scanned surface, as a fraction of the diagonal."""
        return self.raw_to_clean_max_m / self.diagonal_m


def measure_displacement(raw: Surface | NDArray[np.float64], clean: Surface) -> Displacement:
    """Measure distances from the scan to the clean surface and back, sampled at vertices and face centres.

    Args:
        raw: the scan's surface, or its points [m], shape [point_count, 3].
        clean: the clean surface.
    """
    clean_points, weight = clean.corners.mean(axis=1), face_areas(clean)
    if isinstance(raw, Surface):
        raw_points = np.concatenate([raw.vertices, raw.corners.mean(axis=1)])
        back = _distance_to_surface(clean_points, raw)
    else:
        raw_points = raw
        back = cKDTree(raw).query(clean_points)[0]
    there = _distance_to_surface(raw_points, clean)
    unseen = back > _SEEN_WITHIN_FRACTION * clean.diagonal_m
    return Displacement(
        raw_to_clean_max_m=float(there.max()),
        raw_to_clean_rms_m=float(np.sqrt(np.mean(there**2))),
        clean_to_raw_max_m=float(back.max()),
        clean_to_raw_rms_m=float(np.sqrt(np.average(back**2, weights=weight))),
        filled_area_fraction=float(weight[unseen].sum() / weight.sum()),
        diagonal_m=clean.diagonal_m,
    )


def _distance_to_surface(points: NDArray[np.float64], surface: Surface) -> NDArray[np.float64]:
    """Return the distance of each point to the surface [m], shape [point_count].

    Computed in float32 about the centre.
    """
    o3d = open3d()
    centre = surface.vertices.mean(axis=0)
    scene = o3d.t.geometry.RaycastingScene()
    scene.add_triangles(
        o3d.core.Tensor((surface.vertices - centre).astype(np.float32)),
        o3d.core.Tensor(surface.faces.astype(np.uint32)),
    )
    return (
        scene.compute_distance(o3d.core.Tensor((points - centre).astype(np.float32)))
        .numpy()
        .astype(np.float64)
    )


_MAX_SPLIT_ROUNDS = 12
"""Maximum number of rounds; each halves the long edges, so 12 cover a ratio of 4096 between longest edge and target."""
_SPLIT_ABOVE = 4.0 / 3.0
"""Multiple of the target above which edges are split; their halves are then no shorter than 2/3 of it."""
EQUILATERAL_AREA = np.sqrt(3.0) / 4.0
"""Area of an equilateral triangle with edge 1 [-]."""
_MAX_SPLIT_FACES = 2_000_000


def split_long_edges(
    surface: Surface,
    target_edge_m: float,
    *,
    locked_edges: NDArray[np.int32] | None = None,
    flip: bool = False,
) -> Surface:
    """Halve all edges longer than 4/3 of the target until none remains; the surface stays closed.

    Args:
        surface: a surface with at most two faces per edge.
        target_edge_m: target edge length [m].
        locked_edges: edges that must not be split, sorted vertex pairs, shape [edge_count, 2].
        flip: improve the triangles by edge flips after each round of splits.
    """
    locked = edge_keys(locked_edges) if locked_edges is not None else np.empty(0, np.int64)
    for _ in range(_MAX_SPLIT_ROUNDS):
        edges, edge_of, _ = edge_ids(surface.faces)
        length = np.linalg.norm(surface.vertices[edges[:, 0]] - surface.vertices[edges[:, 1]], axis=1)
        split = (length > _SPLIT_ABOVE * target_edge_m) & ~np.isin(edge_keys(edges), locked)
        if not split.any() or len(surface.faces) > _MAX_SPLIT_FACES:
            break
        surface = _split(surface, edges, edge_of.reshape(-1, 3), split, length)
        if flip:
            surface = flip_edges(surface, locked_edges=locked_edges)
    return surface


def _split(
    surface: Surface,
    edges: NDArray[np.int32],
    edge_of: NDArray[np.intp],
    split: NDArray[np.bool_],
    length: NDArray[np.float64],
) -> Surface:
    """Split the marked edges; a face with one, two or three of them becomes two, three or four faces."""
    middle = np.full(len(edges), -1, np.int32)
    middle[split] = len(surface.vertices) + np.arange(split.sum(), dtype=np.int32)
    points = surface.vertices[edges[split]].mean(axis=1)
    marked = split[edge_of]
    count = marked.sum(axis=1)
    # Rotate each face so that a face with one marked edge has it as edge 0, and one with two has its unmarked edge as
    # edge 2.
    turn = np.where(count == 1, np.argmax(marked, axis=1), 0)
    turn = np.where(count == 2, (np.argmin(marked, axis=1) + 1) % 3, turn)
    index = (turn[:, None] + np.arange(3)) % 3
    f = np.take_along_axis(surface.faces, index, axis=1)
    e = np.take_along_axis(edge_of, index, axis=1)
    m = middle[e]
    one, two, three = count == 1, count == 2, count == 3
    first_longer = length[e[:, 0]] >= length[e[:, 1]]
    long_first, long_second = two & first_longer, two & ~first_longer

    def build(rows: NDArray[np.bool_], *corners: NDArray[np.int32]) -> NDArray[np.int32]:
        return np.column_stack([corner[rows] for corner in corners])

    a, b, c = f.T
    ab, bc, ca = m.T
    faces = [
        f[count == 0],
        build(one, a, ab, c),
        build(one, ab, b, c),
        build(two, ab, b, bc),
        build(long_first, ab, bc, c),
        build(long_first, a, ab, c),
        build(long_second, a, ab, bc),
        build(long_second, a, bc, c),
        build(three, a, ab, ca),
        build(three, ab, b, bc),
        build(three, ca, bc, c),
        build(three, ab, bc, ca),
    ]
    return Surface(np.concatenate([surface.vertices, points]), np.concatenate(faces).astype(np.int32))


def smooth(surface: Surface, iterations: int) -> Surface:
    """Apply Taubin smoothing, which removes noise and keeps the volume."""
    if iterations == 0:
        return surface
    mesh = to_open3d(surface).filter_smooth_taubin(number_of_iterations=iterations)
    return from_open3d(mesh)


def decimate(surface: Surface, target_edge_m: float) -> Surface:
    """Decimate by quadrics to the number of faces that equilateral triangles of the target edge would need."""
    face_count = int(surface.area_m2 / (EQUILATERAL_AREA * target_edge_m**2))
    if len(surface.faces) > face_count:
        mesh = to_open3d(surface).simplify_quadric_decimation(target_number_of_triangles=face_count)
        surface = from_open3d(mesh)
    return surface


def to_open3d(surface: Surface) -> Any:
    """Convert the surface to an open3d triangle mesh."""
    o3d = open3d()
    return o3d.geometry.TriangleMesh(
        o3d.utility.Vector3dVector(np.ascontiguousarray(surface.vertices)),
        o3d.utility.Vector3iVector(np.ascontiguousarray(surface.faces)),
    )


def from_open3d(mesh: Any) -> Surface:
    """Convert an open3d triangle mesh to a surface."""
    return Surface(np.array(mesh.vertices, np.float64), np.array(mesh.triangles, np.int32))
