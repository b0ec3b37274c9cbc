"""How far cleaning moved the surface, and how much of it the scan never saw."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from stages.shared.surface.open3d_import import open3d
from stages.shared.surface.triangles import Surface, face_areas

SEEN_WITHIN_FRACTION = 0.02
"""Clean surface further from the scan than this fraction of the diagonal was filled in, not scanned."""


@dataclass(frozen=True)
class Displacement:
    """Distances between the raw scan (without removed pieces) and the clean surface."""

    raw_to_clean_max_m: float
    raw_to_clean_rms_m: float
    clean_to_raw_max_m: float
    """Patches over holes included, so about the radius of the largest hole."""
    clean_to_raw_rms_m: float
    filled_area_fraction: float
    """Part of the clean surface's area that the scan has not seen."""
    diagonal_m: float
    """Size of the clean surface the fractions refer to."""

    @property
    def moved_fraction(self) -> float:
        """How far the scanned surface moved at most, as a fraction of the diagonal."""
        return self.raw_to_clean_max_m / self.diagonal_m


def measure_displacement(raw: Surface | NDArray[np.float64], clean: Surface) -> Displacement:
    """Distances from the scan to the clean surface and back, sampled at vertices and face centres.

    Args:
        raw: the scan's surface, or its points [m], shape [point_count, 3].
        clean: the clean surface.
    """
    clean_points, weight = clean.corners.mean(axis=1), face_areas(clean)
    if isinstance(raw, Surface):
        raw_points = np.concatenate([raw.vertices, raw.corners.mean(axis=1)])
        back = distance_to_surface(clean_points, raw)
    else:
        raw_points = raw
        back = cKDTree(raw).query(clean_points)[0]
    there = distance_to_surface(raw_points, clean)
    unseen = back > SEEN_WITHIN_FRACTION * clean.diagonal_m
    return Displacement(
        raw_to_clean_max_m=float(there.max()),
        raw_to_clean_rms_m=float(np.sqrt(np.mean(there**2))),
        clean_to_raw_max_m=float(back.max()),
        clean_to_raw_rms_m=float(np.sqrt(np.average(back**2, weights=weight))),
        filled_area_fraction=float(weight[unseen].sum() / weight.sum()),
        diagonal_m=clean.diagonal_m,
    )


def distance_to_surface(points: NDArray[np.float64], surface: Surface) -> NDArray[np.float64]:
    """Distance of each point to the surface [m], shape [point_count]; computed in float32 about the
    centre."""
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
