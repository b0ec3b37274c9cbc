"""What the stage halve writes."""

from stages.runtime.describe import Column, metrics, picture, table
from stages.shared.columns import POSITION, triangles

ARTIFACTS = (
    table(
        "halve/vertices",
        [POSITION],
        meaning="vertices of the half-body in the frame of the second cut",
    ),
    table(
        "halve/faces",
        [triangles("the triangle's vertices, counter-clockwise seen from outside")],
        meaning="triangles of the half-body",
    ),
    table(
        "halve/frame",
        [
            Column(
                "row",
                "array[f64,4]",
                "see meaning",
                "three numbers of the rotation [-], then the translation [m]; the last row is 0, 0, 0, 1",
            )
        ],
        meaning="4x4 matrix that takes points [m] of the first cut's frame to the second's, row by row",
    ),
    table(
        "halve/cut_face",
        [
            Column("point_m", "array[f64,3]", "m", "a point of the plane, in the second cut's frame"),
            Column("normal", "array[f64,3]", "-", "unit normal that points out of the half"),
            Column("bulge_m", "f64", "m", "largest distance of the first cut's face from the plane"),
        ],
        meaning="the plane of the first cut's face, where the half has bare flesh instead of skin; one row",
    ),
    metrics("halve", "size, volume, area, rest and how much of the half lies on each side of the plane"),
    picture("halve", "the half as the first cut left it, and on the board with the second cut's plane"),
)
