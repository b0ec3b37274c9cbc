"""Section `body` of params.yaml: regions (core, stone, peel) and grain of a fruit; their tables, from scan to cut mesh.

Regions are given in the axes of the scan file, in metres, relative to the flesh. `clean` places them in the cutting
frame, `halve` moves them into the half, `precut` hands them on with the cut mesh.
"""

from collections.abc import Callable, Mapping
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from disect_sim.regions import Anatomy, Grain, Region, Shape
from stages.runtime.describe import Artifact, Column, Positive, SharedSection, StageParams, Vector, table
from stages.runtime.errors import InputError
from stages.shared.library.library import grain_of
from stages.shared.surface import POSITION, Surface, is_closed, triangles

if TYPE_CHECKING:
    import polars as pl

_Share = Annotated[float, Field(ge=0, le=1)]
_SHAPE_KEYS = {
    "sphere": ("centre_m", "radius_m"),
    "ellipsoid": ("centre_m", "semi_axes_m"),
    "cylinder": ("centre_m", "radius_m", "height_m", "axis"),
    "file": ("file",),
    "peel": ("thickness_m",),
}
"""Keys that a shape needs; an ellipsoid may have a rotation, a file its digest."""
_OPTIONAL = {"ellipsoid": ("rotation_deg",), "file": ("sha256",)}
_RIGID_YOUNG = 100.0
"""Young's modulus of a rigid region over the flesh's, if not stated: its own deformation is then below 1 %."""
_LEAST_THICKNESS_M = 1.5e-3
"""Least thickness of a region [m]: the cut is sampled every 1.25 mm."""
_OUTSIDE, _OVERLAP = 0.02, 0.01
"""Fractions of a region's points that may lie outside the body, or in another region: rounding of the surfaces."""
_POINTS = 4000
"""Points of a region's bounding box at which it is compared with other regions."""
_POINTS_IN_BODY = 300
"""Points of a region that are compared with the body: distances to its surface take longer."""


class _RegionParams(StageParams):
    """A region: shape in the axes of the scan file [m], properties relative to the flesh."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
    shape: Literal["sphere", "ellipsoid", "cylinder", "file", "peel"]
    centre_m: Vector | None = None
    radius_m: Positive | None = None
    semi_axes_m: tuple[Positive, Positive, Positive] | None = None
    rotation_deg: Vector | None = None
    """Of an ellipsoid, about the scan's x, y, z axis in this order."""
    axis: Vector | None = None
    height_m: Positive | None = None
    thickness_m: Positive | None = None
    """Of a peel: the layer below the scanned surface."""
    file: str | None = None
    """Closed triangle mesh in the axes and unit of the scan file."""
    sha256: str | None = None
    """Digest of the file, written at registration, so that a changed file makes results stale."""
    young_ratio: Positive | None = None
    """Young's modulus over the flesh's; by default 1, for a rigid region 100."""
    poisson: Annotated[float, Field(ge=0, lt=0.5)] | None = None
    density_ratio: Positive = 1.0
    toughness_ratio: Positive = 1.0
    press: _Share | None = None
    drag: _Share | None = None
    rigid: bool = False
    """True for a stone: the knife stops there."""

    @model_validator(mode="after")
    def _has_its_keys(self) -> Self:
        needed = _SHAPE_KEYS[self.shape]
        allowed = {*needed, *_OPTIONAL.get(self.shape, ())}
        every = {key for keys in (*_SHAPE_KEYS.values(), *_OPTIONAL.values()) for key in keys}
        missing = [key for key in needed if getattr(self, key) is None]
        extra = sorted(key for key in every - allowed if getattr(self, key) is not None)
        if missing or extra:
            wrong = f"{missing[0]} is missing" if missing else f"{extra[0]} is given"
            raise ValueError(f"{wrong}; a region of shape {self.shape} must have {', '.join(needed)}")
        if self.axis is not None and not np.linalg.norm(self.axis) > 0.0:
            raise ValueError("axis must not be zero")
        if (self.press or 0.0) + (self.drag or 0.0) > 1.0:
            raise ValueError("press + drag must be at most 1: they are shares of the toughness")
        return self


class _GrainParams(StageParams):
    """Toughness of the flesh by the direction in which the crack advances; radial is 1."""

    axis: Vector
    """From stem to bottom, in the axes of the scan file."""
    point_m: Vector | None = None
    """Point of the axis; by default the body's centre of mass."""
    tangential: Positive | None = None
    """Toughness of a crack that advances around the axis over that of one that advances radially; by default the
    material's in the library."""
    axial: Positive = 1.0

    @model_validator(mode="after")
    def _has_a_direction(self) -> Self:
        if not np.linalg.norm(self.axis) > 0.0:
            raise ValueError("axis must not be zero")
        return self


