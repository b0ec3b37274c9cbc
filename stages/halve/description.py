"""What DVC and the flow need to know of the stage halve."""

from typing import Annotated, Literal

from pydantic import Field

from stages.runtime.describe import Column, Stage, StageParams, metrics, picture, table
from stages.shared.columns import POSITION, triangles

_ARTIFACTS = (
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


class HalveParams(StageParams):
    """halve: one half-body of the first cut, laid on the board for the second."""

    half: Literal["positive", "negative"]
    rests_on: Literal["cut_face", "as_it_was"]
    """cut_face: the first cut's flat face is down; as_it_was: the half stands as it did before the cut."""
    angle_deg: Annotated[float, Field(ge=-360, le=360)]
    """Turn about the vertical. At 0 the fruit's former vertical lies along the blade, if the half lies on its cut
    face; otherwise the second cut is parallel to the frame of the first."""
    offset_m: Annotated[float, Field(ge=-1, le=1)]
    """Of the second cut's plane from the half's centre of mass, along x."""


STAGE = Stage(
    name="halve",
    does="one half of the first cut → the body of the second",
    params=HalveParams,
    artifacts=_ARTIFACTS,
    reads=(
        "precut/virtual_nodes",
        "precut/half_positive_vertices",
        "precut/half_positive_faces",
        "precut/half_negative_vertices",
        "precut/half_negative_faces",
    ),
    key_figure="volume_m3",
    timeout_s=600,
)
