"""precut: duplicate the tets along the cutting surface and join the two sides by springs."""

import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh, tet_volumes
from disect_sim.regions import SAMPLES_PER_TET, Anatomy, tet_shares
from disect_sim.virtual_nodes.cutting import cut_by_plane, cut_by_surface
from disect_sim.virtual_nodes.split import HalfBody, half_body
from disect_sim.virtual_nodes.topology import outer_faces
from stages.precut.description import PrecutParams
from stages.runtime.errors import InputError
from stages.runtime.stage_io import StageIO
from stages.shared.anatomy import anatomy_frames, read_anatomy
from stages.shared.pictures import CUT, SCAN, WARNING, Layer, Panel, render
from stages.shared.surface import Surface, drop_unused, face_areas, face_normals_doubled

# Picture of the stage


_GAP_FRACTION = 0.9
"""Distance by which the halves are pulled apart, as a fraction of the body's size [-]."""
_MM2_PER_M2 = 1e6


def precut_picture(
    cut: CutMesh, positive: HalfBody, negative: HalfBody, *, normal: NDArray[np.float64]
) -> NDArray[np.uint8]:
    """Draw the halves pulled apart along the unit normal [-] (shape [3]) on the left, springs face-on on the right."""
    shift = 0.5 * _GAP_FRACTION * np.ptp(cut.nodes, axis=0).max() * normal
    virtual = cut.virtual_positions()
    ends = np.concatenate(
        [virtual[cut.spring_virtual[:, 0]] + shift, virtual[cut.spring_virtual[:, 1]] - shift]
    )
    count = len(cut.spring_virtual)
    lines = np.stack([np.arange(count), count + np.arange(count)], axis=1).astype(np.int32)
    skin = cut.spring_surface
    sideways = np.cross(normal, [0.0, 1.0, 0.0]) if abs(normal[1]) < 0.9 else np.array([0.0, 0.0, 1.0])
    apart = [
        *_body(positive, shift),
        *_body(negative, -shift),
        Layer(ends, lines[~skin], colour=SCAN, size=0.5),
        Layer(ends, lines[skin], colour=WARNING, size=1.0),
    ]
    on_cut = virtual[cut.spring_virtual[:, 0]]
    toward_camera = -0.002 * np.ptp(cut.nodes, axis=0).max() * normal
    face_on = [
        Layer(
            positive.vertices, positive.faces[positive.face_on_cut], colour=CUT, opacity=0.35, show_edges=True
        ),
        Layer(on_cut[skin] + toward_camera, colour=WARNING, size=11.0),
        Layer(
            on_cut + 2.0 * toward_camera,
            values=_MM2_PER_M2 * cut.spring_area,
            value_range=(0.0, float(_MM2_PER_M2 * cut.spring_area.max())),
            value_title="area of a spring [mm²]",
            size=7.0,
        ),
        _room_around(on_cut),
    ]
    titles = (
        f"two half-bodies, pulled apart; {count} springs, {int(skin.sum())} of them in the skin (red)",
        f"springs on the cut, {1e4 * cut.spring_area.sum():.2f} cm² (red rim: skin)",
    )
    view = tuple(sideways - 0.6 * normal + np.array([0.0, 0.3, 0.0]))
    return render([Panel(titles[0], apart, view=view), Panel(titles[1], face_on, view=tuple(-normal))])


def _room_around(points: NDArray[np.float64]) -> Layer:
    """Return invisible points above and below the given ones [m], shape [n, 3]: space for title and colour bar."""
    low, high = points.min(axis=0), points.max(axis=0)
    height = np.array([0.0, high[1] - low[1], 0.0])
    return Layer(np.stack([low - 0.25 * height, high + 0.08 * height]), colour="white", size=1.0)


def _body(half: HalfBody, shift: NDArray[np.float64]) -> list[Layer]:
    moved = half.vertices + shift
    return [
        Layer(moved, half.faces[~half.face_on_cut], show_edges=True),
        Layer(moved, half.faces[half.face_on_cut], colour=CUT, show_edges=True),
    ]


# Reading a cutting surface from a mesh file in the scan's directory


_SUFFIXES = (".ply", ".obj", ".stl", ".off", ".glb")


def _read_cutting_surface(path: Path) -> Surface:
    """Read the triangles of a mesh file [m], in the cutting frame, with equal vertices merged."""
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(
            f"precut.surface_file is {path.name!r}. It must be a mesh file ({', '.join(_SUFFIXES)}) in the "
            "scan's directory. Convert the cutting surface to one of these."
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"precut.surface_file {path.name!r} can't be read ({error.strerror}). It must be a file in the "
            f"scan's directory {path.parent}. Give it with 'scan2cut run SCAN --surface FILE'."
        ) from error
    vertices, faces = _parse(data, path)
    if not len(faces):
        raise InputError(
            f"precut.surface_file {path.name!r} has no triangles. A cutting surface is a triangle mesh. "
            "Export it as one."
        )
    if not np.isfinite(vertices).all():
        raise InputError(
            f"precut.surface_file {path.name!r} has vertices that are not finite. Positions must be numbers "
            "in metres. Export it again."
        )
    # STL repeats the corners of every triangle; merging restores the neighbours.
    unique, index = np.unique(vertices, axis=0, return_inverse=True)
    return drop_unused(Surface(unique, index.reshape(-1)[faces].astype(np.int32)))


