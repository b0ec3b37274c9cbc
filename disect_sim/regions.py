"""Anatomy of a body: regions (core, stone, peel) and grain, as ratios to the flesh on its tets and cut samples.

A region multiplies Young's modulus, density and fracture toughness, and may have shares of the toughness of its own. A
tet on a region's boundary carries the volume fraction of the region, found by sampling; a sample of the cut surface is
inside or outside. A rigid region stops the knife. The grain multiplies the toughness of the flesh by the direction in
which the crack advances. All ratios refer to the flesh, so that a fit of the flesh's numbers scales the whole body.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from disect_sim.outcome import InputError

if TYPE_CHECKING:
    from disect_sim.virtual_nodes.signed_distance import CuttingSurface

_SHAPES = ("ellipsoid", "cylinder", "surface", "peel")
SAMPLES_PER_TET = 128
"""Points per tet for volume fractions; the error of a region's volume is measured in tests/disect_sim/test_regions.py.
"""
_ADVANCE = np.array([0.0, -1.0, 0.0])
"""Direction in which the blade's edge, which lies along z, advances the crack [-]."""
_OUTLINE_M = 1.0e-3
"""Spacing of the outline of rigid regions along the blade [m]."""
_ON_AXIS_M = 1.0e-9
"""Distance from the grain's axis below which radial and tangential are the same [m]."""


