"""Closing a surface by screened Poisson reconstruction from oriented points."""

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.clean.resampling import from_open3d, split_long_edges
from stages.runtime.quiet import quiet_stderr
from stages.shared.surface.open3d_import import open3d
from stages.shared.surface.triangles import (
    Surface,
    face_components,
    face_normals_doubled,
    subset,
    vertex_normals,
)

POISSON_DEPTH_RANGE = (5, 8)
"""Octree depths: below 5 a fruit is a blob, above 8 (256 cells along an edge) is finer than any target
edge here."""
NEIGHBOURS = 24
"""Points that a normal is fitted to."""
OUTLIER_NEIGHBOURS, OUTLIER_DEVIATIONS = 16, 3.0
"""A point is noise if its mean distance to its neighbours is this many standard deviations above the
average."""
CLUSTER_SPACINGS = 5.0
"""Points further apart than this many typical spacings belong to different pieces."""


def tidy_cloud(points: NDArray[np.float64], *, spacing_m: float) -> tuple[NDArray[np.float64], int]:
    """Thin a cloud to one point per cell, drop outliers and stray clusters; returns points [m] and
    clusters found.

    Args:
        points: positions [m], shape [point_count, 3].
        spacing_m: cell size [m].
    """
    o3d = open3d()
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(np.ascontiguousarray(points)))
    cloud = cloud.voxel_down_sample(spacing_m)
    cloud, _ = cloud.remove_statistical_outlier(OUTLIER_NEIGHBOURS, OUTLIER_DEVIATIONS)
    typical = float(np.median(np.asarray(cloud.compute_nearest_neighbor_distance())))
    label = np.asarray(cloud.cluster_dbscan(eps=CLUSTER_SPACINGS * max(typical, spacing_m), min_points=4))
    if not np.any(label >= 0):
        raise InputError(
            f"The point cloud's {len(label)} points are too scattered to form a surface. "
            "A cloud must cover the fruit evenly. Scan it again."
        )
    sizes = np.bincount(label[label >= 0])
    return np.array(cloud.points)[label == np.argmax(sizes)], len(sizes)


def surface_from_points(points: NDArray[np.float64], *, target_edge_m: float) -> Surface:
    """A surface through points without normals [m], shape [point_count, 3]."""
    o3d = open3d()
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(np.ascontiguousarray(points)))
    cloud.estimate_normals(o3d.geometry.KDTreeSearchParamKNN(NEIGHBOURS))
    cloud.orient_normals_consistent_tangent_plane(NEIGHBOURS)
    normals = np.array(cloud.normals)
    outward = np.einsum("ij,ij->i", points - points.mean(axis=0), normals).sum()
    return _poisson(points, normals if outward >= 0.0 else -normals, target_edge_m=target_edge_m)


def surface_from_patches(surface: Surface, *, target_edge_m: float) -> Surface:
    """A surface through the vertices and face centres of oriented patches."""
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
    # A cell of half the target edge keeps what the target edge can show.
    cells = 2.0 * float(np.ptp(points, axis=0).max()) / target_edge_m
    depth = int(np.clip(np.ceil(np.log2(max(cells, 2.0))), *POISSON_DEPTH_RANGE))
    # One thread: the sums of several threads differ from run to run in the last digits.
    with quiet_stderr():
        mesh, _ = o3d.geometry.TriangleMesh.create_from_point_cloud_poisson(cloud, depth=depth, n_threads=1)
    closed = from_open3d(mesh)
    if len(closed.faces) == 0:
        return closed
    label = face_components(closed.faces, len(closed.vertices))
    return subset(closed, label == np.argmax(np.bincount(label)))