def _parse(data: bytes, path: Path) -> tuple[np.ndarray, np.ndarray]:
    import trimesh

    try:
        mesh = trimesh.load_mesh(io.BytesIO(data), file_type=path.suffix.lower()[1:], process=False)
        vertices = np.asarray(mesh.vertices, np.float64).reshape(-1, 3)
        return vertices, np.asarray(mesh.faces, np.int64).reshape(-1, 3)
    except Exception as error:  # a parser fed with garbage may raise anything
        raise InputError(
            f"precut.surface_file {path.name!r} can't be parsed ({type(error).__name__}). It must be a "
            f"{path.suffix} triangle mesh. Export it again."
        ) from error


_MAX_CONSERVATION_ERROR = 1e-9
"""Relative error up to which volume, mass and outer area of both sides add up to the body's; more is a defect."""


@dataclass(frozen=True)
class _PrecutResult:
    """The cut mesh and its two half-bodies."""

    cut: CutMesh
    positive: HalfBody
    negative: HalfBody
    volume_error_fraction: float
    """Largest relative difference of the material's and the half-bodies' volume from the input's [-]."""
    mass_error_fraction: float
    """Relative difference of the sum of the node masses from the input's mass [-]."""
    outer_area_error_fraction: float
    """Relative difference of the half-bodies' outer area from the input's [-]."""

    @property
    def normal(self) -> NDArray[np.float64]:
        """Unit vector from the negative to the positive side, the mean over the cut [-], shape [3]."""
        on_cut = Surface(self.negative.vertices, self.negative.faces[self.negative.face_on_cut])
        total = face_normals_doubled(on_cut).sum(axis=0)
        return total / np.linalg.norm(total)


def precut(
    nodes: NDArray[np.float64],
    tets: NDArray[np.int32],
    params: PrecutParams,
    *,
    surface: Surface | None = None,
) -> _PrecutResult:
    """Cut a tet mesh by the plane of the params or, if given, by a surface.

    Args:
        nodes: Node positions [m], shape [n, 3].
        tets: Node indices, positively oriented, shape [m, 4].
        params: Section `precut` of params.yaml.
        surface: Cutting surface in the cutting frame; replaces the plane.
    """
    if surface is None:
        cut = cut_by_plane(
            nodes,
            tets,
            point=params.plane_point_m,
            normal=params.plane_normal,
            snap_tolerance_fraction=params.snap_tolerance_fraction,
        )
    else:
        cut = cut_by_surface(
            nodes,
            tets,
            surface_vertices=surface.vertices,
            surface_faces=surface.faces,
            snap_tolerance_fraction=params.snap_tolerance_fraction,
        )
    positive, negative = half_body(cut, 1), half_body(cut, -1)
    volume = float(tet_volumes(nodes, tets).sum())
    outer_area = float(face_areas(Surface(nodes, outer_faces(tets))).sum())
    halves_outer_area = sum(float(half.areas()[~half.face_on_cut].sum()) for half in (positive, negative))
    result = _PrecutResult(
        cut=cut,
        positive=positive,
        negative=negative,
        volume_error_fraction=max(
            abs(cut.material_volume() / volume - 1.0),
            abs((positive.volume() + negative.volume()) / volume - 1.0),
        ),
        mass_error_fraction=abs(float(cut.node_masses(1.0).sum()) / volume - 1.0),
        outer_area_error_fraction=abs(halves_outer_area / outer_area - 1.0),
    )
    errors = (result.volume_error_fraction, result.mass_error_fraction, result.outer_area_error_fraction)
    if max(errors) > _MAX_CONSERVATION_ERROR:
        raise RuntimeError(
            f"The cut did not conserve volume, mass and outer area: relative errors {errors}, allowed "
            f"{_MAX_CONSERVATION_ERROR:g}"
        )
    return result


def metrics(result: _PrecutResult) -> dict[str, object]:
    """Return the artifact precut/metrics."""
    cut = result.cut
    return {
        "tets": len(cut.tets),
        "cut_tets": int(((cut.tet_fraction < 1.0) & (cut.tet_side > 0)).sum()),
        "nodes": len(cut.nodes),
        "ghost_nodes": int(cut.node_ghost.sum()),
        "springs": len(cut.spring_area),
        "surface_springs": int(cut.spring_surface.sum()),
        "cut_area_m2": float(cut.spring_area.sum()),
        "volume_positive_m3": cut.material_volume(1),
        "volume_negative_m3": cut.material_volume(-1),
        "min_fraction": float(cut.tet_fraction.min()),
        "snapped_vertices": cut.snapped_vertices,
        "volume_error_fraction": result.volume_error_fraction,
        "mass_error_fraction": result.mass_error_fraction,
        "outer_area_error_fraction": result.outer_area_error_fraction,
    }


