"""Repairs of a scan, from gentle to invasive; the first whose result passes the checks is used."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.sparse import coo_matrix, diags, identity
from scipy.sparse.linalg import spsolve

from stages.clean import topology
from stages.clean.components import drop_fragments
from stages.clean.resampling import (
    Displacement,
    decimate,
    from_open3d,
    measure_displacement,
    smooth,
    split_long_edges,
    to_open3d,
)
from stages.clean.topology import flip_edges
from stages.runtime.errors import InputError
from stages.runtime.files import quiet_stderr
from stages.shared.surface import (
    Surface,
    edge_ids,
    face_components,
    face_normals_doubled,
    half_edges,
    is_closed,
    open3d,
    subset,
    vertex_normals,
)


@dataclass
class RepairLog:
    """Repair steps in the order they were taken."""

    rows: list[tuple[str, int, int, str]] = field(default_factory=list)
    """Step, count before, count after, note."""

    def add(self, step: str, before: int, after: int, note: str = "") -> None:
        """Add a step."""
        self.rows.append((step, int(before), int(after), note))

    def extend(self, other: "RepairLog") -> None:
        """Add the steps of another log."""
        self.rows.extend(other.rows)

    def table(self) -> pl.DataFrame:
        """Return the artifact clean/repairs."""
        return pl.DataFrame(
            self.rows,
            schema={"step": pl.String, "before": pl.Int64, "after": pl.Int64, "note": pl.String},
            orient="row",
        )


# Screened Poisson reconstruction from oriented points


_POISSON_DEPTH_RANGE = (5, 8)
"""Octree depths: below 5 a fruit is a blob, above 8 (256 cells along an edge) is finer than any target edge here."""
_NEIGHBOURS = 24
"""Number of points a normal is fitted to."""
_OUTLIER_NEIGHBOURS, _OUTLIER_DEVIATIONS = 16, 3.0
"""A point is noise if its mean distance to its neighbours is this many standard deviations above the average."""
_CLUSTER_SPACINGS = 5.0
"""Points farther apart than this many typical spacings belong to different pieces."""


def tidy_cloud(points: NDArray[np.float64], *, spacing_m: float) -> tuple[NDArray[np.float64], int]:
    """Thin a cloud to one point per cell, drop outliers and stray clusters; return points [m] and number of clusters.

    Args:
        points: positions [m], shape [point_count, 3].
        spacing_m: cell size [m].
    """
    o3d = open3d()
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(np.ascontiguousarray(points)))
    cloud = cloud.voxel_down_sample(spacing_m)
    cloud, _ = cloud.remove_statistical_outlier(_OUTLIER_NEIGHBOURS, _OUTLIER_DEVIATIONS)
    typical = float(np.median(np.asarray(cloud.compute_nearest_neighbor_distance())))
    label = np.asarray(cloud.cluster_dbscan(eps=_CLUSTER_SPACINGS * max(typical, spacing_m), min_points=4))
    if not np.any(label >= 0):
        raise InputError(
            f"The point cloud's {len(label)} points are too scattered to form a surface. "
            "A cloud must cover the fruit evenly. Scan it again."
        )
    sizes = np.bincount(label[label >= 0])
    return np.array(cloud.points)[label == np.argmax(sizes)], len(sizes)


def surface_from_points(points: NDArray[np.float64], *, target_edge_m: float) -> Surface:
    """Reconstruct a surface through points without normals [m], shape [point_count, 3]."""
    o3d = open3d()
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(np.ascontiguousarray(points)))
    cloud.estimate_normals(o3d.geometry.KDTreeSearchParamKNN(_NEIGHBOURS))
    cloud.orient_normals_consistent_tangent_plane(_NEIGHBOURS)
    normals = np.array(cloud.normals)
    outward = np.einsum("ij,ij->i", points - points.mean(axis=0), normals).sum()
    return _poisson(points, normals if outward >= 0.0 else -normals, target_edge_m=target_edge_m)


def _surface_from_patches(surface: Surface, *, target_edge_m: float) -> Surface:
    """Reconstruct a surface through the vertices and face centres of oriented patches."""
    fine = split_long_edges(surface, target_edge_m)
    doubled = face_normals_doubled(fine)
    length = np.linalg.norm(doubled, axis=1)
    usable = length > 0.0
    points = np.concatenate([fine.vertices, fine.corners.mean(axis=1)[usable]])
    normals = np.concatenate([vertex_normals(fine), doubled[usable] / length[usable, None]])
    return _poisson(points, normals, target_edge_m=target_edge_m)


def _poisson(points: NDArray[np.float64], normals: NDArray[np.float64], *, target_edge_m: float) -> Surface:
    o3d = open3d()
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(points))
    cloud.normals = o3d.utility.Vector3dVector(normals)
    # A cell of half the target edge keeps the detail that the target edge can resolve.
    cells = 2.0 * float(np.ptp(points, axis=0).max()) / target_edge_m
    depth = int(np.clip(np.ceil(np.log2(max(cells, 2.0))), *_POISSON_DEPTH_RANGE))
    # One thread: the sums of several threads differ from run to run in the last digits.
    with quiet_stderr():
        mesh, _ = o3d.geometry.TriangleMesh.create_from_point_cloud_poisson(cloud, depth=depth, n_threads=1)
    closed = from_open3d(mesh)
    if len(closed.faces) == 0:
        return closed
    label = face_components(closed.faces, len(closed.vertices))
    return subset(closed, label == np.argmax(np.bincount(label)))


# Closing holes with patches that continue the surrounding curvature


_FAIRED_LOOP_LENGTH = 8
"""Holes with fewer edges are smaller than the mesh resolution: a flat fan is enough."""


def _boundary_loops(faces: NDArray[np.int32]) -> list[NDArray[np.int32]]:
    """Return vertex indices around each hole, in the direction a patch must run.

    Needs an oriented surface with one fan per vertex, so that each boundary vertex lies on one loop only.
    """
    directed = half_edges(faces)
    edge_of, count = edge_ids(faces)[1:]
    border = directed[count[edge_of] == 1]
    following = {int(head): int(tail) for tail, head in border}
    loops = []
    while following:
        start, vertex = following.popitem()
        loop = [start]
        while vertex != start and vertex in following:
            loop.append(vertex)
            vertex = following.pop(vertex)
        loops.append(np.array(loop, np.int32))
    return loops


def _fill_holes(surface: Surface, *, target_edge_m: float) -> tuple[Surface, int]:
    """Close every hole; return the surface and the number of holes.

    Each hole gets a fan around its centre. The fans of large holes are refined to the target edge length and their new
    vertices placed where the bi-Laplacian vanishes, so that the patch bulges like the fruit around it.
    """
    loops = _boundary_loops(surface.faces)
    vertices, faces = [surface.vertices], [surface.faces]
    next_vertex = len(surface.vertices)
    for loop in loops:
        if len(loop) < 3:
            continue
        if len(loop) == 3:
            faces.append(loop[None, :])
            continue
        vertices.append(surface.vertices[loop].mean(axis=0)[None, :])
        hub = np.full(len(loop), next_vertex, np.int32)
        faces.append(np.column_stack([loop, np.roll(loop, -1), hub]))
        next_vertex += 1
    filled = Surface(np.concatenate(vertices), np.concatenate(faces).astype(np.int32))
    if any(len(loop) >= _FAIRED_LOOP_LENGTH for loop in loops):
        filled = _fair(filled, fixed_vertices=len(surface.vertices), target_edge_m=target_edge_m)
    return filled, len(loops)


def _fair(surface: Surface, *, fixed_vertices: int, target_edge_m: float) -> Surface:
    """Refine the patches and place their new vertices; the first `fixed_vertices` stay."""
    locked = np.all(surface.faces < fixed_vertices, axis=1)
    border = _edges_of(surface.faces[locked])
    refined = split_long_edges(surface, target_edge_m, locked_edges=border, flip=True)
    count = len(refined.vertices)
    free = np.arange(count) >= fixed_vertices
    if not free.any():
        return refined
    edges = edge_ids(refined.faces)[0]
    rows = np.concatenate([edges[:, 0], edges[:, 1]])
    columns = np.concatenate([edges[:, 1], edges[:, 0]])
    adjacency = coo_matrix((np.ones(len(rows)), (rows, columns)), (count, count)).tocsr()
    degree = np.asarray(adjacency.sum(axis=1)).reshape(-1)
    laplacian = identity(count, format="csr") - diags(1.0 / np.maximum(degree, 1.0)) @ adjacency
    system = (laplacian.T @ laplacian).tocsr()
    placed = refined.vertices.copy()
    right = -system[free][:, ~free] @ placed[~free]
    placed[free] = spsolve(system[free][:, free].tocsc(), right).reshape(-1, 3)
    return Surface(placed, refined.faces)


def _edges_of(faces: NDArray[np.int32]) -> NDArray[np.int32]:
    return edge_ids(faces)[0]


_MAX_FACES_INTERSECTED = 20_000
"""Face count up to which self-intersections of the raw scan are counted: the count takes quadratic time."""


@dataclass(frozen=True)
class Finish:
    """Resampling and acceptance criteria of every repair."""

    target_edge_m: float
    smooth_iterations: int
    max_displacement_fraction: float
    max_filled_fraction: float
    min_component_fraction: float


@dataclass(frozen=True)
class _Repaired:
    """A closed surface and how it was obtained."""

    surface: Surface
    rung: str
    displacement: Displacement


_Rung = Callable[[Surface, Finish, RepairLog], Surface]


def climb(
    patches: Surface, finish: Finish, log: RepairLog, progress: Callable[[float, str], None]
) -> _Repaired:
    """Try the repairs in order on the fruit's raw surface; raise InputError if none passes."""
    reasons: list[str] = []
    for index, (name, rung) in enumerate(_RUNGS):
        progress(index / len(_RUNGS), f"repair: {name}")
        attempt = RepairLog()
        built = rung(patches, finish, attempt)
        fault, displacement = _shape_fault(built), None
        if fault is None:
            surface = resample(built, finish, attempt)
            fault, displacement = check(surface, patches, finish)
        if fault is None and displacement is not None:
            log.extend(attempt)
            if len(patches.faces) <= _MAX_FACES_INTERSECTED:
                log.add("self-intersections", _intersections(patches), 0, "pairs of faces")
            log.add(
                "rung",
                index + 1,
                index + 1,
                name + (f" (earlier attempts: {'; '.join(reasons)})" if reasons else ""),
            )
            return _Repaired(surface, name, displacement)
        reasons.append(f"{name} failed: {fault}")
    raise InputError(
        f"The scan could not be closed: {'; '.join(reasons)}. The clean surface must be closed, free of "
        "self-intersections and close to the scan. Scan the missing parts, or raise "
        "clean.max_displacement_fraction "
        "or clean.max_filled_fraction if you accept a guess."
    )


