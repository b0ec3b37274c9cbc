"""What the stage precut writes."""

from stages.runtime.describe import Artifact, Column, metrics, picture, table
from stages.shared.columns import POSITION, SIDE, triangles


def _half_body(side: str) -> tuple[Artifact, Artifact]:
    return (
        table(
            f"precut/half_{side}_vertices",
            [POSITION],
            meaning=f"vertices of the closed {side} half-body",
        ),
        table(
            f"precut/half_{side}_faces",
            [triangles("the triangle's vertices, counter-clockwise seen from outside")],
            meaning=f"triangles of the closed {side} half-body",
        ),
    )


ARTIFACTS = (
    table(
        "precut/nodes",
        [
            POSITION,
            Column("original", "i32", "index", "the row of tetrahedralize/nodes that it copies"),
            Column("ghost", "bool", "", "true if it carries no material, only the far end of cut edges"),
        ],
        meaning="nodes after duplication by the virtual node algorithm",
    ),
    table(
        "precut/tets",
        [
            Column("nodes", "array[i32,4]", "index", "rows of precut/nodes, positively oriented"),
            Column("fraction", "f64", "-", "material fraction of the tetrahedron's volume, in (0, 1]"),
            SIDE,
            Column("original", "i32", "index", "the row of tetrahedralize/tets that it copies"),
        ],
        meaning="tetrahedra after duplication, each with the material of one side",
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
        meaning="points where the cut surface crosses an edge, one per side",
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
            Column("area_m2", "f64", "m²", "tributary area; the column sums to the area of the cut"),
            Column("surface", "bool", "", "true if the crossed edge lies on the outer surface (skin)"),
        ],
        meaning="cutting springs that hold the two sides together",
    ),
    *_half_body("positive"),
    *_half_body("negative"),
    metrics("precut", "counts, volumes and areas of the two sides, conservation errors, snapped nodes"),
    picture("precut", "the two half-bodies pulled apart and the springs on the cut surface"),
)