def tables(result: _PrecutResult, anatomy: Anatomy | None = None) -> dict[str, pl.DataFrame]:
    """Return the tables precut/… by artifact name; anatomy: regions and grain of the body."""
    cut = result.cut
    frames = {
        "precut/nodes": pl.DataFrame(
            [
                _vectors("position_m", cut.nodes, pl.Float64),
                pl.Series("original", cut.node_original, pl.Int32),
                pl.Series("ghost", cut.node_ghost, pl.Boolean),
            ]
        ),
        "precut/tets": pl.DataFrame(
            [
                _vectors("nodes", cut.tets, pl.Int32),
                pl.Series("fraction", cut.tet_fraction, pl.Float64),
                pl.Series("side", cut.tet_side, pl.Int8),
                pl.Series("original", cut.tet_original, pl.Int32),
            ]
        ),
        "precut/virtual_nodes": pl.DataFrame(
            [
                _vectors("parents", cut.virtual_parents, pl.Int32),
                pl.Series("coordinate", cut.virtual_coordinate, pl.Float64),
                pl.Series("side", cut.virtual_side, pl.Int8),
                _vectors("position_m", cut.virtual_positions(), pl.Float64),
            ]
        ),
        "precut/springs": pl.DataFrame(
            [
                _vectors("virtual_nodes", cut.spring_virtual, pl.Int32),
                _vectors("position_m", cut.spring_position, pl.Float64),
                pl.Series("area_m2", cut.spring_area, pl.Float64),
                pl.Series("surface", cut.spring_surface, pl.Boolean),
            ]
        ),
    }
    for name, half in (("positive", result.positive), ("negative", result.negative)):
        frames[f"precut/half_{name}_vertices"] = pl.DataFrame(
            [_vectors("position_m", half.vertices, pl.Float64)]
        )
        frames[f"precut/half_{name}_faces"] = pl.DataFrame([_vectors("vertices", half.faces, pl.Int32)])
    return {**frames, **anatomy_frames(anatomy or Anatomy(), "precut")}


def _vectors(name: str, values: NDArray[np.generic], dtype: type[pl.DataType]) -> pl.Series:
    return pl.Series(name, values, pl.Array(dtype, values.shape[1]))


def _cutting_surface(io: StageIO, params: PrecutParams) -> Surface | None:
    name = params.surface_file
    if name is None:
        return None
    if Path(name).name != name:
        raise InputError(
            f"precut.surface_file is {name!r}. It must be the name of a file in the scan's directory, "
            "without folders. Give it with 'scan2cut run SCAN --surface FILE'."
        )
    return _read_cutting_surface(io.scan_dir / name)


_FINER = 8
"""Factor on the points per tet for the volume that a region should have."""
_LEAST_HELD = 0.8
"""Least volume of a region in the mesh over that of its part in the body; with less the mesh is too coarse for it."""


def _region_volumes(cut: CutMesh, anatomy: Anatomy) -> dict[str, float]:
    """Return the volume of every region in the mesh [m³]; reject one that the mesh does not hold.

    The volume that it should have is found with more points per tet: the first cut may have divided the region.
    """
    corners = cut.nodes[cut.tets]
    material = cut.tet_fraction * cut.tet_volumes()
    held = material @ tet_shares(anatomy, corners)
    for region, volume in zip(anatomy.regions, held, strict=True):
        if region.shape.kind == "peel":  # its thickness is checked
            continue
        expected = float(material @ tet_shares(Anatomy((region,)), corners, _FINER * SAMPLES_PER_TET)[:, 0])
        if expected > 0.0 and not _LEAST_HELD <= volume / expected <= 1.0 / _LEAST_HELD:
            raise InputError(
                f"body.regions: {region.name!r} has {1e9 * volume:.3g} mm³ in this mesh and {1e9 * expected:.3g} mm³ "
                f"with {_FINER} times as many points per tet. Both must agree within {1.0 - _LEAST_HELD:.0%}: the "
                "region is too small for the tets. Lower tetrahedralize.edge_m (and that of the half), or enlarge it."
            )
    return {region.name: float(volume) for region, volume in zip(anatomy.regions, held, strict=True)}


def run(io: StageIO, params: PrecutParams) -> dict[str, object]:
    """Read the tet mesh and the cutting surface, cut, write the tables and the picture."""
    io.progress(0.0, "read the mesh")
    nodes = io.read("tetrahedralize/nodes")["position_m"].to_numpy()
    tets = io.read("tetrahedralize/tets")["nodes"].to_numpy()
    surface = _cutting_surface(io, params)
    io.progress(0.1, "cut")
    result = precut(nodes, tets, params, surface=surface)
    io.progress(0.5, "write the tables")
    anatomy = read_anatomy(io.read, "clean")
    volumes = _region_volumes(result.cut, anatomy)
    for name, frame in tables(result, anatomy).items():
        io.write(name, frame)
    io.progress(0.7, "draw the picture")
    io.write_png(
        "precut/preview", precut_picture(result.cut, result.positive, result.negative, normal=result.normal)
    )
    io.progress(1.0, "done")
    return {**metrics(result), **({"region_volumes_m3": volumes} if volumes else {})}