def resample(surface: Surface, finish: Finish, log: RepairLog) -> Surface:
    """Smooth and bring to the target edge length."""
    if len(surface.faces) == 0:
        return surface
    fine = split_long_edges(surface, finish.target_edge_m)
    log.add("split long edges", len(surface.faces), len(fine.faces), "faces")
    smoothed = smooth(fine, finish.smooth_iterations)
    coarse = flip_edges(decimate(smoothed, finish.target_edge_m))
    log.add("decimate", len(fine.faces), len(coarse.faces), f"faces, target edge {finish.target_edge_m:g} m")
    return coarse


def _shape_fault(surface: Surface) -> str | None:
    """Return what keeps a surface from being the closed boundary of one body; None if nothing does."""
    if len(surface.faces) == 0:
        return "no surface remained"
    if not is_closed(surface.faces):
        return f"{topology.count_open_edges(surface)} edges without exactly two faces remain"
    if len(topology.separate_non_manifold(surface).vertices) != len(surface.vertices):
        return "parts of the surface touch in single points"
    pieces = int(face_components(surface.faces, len(surface.vertices)).max()) + 1
    if pieces > 1:
        return f"{pieces} separate pieces remain"
    if surface.volume_m3 <= 0.0:
        return "it encloses no volume"
    return None


