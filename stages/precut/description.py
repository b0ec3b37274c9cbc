"""Description of the stage precut: parameters, artifacts, inputs."""

from typing import Annotated

from pydantic import Field

from stages.runtime.describe import Artifact, Column, Stage, StageParams, Vector, metrics, picture, table
from stages.shared.anatomy import anatomy_names, anatomy_tables
from stages.shared.surface import POSITION, SIDE, triangles


def _half_body(side: str) -> tuple[Artifact, Artifact]:
    return (
        table(
            f"precut/half_{side}_vertices",
            [POSITION],
            meaning=f"vertices of the closed {side} half",
        ),
        table(
            f"precut/half_{side}_faces",
            [triangles("vertices of the triangle, counter-clockwise seen from outside")],
            meaning=f"triangles of the closed {side} half",
        ),
    )


_ARTIFACTS = (
    table(
        "precut/nodes",
        [
            POSITION,
            Column("original", "i32", "index", "row of tetrahedralize/nodes of which it is a copy"),
            Column("ghost", "bool", "", "true for a node without material, the far end of cut edges"),
        ],
        meaning="mesh nodes after duplication by the virtual node algorithm",
    ),
    table(
        "precut/tets",
        [
            Column("nodes", "array[i32,4]", "index", "rows of precut/nodes, positively oriented"),
            Column("fraction", "f64", "-", "material fraction of the tet's volume, in (0, 1]"),
            SIDE,
            Column("original", "i32", "index", "row of tetrahedralize/tets of which it is a copy"),
        ],
        meaning="tets after duplication, each with the material of one side",
    ),
    table(
        "precut/virtual_nodes",
        [
            Column(
                "parents", "array[i32,2]", "index", "rows of precut/nodes: the real end, then the ghost end"
            ),
            Column("coordinate", "f64", "-", "c in (0, 1): position = (1 - c) · real + c · ghost"),
            SIDE,
            Column("position_m", "array[f64,3]", "m", "position on the cut surface"),
        ],
        meaning="virtual nodes: intersections of the cut surface with mesh edges, one per side",
    ),
    table(
        "precut/springs",
        [
            Column(
                "virtual_nodes",
                "array[i32,2]",
                "index",
                "rows of precut/virtual_nodes: side +1, then side -1",
            ),
            Column(
                "position_m",
                "array[f64,2]",
                "m",
                "2D position on the cut surface; (z, y) for the plane x = 0",
            ),
            Column("area_m2", "f64", "m²", "tributary area; sums to the area of the cut"),
            Column("surface", "bool", "", "true if the crossed edge lies on the outer surface (skin)"),
        ],
        meaning="springs that join the two sides of the cut",
    ),
    *anatomy_tables("precut"),
    *_half_body("positive"),
    *_half_body("negative"),
    metrics("precut", "counts, volumes and areas of both sides, conservation errors, snapped nodes"),
    picture("precut", "the two halves pulled apart, and the springs on the cut surface"),
)


class PrecutParams(StageParams):
    """precut: the virtual node algorithm along the cutting surface."""

    plane_point_m: Vector
    plane_normal: Vector
    surface_file: str | None = None
    """A triangle mesh in the scan's directory that replaces the plane."""
    snap_tolerance_fraction: Annotated[float, Field(ge=1e-4, le=0.2)]
    """Minimum distance of a crossing from the ends of its edge, as a fraction of the edge's length."""


STAGE = Stage(
    name="precut",
    does="mesh → two halves joined by springs along the cut",
    params=PrecutParams,
    artifacts=_ARTIFACTS,
    reads=(
        "tetrahedralize/nodes",
        "tetrahedralize/tets",
        *anatomy_names("clean"),
    ),
    key_figure="springs",
    timeout_s=1800,
    files=("cut_surface",),
)
