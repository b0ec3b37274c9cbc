"""precut: duplicate the tets along the cutting surface and join the two sides by springs."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.cut_mesh import CutMesh, tet_volumes
from disect_sim.errors import InputError
from disect_sim.virtual_nodes import HalfBody, cut_by_plane, cut_by_surface, half_body, outer_faces
from stages.precut.params import PrecutParams
from stages.precut.picture import precut_picture
from stages.precut.surface_file import read_cutting_surface
from stages.runtime.stage_io import StageIO
from stages.shared.surface.triangles import Surface, face_areas, face_normals_doubled

MAX_CONSERVATION_ERROR = 1e-9
"""Volume, mass and outer area of both sides add up to the body's within this fraction; more is a defect."""


@dataclass(frozen=True)
class PrecutResult:
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
) -> PrecutResult:
    """Cut a tet mesh by the plane of the params or, if one is given, by a surface.

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
    result = PrecutResult(
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
    if max(errors) > MAX_CONSERVATION_ERROR:
        raise RuntimeError(
            f"The cut did not conserve volume, mass and outer area: relative errors {errors}, allowed "
            f"{MAX_CONSERVATION_ERROR:g}"
        )
    return result


def metrics(result: PrecutResult) -> dict[str, object]:
    """The artifact precut/metrics."""
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


def tables(result: PrecutResult) -> dict[str, pl.DataFrame]:
    """The tables precut/… by artifact name."""
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
    return frames


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
    return read_cutting_surface(io.scan_dir / name)


def run(io: StageIO, params: PrecutParams) -> dict[str, object]:
    """Read the tet mesh and the cutting surface, cut, write the tables and the picture."""
    io.progress(0.0, "read the mesh")
    nodes = io.read("tetrahedralize/nodes")["position_m"].to_numpy()
    tets = io.read("tetrahedralize/tets")["nodes"].to_numpy()
    surface = _cutting_surface(io, params)
    io.progress(0.1, "cut")
    result = precut(nodes, tets, params, surface=surface)
    io.progress(0.5, "write the tables")
    for name, frame in tables(result).items():
        io.write(name, frame)
    io.progress(0.7, "draw the picture")
    io.write_png(
        "precut/preview", precut_picture(result.cut, result.positive, result.negative, normal=result.normal)
    )
    io.progress(1.0, "done")
    return metrics(result)