def check(
    surface: Surface, raw: Surface | np.ndarray, finish: Finish
) -> tuple[str | None, Displacement | None]:
    """Return the fault of a resampled surface, if any, and its displacement if the shape is valid."""
    fault = _shape_fault(surface)
    if fault is not None:
        return fault, None
    crossing = _intersections(surface)
    if crossing:
        return f"{crossing} pairs of faces intersect", None
    displacement = measure_displacement(raw, surface)
    if displacement.filled_area_fraction > finish.max_filled_fraction:
        return (
            f"{displacement.filled_area_fraction:.0%} of the surface was not scanned "
            f"(allowed: {finish.max_filled_fraction:.0%})"
        ), displacement
    if displacement.moved_fraction > finish.max_displacement_fraction:
        return (
            f"the surface moved by {displacement.moved_fraction:.1%} of its size "
            f"(allowed: {finish.max_displacement_fraction:.1%})"
        ), displacement
    return None, displacement


def _intersections(surface: Surface) -> int:
    return len(to_open3d(surface).get_self_intersecting_triangles())


def _intact(patches: Surface, _finish: Finish, log: RepairLog) -> Surface:
    return _outward(patches, log)


def _patched(patches: Surface, finish: Finish, log: RepairLog) -> Surface:
    oriented = _outward(_separated(patches, finish, log), log)
    filled, holes = _fill_holes(oriented, target_edge_m=finish.target_edge_m)
    log.add("fill holes", holes, 0, f"{topology.count_open_edges(oriented)} open edges")
    return filled