@dataclass(frozen=True)
class Shape:
    """Closed volume in the body's frame."""

    kind: str
    """A name in _SHAPES. Peel: everything within `size[0]` of the surface."""
    frame: np.ndarray
    """Pose of the shape's own axes in the body's frame, translation in [m], shape [4, 4]; a cylinder's axis is z."""
    size: np.ndarray
    """Semi-axes of the ellipsoid; radius, radius, half height of the cylinder; thickness of the peel [m], shape [3]."""
    vertices: np.ndarray
    """Vertices of the surface in the body's frame [m], shape [vertex_count, 3]; empty for primitives."""
    faces: np.ndarray
    """Triangles, normals outwards, shape [face_count, 3]."""

    @classmethod
    def primitive(cls, kind: str, frame: np.ndarray, size: Sequence[float]) -> "Shape":
        """Return an ellipsoid or a cylinder."""
        none = np.zeros((0, 3))
        return cls(kind, np.asarray(frame, float), np.asarray(size, float), none, none.astype(np.int32))

    @classmethod
    def sphere(cls, centre: Sequence[float], radius: float) -> "Shape":
        """Return a sphere with this centre and radius [m]."""
        frame = np.eye(4)
        frame[:3, 3] = centre
        return cls.primitive("ellipsoid", frame, (radius,) * 3)

    def moved(self, frame: np.ndarray) -> "Shape":
        """Return the shape after a rigid motion, a 4x4 matrix with its translation in [m]."""
        vertices = self.vertices @ frame[:3, :3].T + frame[:3, 3]
        return replace(self, frame=frame @ self.frame, vertices=vertices)

    @cached_property
    def _distance(self) -> "CuttingSurface":
        from disect_sim.virtual_nodes.signed_distance import CuttingSurface

        return CuttingSurface(self.vertices, self.faces)

    def contains(self, points: np.ndarray) -> np.ndarray:
        """Return True for points [m], shape [point_count, 3], inside."""
        local = (points - self.frame[:3, 3]) @ self.frame[:3, :3]
        if self.kind == "ellipsoid":
            return np.asarray(((local / self.size) ** 2).sum(axis=1) <= 1.0)
        if self.kind == "cylinder":
            inside = np.hypot(local[:, 0], local[:, 1]) <= self.size[0]
            return np.asarray(inside & (np.abs(local[:, 2]) <= self.size[2]))
        inside = np.zeros(len(points), bool)
        low, high = self.bounds
        near = np.flatnonzero(((points >= low) & (points <= high)).all(axis=1))
        if self.kind == "peel":
            # A body's mesh may lie a little outside the scanned surface, so a peel counts on both sides of it.
            distance = self._distance.signed_distance(points[near], np.full(len(near), self.size[0]))
            inside[near] = np.abs(distance) <= self.size[0]
        else:
            inside[near] = self._distance.signed_distance(points[near]) <= 0.0
        return inside

    def crossed(self, corners: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return those of the tets `which` that the boundary may cross, and those wholly inside; for surface and peel.

        By the distance of the centroid and the tet's radius; corners: [m], shape [tet_count, 4, 3].
        """
        middle = corners[which].mean(axis=1)
        reach = np.linalg.norm(corners[which] - middle[:, None], axis=2).max(axis=1)
        if self.kind == "peel":
            away = np.abs(self._distance.signed_distance(middle, reach + self.size[0]))
            inside, outside = away + reach <= self.size[0], away - reach > self.size[0]
        else:
            away = self._distance.signed_distance(middle)
            inside, outside = away < -reach, away > reach
        return which[~inside & ~outside], which[inside]

    @property
    def volume_m3(self) -> float:
        """Volume [m^3]; of a peel: area times thickness, an upper bound."""
        if self.kind == "ellipsoid":
            return float(4.0 / 3.0 * np.pi * self.size.prod())
        if self.kind == "cylinder":
            return float(2.0 * np.pi * self.size[0] ** 2 * self.size[2])
        a, b, c = (self.vertices[self.faces[:, k]] for k in range(3))
        if self.kind == "peel":
            return float(0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1).sum() * self.size[0])
        return float(np.einsum("ij,ij->", a, np.cross(b, c)) / 6.0)

    @property
    def thickness_m(self) -> float:
        """Smallest extent [m]; of a surface 2 x volume / area, that of a plate."""
        if self.kind == "peel":
            return float(self.size[0])
        if self.kind != "surface":
            return float(2.0 * self.size.min())
        a, b, c = (self.vertices[self.faces[:, k]] for k in range(3))
        area = 0.5 * np.linalg.norm(np.cross(b - a, c - a), axis=1).sum()
        return float(2.0 * self.volume_m3 / area)

    @property
    def bounds(self) -> np.ndarray:
        """Lowest and highest corner of the bounding box in the body's frame [m], shape [2, 3]."""
        if len(self.vertices):
            around = self.size[0] if self.kind == "peel" else 0.0
            return np.stack([self.vertices.min(axis=0) - around, self.vertices.max(axis=0) + around])
        scaled = self.frame[:3, :3] * self.size
        reach = np.linalg.norm(scaled, axis=1)
        if self.kind == "cylinder":
            reach = np.linalg.norm(scaled[:, :2], axis=1) + np.abs(scaled[:, 2])
        return np.stack([self.frame[:3, 3] - reach, self.frame[:3, 3] + reach])


@dataclass(frozen=True)
class Region:
    """A part of the body with properties of its own, relative to the flesh."""

    name: str
    shape: Shape
    young_ratio: float = 1.0
    """Young's modulus over the flesh's [-]."""
    poisson: float | None = None
    """Poisson's ratio [-]; None: as the flesh."""
    density_ratio: float = 1.0
    """Density over the flesh's [-]."""
    toughness_ratio: float = 1.0
    """Fracture toughness over the flesh's [-]."""
    press: float | None = None
    """Press share of its toughness [-]; None: as the flesh."""
    drag: float | None = None
    """Drag share of its toughness [-]; None: as the flesh."""
    rigid: bool = False
    """True for a stone: the knife stops where it meets the region."""


@dataclass(frozen=True)
class Grain:
    """Toughness of the flesh by the direction in which the crack advances, relative to an axis of the fruit."""

    point: np.ndarray
    """Point of the axis [m], shape [3]."""
    axis: np.ndarray
    """Unit vector from stem to bottom [-], shape [3]."""
    ratios: np.ndarray
    """Factors on the toughness of a crack that advances radially, tangentially, along the axis [-], shape [3]."""

    def weights(self, points: np.ndarray) -> np.ndarray:
        """Return squared direction cosines of the advance (radial, tangential, axial), shape [point_count, 3]."""
        away = points - self.point
        away = away - np.outer(away @ self.axis, self.axis)
        axial = np.full(len(points), float(_ADVANCE @ self.axis) ** 2)
        radial = (away @ _ADVANCE) ** 2 / ((away**2).sum(axis=1) + _ON_AXIS_M**2)
        return np.stack([radial, 1.0 - radial - axial, axial], axis=1)

    def moved(self, frame: np.ndarray) -> "Grain":
        """Return the grain after a rigid motion, a 4x4 matrix with its translation in [m]."""
        return replace(self, point=frame[:3, :3] @ self.point + frame[:3, 3], axis=frame[:3, :3] @ self.axis)


@dataclass(frozen=True)
class Anatomy:
    """Regions, which must not overlap, and grain of a body."""

    regions: tuple[Region, ...] = ()
    grain: Grain | None = None

    def __bool__(self) -> bool:
        return bool(self.regions) or self.grain is not None

    def moved(self, frame: np.ndarray) -> "Anatomy":
        """Return the anatomy after a rigid motion, a 4x4 matrix with its translation in [m]."""
        regions = tuple(replace(one, shape=one.shape.moved(frame)) for one in self.regions)
        return Anatomy(regions, None if self.grain is None else self.grain.moved(frame))

    def ratios(self, name: str) -> np.ndarray:
        """Return a property of all regions (`young_ratio`, ...), shape [region_count]."""
        return np.array([getattr(one, name) for one in self.regions])

    def contained(self, points: np.ndarray) -> np.ndarray:
        """Return 1 where a point [m], shape [point_count, 3], is in a region, shape [point_count, region_count]."""
        inside = [one.shape.contains(points) for one in self.regions]
        return np.stack(inside, axis=1).astype(float) if inside else np.zeros((len(points), 0))


def tet_shares(anatomy: Anatomy, corners: np.ndarray, count: int = SAMPLES_PER_TET) -> np.ndarray:
    """Return the volume fraction of every region in every tet, shape [tet_count, region_count].

    corners: [m], shape [tet_count, 4, 3]. Tets clear of a region's boundary are not sampled.
    """
    weights = _spread_over_tet(count)
    shares = np.zeros((len(corners), len(anatomy.regions)))
    low, high = corners.min(axis=1), corners.max(axis=1)
    for column, region in enumerate(anatomy.regions):
        box = region.shape.bounds
        near = np.flatnonzero(((high >= box[0]) & (low <= box[1])).all(axis=1))
        if region.shape.kind in ("surface", "peel"):
            near, inside_wholly = region.shape.crossed(corners, near)
            shares[inside_wholly, column] = 1.0
        for chosen in np.array_split(near, max(1, len(near) // 2000)):
            points = np.einsum("pa,tax->tpx", weights, corners[chosen]).reshape(-1, 3)
            inside = region.shape.contains(points).reshape(len(chosen), -1)
            shares[chosen, column] = inside.mean(axis=1)
    return shares


def _spread_over_tet(count: int) -> np.ndarray:
    """Return barycentric coordinates of points spread evenly over a tet, shape [count, 4].

    A Kronecker sequence in the unit cube, sorted: the gaps between the sorted coordinates are uniform over the simplex.
    """
    root = 1.2207440846057596  # of x^4 = x + 1
    steps = (1.0 / root) ** np.arange(1, 4)
    cube = np.sort((0.5 + np.outer(np.arange(1, count + 1), steps)) % 1.0, axis=1)
    edges = np.concatenate([np.zeros((count, 1)), cube, np.ones((count, 1))], axis=1)
    return np.diff(edges, axis=1)


@dataclass(frozen=True)
class SampleFields:
    """Anatomy at the samples of the cut surface."""

    shares: np.ndarray
    """1 in the sample's region, shape [sample_count, region_count]."""
    grain: np.ndarray
    """Weights of the grain's ratios in the flesh [-], shape [sample_count, 3]; 0 in regions and without grain."""
    toughness: np.ndarray
    """Factor on the fracture toughness [-], shape [sample_count]."""
    own: dict[str, tuple[np.ndarray, np.ndarray]]
    """Share name (press, drag) → fraction that takes the flesh's value, and the rest's own value, [sample_count]."""

    def repeated(self, copies: int) -> "SampleFields":
        """Return the fields of `copies` copies of the body."""

        def again(values: np.ndarray) -> np.ndarray:
            return np.concatenate([values] * copies)

        own = {name: (again(flesh), again(value)) for name, (flesh, value) in self.own.items()}
        return SampleFields(again(self.shares), again(self.grain), again(self.toughness), own)


def sample_fields(anatomy: Anatomy, points: np.ndarray) -> SampleFields:
    """Return the anatomy at samples of the cut surface at rest [m], shape [sample_count, 3]."""
    shares = anatomy.contained(points)
    flesh = 1.0 - shares.sum(axis=1)
    grain = np.zeros((len(points), 3))
    toughness = flesh.copy()
    if anatomy.grain is not None:
        grain = flesh[:, None] * anatomy.grain.weights(points)
        toughness = grain @ anatomy.grain.ratios
    own = {}
    for name in ("press", "drag"):
        values = [getattr(one, name) for one in anatomy.regions]
        stated = np.array([value is not None for value in values], float)
        numbers = np.array([0.0 if value is None else value for value in values])
        own[name] = (1.0 - shares @ stated, shares @ numbers)
    return SampleFields(shares, grain, toughness + shares @ anatomy.ratios("toughness_ratio"), own)


def lame_ratios(anatomy: Anatomy, poisson: float) -> np.ndarray:
    """Return mu and lambda of every region over the flesh's [-], shape [2, region_count].

    poisson: of the flesh; a region with a ratio of its own needs poisson > 0, where the flesh's lambda is not 0.
    """

    def per_young(nu: float) -> np.ndarray:
        return np.array([0.5 / (1.0 + nu), nu / ((1.0 + nu) * (1.0 - 2.0 * nu))])

    flesh = per_young(poisson)
    ratios = np.ones((2, len(anatomy.regions)))
    for column, one in enumerate(anatomy.regions):
        if one.poisson is None:
            continue
        if not poisson > 0.0:
            raise InputError(
                f"region {one.name!r}: poisson is {one.poisson:g}, but that of the flesh is {poisson:g}. Ratios to the "
                "flesh need one > 0. Leave out the region's, or raise the flesh's."
            )
        ratios[:, column] = per_young(one.poisson) / flesh
    return ratios * anatomy.ratios("young_ratio")


def rigid_tops(anatomy: Anatomy, beside_m: float) -> np.ndarray:
    """Return the upper outline (z, y) [m] of the rigid regions within beside_m of the plane x = 0, shape [count, 2]."""
    tops = []
    for one in anatomy.regions:
        low, high = one.shape.bounds
        if not one.rigid or low[0] > beside_m or high[0] < -beside_m:
            continue
        across = np.linspace(max(low[0], -beside_m), min(high[0], beside_m), 9)
        along = np.linspace(low[2], high[2], max(2, int(np.ceil((high[2] - low[2]) / _OUTLINE_M)) + 1))
        up = np.linspace(low[1], high[1], max(2, int(np.ceil((high[1] - low[1]) / (0.25 * _OUTLINE_M))) + 1))
        x, z, y = np.meshgrid(across, along, up, indexing="ij")
        points = np.stack([x, y, z], axis=-1).reshape(-1, 3)
        inside: np.ndarray = one.shape.contains(points).reshape(x.shape)
        for row, place in zip(np.asarray(inside.any(axis=0)), along, strict=True):
            if row.any():
                tops.append((float(place), float(up[row].max())))
    return np.array(tops).reshape(-1, 2)


def check_regions(regions: Sequence[Region]) -> None:
    """Reject ratios and shares that no material has."""
    for one in regions:
        for name in ("young_ratio", "density_ratio", "toughness_ratio"):
            value = getattr(one, name)
            if not (np.isfinite(value) and value > 0.0):
                raise InputError(
                    f"region {one.name!r}: {name} is {value:g}. It must be a finite number > 0, relative to the flesh. "
                    "Correct it."
                )
        if one.poisson is not None and not 0.0 <= one.poisson < 0.5:
            raise InputError(
                f"region {one.name!r}: poisson is {one.poisson:g}. It must be >= 0 and < 0.5: at 0.5 a body keeps its "
                "volume exactly, which these elements cannot. Use 0.49."
            )
        shares = [value for value in (one.press, one.drag) if value is not None]
        if not all(np.isfinite(value) and value >= 0.0 for value in shares) or sum(shares) > 1.0:
            raise InputError(
                f"region {one.name!r}: press {one.press}, drag {one.drag}. They are shares of its toughness: >= 0, at "
                "most 1 in sum. Correct them."
            )