class BodyParams(SharedSection):
    """body: regions and grain of the fruit."""

    regions: tuple[_RegionParams, ...]
    grain: _GrainParams | None = None

    @model_validator(mode="after")
    def _has_unique_names(self) -> Self:
        names = [one.name for one in self.regions]
        if len(set(names)) < len(names):
            raise ValueError("every region must have a name of its own")
        return self


# From the parameters to the cutting frame


def anatomy_of(
    params: BodyParams,
    body: Surface,
    frame: np.ndarray,
    *,
    metres_per_unit: float,
    material: str,
    folder: Path,
) -> Anatomy:
    """Return regions and grain in the cutting frame; raise InputError for a region that the body can't have.

    body: closed surface in the cutting frame. frame: 4x4 matrix from the axes of the scan file, in metres, to it.
    metres_per_unit: of the scan file, for files of regions in `folder`.
    """
    regions = []
    for number, one in enumerate(params.regions):
        where = f"body.regions.{number} ({one.name!r})"
        shape = _shape(one, where, metres_per_unit, folder)
        if shape is None:
            none = np.zeros(3)
            shape = Shape("peel", np.eye(4), none + float(one.thickness_m or 0.0), body.vertices, body.faces)
        else:
            shape = shape.moved(frame)
        young = one.young_ratio or (_RIGID_YOUNG if one.rigid else 1.0)
        regions.append(
            Region(
                one.name,
                shape,
                young,
                one.poisson,
                one.density_ratio,
                one.toughness_ratio,
                one.press,
                one.drag,
                one.rigid,
            )
        )
    _check(regions, body)
    return Anatomy(tuple(regions), _grain(params.grain, body, frame, material))


def _grain(params: _GrainParams | None, body: Surface, frame: np.ndarray, material: str) -> Grain | None:
    if params is None:
        return None
    from stages.shared.surface import solid_moments

    axis = frame[:3, :3] @ (np.array(params.axis) / np.linalg.norm(params.axis))
    point = solid_moments(body)[0]
    if params.point_m is not None:
        point = frame[:3, :3] @ np.array(params.point_m) + frame[:3, 3]
    tangential = grain_of(material) if params.tangential is None else params.tangential
    return Grain(point, axis, np.array([1.0, tangential, params.axial]))


def _shape(one: _RegionParams, where: str, metres_per_unit: float, folder: Path) -> Shape | None:
    """Return the shape in the axes of the scan file [m]; None for a peel."""
    from scipy.spatial.transform import Rotation

    if one.shape == "peel":
        return None
    if one.file is not None:
        surface = _closed_surface(folder / one.file, where, one.sha256)
        return Shape("surface", np.eye(4), np.zeros(3), metres_per_unit * surface.vertices, surface.faces)
    frame = np.eye(4)
    frame[:3, 3] = one.centre_m or (0.0, 0.0, 0.0)
    radius = one.radius_m or 0.0
    if one.shape == "cylinder":
        axis = np.array(one.axis) / np.linalg.norm(np.array(one.axis))
        frame[:3, :3] = Rotation.align_vectors(axis[None], np.array([[0.0, 0.0, 1.0]]))[0].as_matrix()
        return Shape.primitive("cylinder", frame, (radius, radius, 0.5 * (one.height_m or 0.0)))
    if one.rotation_deg is not None:
        frame[:3, :3] = Rotation.from_euler("xyz", one.rotation_deg, degrees=True).as_matrix()
    return Shape.primitive("ellipsoid", frame, one.semi_axes_m or (radius,) * 3)


def _closed_surface(path: Path, where: str, digest: str | None) -> Surface:
    import trimesh

    try:
        data = path.read_bytes()
        mesh = trimesh.load_mesh(path, process=True)
        vertices, faces = np.asarray(mesh.vertices, float), np.asarray(mesh.faces, np.int32)
    except Exception as error:  # a parser fed with garbage may raise anything
        raise InputError(
            f"{where}: file {path.name!r} can't be read ({type(error).__name__}). It must be a triangle mesh (.ply, "
            ".stl, .obj, .off) in the scan's directory. Give it again with --set body.regions=…"
        ) from error
    if digest is not None and sha256(data).hexdigest() != digest:
        raise InputError(
            f"{where}: file {path.name!r} has changed since it was registered. A region must be the registered one. "
            "Run 'scan2cut run SCAN' with the same --set body.regions again."
        )
    surface = Surface(vertices, faces)
    if not len(faces) or not np.isfinite(vertices).all() or not is_closed(faces):
        raise InputError(
            f"{where}: file {path.name!r} is not a closed surface. A region must enclose a volume. Close its holes."
        )
    return surface if surface.volume_m3 > 0.0 else Surface(vertices, faces[:, ::-1].copy())