def _separated(patches: Surface, finish: Finish, log: RepairLog) -> Surface:
    separate = topology.separate_non_manifold(patches)
    kept = drop_fragments(separate, min_component_fraction=finish.min_component_fraction)
    before, after = topology.count_non_manifold_edges(patches), topology.count_non_manifold_edges(kept)
    fins = len(separate.faces) - len(kept.faces)
    log.add(
        "separate non-manifold edges", before, after, f"edges with more than two faces; {fins} faces came off"
    )
    return kept


def _welded(patches: Surface, finish: Finish, log: RepairLog) -> Surface:
    width = topology.crack_width(patches)
    welded = topology.weld_close_vertices(patches, width)
    log.add(
        "weld vertices",
        len(patches.vertices),
        len(welded.vertices),
        f"cracks up to {width * 1e3:.2g} mm",
    )
    tidy = topology.drop_duplicate_faces(topology.drop_degenerate_faces(welded))
    return _patched(tidy, finish, log)


def _reconstructed(patches: Surface, finish: Finish, log: RepairLog) -> Surface:
    oriented = _outward(_separated(patches, finish, log), log)
    closed = _surface_from_patches(oriented, target_edge_m=finish.target_edge_m)
    log.add("reconstruct (Poisson)", len(patches.faces), len(closed.faces), "faces")
    return closed


def _outward(surface: Surface, log: RepairLog) -> Surface:
    oriented = topology.orient_consistently(surface)
    if oriented is None:
        log.add("orient faces", 0, 0, "the surface is one-sided")
        return surface
    flipped = int(np.count_nonzero(np.any(oriented.faces != surface.faces, axis=1)))
    log.add("flip faces", flipped, 0, "faces flipped to point outward")
    return oriented


_RUNGS: tuple[tuple[str, _Rung], ...] = (
    ("intact", _intact),
    ("patched", _patched),
    ("welded", _welded),
    ("reconstructed", _reconstructed),
)