def _check(regions: list[Region], body: Surface) -> None:
    """Reject regions that are too thin, larger than the body, outside it, or overlapping."""
    from disect_sim.virtual_nodes.signed_distance import CuttingSurface

    skin = CuttingSurface(body.vertices, body.faces) if regions else None
    points = {}
    for one in regions:
        shape = one.shape
        if shape.thickness_m < _LEAST_THICKNESS_M:
            raise InputError(
                f"body.regions: {one.name!r} is {1e3 * shape.thickness_m:.2g} mm thick. The cut is sampled every "
                f"1.25 mm, so a region must have at least {1e3 * _LEAST_THICKNESS_M:g} mm. Make it thicker, or model a "
                "thin skin by cut.parameters.skin_toughness."
            )
        if shape.kind != "peel" and shape.volume_m3 >= body.volume_m3:
            raise InputError(
                f"body.regions: {one.name!r} has {1e6 * shape.volume_m3:.4g} cm³, the fruit {1e6 * body.volume_m3:.4g} "
                "cm³. A region must be smaller than the fruit. Check its size: lengths are in metres."
            )
        points[one.name] = _points_in(shape)
        few = points[one.name][:: max(1, len(points[one.name]) // _POINTS_IN_BODY)]
        outside = float((skin.signed_distance(few) > 0.0).mean()) if skin else 0.0
        if shape.kind != "peel" and outside > _OUTSIDE:
            low, high = body.vertices.min(axis=0), body.vertices.max(axis=0)
            raise InputError(
                f"body.regions: {100 * outside:.0f} % of {one.name!r} lies outside the fruit: in the cutting frame it "
                f"reaches from {_mm(shape.bounds[0])} to {_mm(shape.bounds[1])} mm, the fruit from {_mm(low)} to "
                f"{_mm(high)} mm. A region must lie inside. Move or shrink it; positions are in the axes of the scan "
                "file, in metres."
            )
    for one, other in combinations(regions, 2):
        shared = max(float(b.shape.contains(points[a.name]).mean()) for a, b in ((one, other), (other, one)))
        if shared > _OVERLAP:
            raise InputError(
                f"body.regions: {one.name!r} and {other.name!r} overlap by {100 * shared:.0f} % of the smaller one. A "
                "point belongs to one region at most. Move or shrink one of them."
            )


def _mm(point: np.ndarray) -> str:
    return "(" + ", ".join(f"{1e3 * value:.0f}" for value in point) + ")"


def _points_in(shape: Shape) -> np.ndarray:
    """Return points inside the shape [m], shape [count, 3]; the middle of its box if the sampling meets none."""
    low, high = shape.bounds
    cube = (0.5 + np.outer(np.arange(_POINTS), (0.8191725134, 0.6710436067, 0.5497004779))) % 1.0
    points = low + cube * (high - low)
    inside = points[shape.contains(points)]
    return inside if len(inside) else 0.5 * (low + high)[None]


# Tables: clean/…, halve/…, precut/… and precut_half/…


FRAME = "frame_of_scan"
"""Note of clean/regions: 4x4 matrix from the axes of the scan file, in metres, to the cutting frame, as JSON."""
_TABLES = ("regions", "region_vertices", "region_faces", "grain")
_NOT_STATED = -1.0
"""Value of a property that is the flesh's."""


def anatomy_tables(stage: str) -> tuple[Artifact, ...]:
    """Describe the tables of regions and grain that the stage writes."""
    index = Column("region", "i32", "index", f"row of {stage}/regions")
    own = f"; {_NOT_STATED:g}: as the flesh"
    ratios = {
        "young_ratio": "Young's modulus over the flesh's",
        "poisson": f"Poisson's ratio{own}",
        "density_ratio": "density over the flesh's",
        "toughness_ratio": "fracture toughness over the flesh's",
        "press": f"press share of the toughness{own}",
        "drag": f"drag share of the toughness{own}",
    }
    return (
        table(
            f"{stage}/regions",
            [
                Column("name", "str", "", "name of the region"),
                Column("shape", "str", "", "ellipsoid, cylinder, surface or peel"),
                Column(
                    "frame",
                    "array[f64,16]",
                    "see meaning",
                    "pose of the shape, rotation [-], translation [m]",
                ),
                Column(
                    "size_m",
                    "array[f64,3]",
                    "m",
                    "semi-axes; radius, radius, half height; thickness of a peel",
                ),
                *(Column(name, "f64", "-", meaning) for name, meaning in ratios.items()),
                Column("rigid", "bool", "", "true if the knife can't cut it"),
            ],
            meaning="regions of the body in the frame of its vertices; the 4x4 pose row by row",
        ),
        table(f"{stage}/region_vertices", [index, POSITION], meaning="vertices of regions given by surfaces"),
        table(
            f"{stage}/region_faces",
            [index, triangles("vertices of the triangle, counted within the region")],
            meaning="triangles of regions given by surfaces",
        ),
        table(
            f"{stage}/grain",
            [
                Column("point_m", "array[f64,3]", "m", "point of the axis"),
                Column("axis", "array[f64,3]", "-", "unit vector from stem to bottom"),
                Column("ratios", "array[f64,3]", "-", "toughness factors: radial, tangential, axial advance"),
            ],
            meaning="grain of the flesh; no row: none",
        ),
    )


def anatomy_names(stage: str) -> tuple[str, ...]:
    """Return the names of the stage's tables of regions and grain."""
    return tuple(f"{stage}/{name}" for name in _TABLES)


def anatomy_frames(anatomy: Anatomy, stage: str) -> "Mapping[str, pl.DataFrame]":
    """Return the tables by artifact name."""
    import polars as pl

    regions, grain = anatomy.regions, anatomy.grain
    numbers = np.arange(len(regions))
    names = ("young_ratio", "poisson", "density_ratio", "toughness_ratio", "press", "drag")

    def vectors(
        name: str, rows: list[np.ndarray], width: int, kind: type[pl.DataType] = pl.Float64
    ) -> pl.Series:
        values = np.concatenate([np.zeros((0, width)), *(row.reshape(-1, width) for row in rows)])
        return pl.Series(name, values, pl.Array(pl.Float64, width)).cast(pl.Array(kind, width))

    def value(one: Region, name: str) -> float:
        stated = getattr(one, name)
        return _NOT_STATED if stated is None else float(stated)

    owners = {
        key: np.repeat(numbers, [len(getattr(r.shape, key)) for r in regions])
        for key in ("vertices", "faces")
    }
    return {
        f"{stage}/regions": pl.DataFrame(
            [
                pl.Series("name", [one.name for one in regions], pl.String),
                pl.Series("shape", [one.shape.kind for one in regions], pl.String),
                vectors("frame", [one.shape.frame for one in regions], 16),
                vectors("size_m", [one.shape.size for one in regions], 3),
                *(pl.Series(name, [value(one, name) for one in regions], pl.Float64) for name in names),
                pl.Series("rigid", [one.rigid for one in regions], pl.Boolean),
            ]
        ),
        f"{stage}/region_vertices": pl.DataFrame(
            [
                pl.Series("region", owners["vertices"], pl.Int32),
                vectors("position_m", [one.shape.vertices for one in regions], 3),
            ]
        ),
        f"{stage}/region_faces": pl.DataFrame(
            [
                pl.Series("region", owners["faces"], pl.Int32),
                vectors("vertices", [one.shape.faces for one in regions], 3, pl.Int32),
            ]
        ),
        f"{stage}/grain": pl.DataFrame(
            [
                vectors("point_m", [] if grain is None else [grain.point], 3),
                vectors("axis", [] if grain is None else [grain.axis], 3),
                vectors("ratios", [] if grain is None else [grain.ratios], 3),
            ]
        ),
    }


def read_anatomy(read: "Callable[[str], pl.DataFrame]", stage: str, *, along_x_m: float = 0.0) -> Anatomy:
    """Return regions and grain from the stage's tables, moved along x; `read` maps an artifact's name to its table."""
    import polars as pl

    vertices, faces = read(f"{stage}/region_vertices"), read(f"{stage}/region_faces")
    regions = []
    for number, row in enumerate(read(f"{stage}/regions").iter_rows(named=True)):
        corners = vertices.filter(pl.col("region") == number)["position_m"].to_numpy().reshape(-1, 3)
        around = faces.filter(pl.col("region") == number)["vertices"].to_numpy().reshape(-1, 3)
        frame, size = np.array(row["frame"]).reshape(4, 4), np.array(row["size_m"])
        stated: dict[str, Any] = {
            name: None if row[name] == _NOT_STATED else row[name] for name in ("poisson", "press", "drag")
        }
        ratios = {name: row[name] for name in ("young_ratio", "density_ratio", "toughness_ratio")}
        shape = Shape(row["shape"], frame, size, corners, around)
        regions.append(Region(row["name"], shape, **ratios, **stated, rigid=row["rigid"]))
    grain = [
        Grain(np.array(row["point_m"]), np.array(row["axis"]), np.array(row["ratios"]))
        for row in read(f"{stage}/grain").iter_rows(named=True)
    ]
    frame = np.eye(4)
    frame[0, 3] = along_x_m
    return Anatomy(tuple(regions), grain[0] if grain else None).moved(frame)
