"""Description of the stage halve: parameters, artifacts, inputs."""

from typing import Annotated, Literal

from pydantic import Field

from stages.runtime.describe import Column, Stage, StageParams, Vector, metrics, picture, table
from stages.shared.anatomy import anatomy_names, anatomy_tables
from stages.shared.surface import POSITION, triangles

_ARTIFACTS = (
    table(
        "halve/vertices",
        [POSITION],
        meaning="vertices of the half in the frame of the second cut",
    ),
    table(
        "halve/faces",
        [triangles("vertices of the triangle, counter-clockwise seen from outside")],
        meaning="triangles of the half",
    ),
    table(
        "halve/frame",
        [
            Column(
                "row",
                "array[f64,4]",
                "see meaning",
                "rotation (3 values) [-] and translation [m]; last row 0, 0, 0, 1",
            )
        ],
        meaning="4x4 transformation from the frame of the first cut to that of the second, row by row",
    ),
    table(
        "halve/cut_face",
        [
            Column("point_m", "array[f64,3]", "m", "point on the plane in the frame of the second cut"),
            Column("normal", "array[f64,3]", "-", "unit normal, pointing out of the half"),
            Column("bulge_m", "f64", "m", "maximum distance of the first cut's face from the plane"),
        ],
        meaning="plane of the first cut's face (slice of a whole fruit: the cut before), which has no skin; one row",
    ),
    *anatomy_tables("halve"),
    metrics("halve", "size, volume, area, resting pose, share of the half on each side of the plane"),
    picture("halve", "half after the first cut, and on the board with the plane of the second cut"),
)


class SliceParams(StageParams):
    """halve.slice: the body of one cut of a plan of slices (scan2cut slice), what the cuts before it left."""

    of: Literal["whole", "half"]
    """whole: the cleaned fruit as it stands; half: a half of the first cut, laid down as without a plan."""
    normal: Vector
    """Direction from slice to slice, horizontal, in the frame of that body."""
    from_m: float
    """Coordinate of the cut before along the normal, or of the body's first point."""
    at_m: float
    """Coordinate of this cut along the normal."""


class HalveParams(StageParams):
    """halve: one half-body of the first cut, laid on the board for the second."""

    half: Literal["positive", "negative"]
    rests_on: Literal["auto", "cut_face", "as_it_was"]
    """cut_face: the first cut's flat face is down; as_it_was: the half stands as it did before the cut; auto: the
    first, unless the half would stand more than twice as high as its cut face is wide, like that of a banana."""
    angle_deg: Annotated[float, Field(ge=-360, le=360)]
    """Turn about the vertical. At 0 the fruit's former vertical lies along the blade, if the half lies on its cut
    face; otherwise the second cut is parallel to the frame of the first."""
    offset_m: Annotated[float, Field(ge=-1, le=1)]
    """Offset of the second cut's plane from the half's centre of mass, along x."""
    slice: SliceParams | None = None
    """One cut of a plan of slices instead of the second cut; offset_m is then not used."""


STAGE = Stage(
    name="halve",
    does="half of the fruit after the first cut → body of the second cut",
    params=HalveParams,
    artifacts=_ARTIFACTS,
    reads=(
        "clean/vertices",
        "clean/faces",
        "precut/virtual_nodes",
        "precut/half_positive_vertices",
        "precut/half_positive_faces",
        "precut/half_negative_vertices",
        "precut/half_negative_faces",
        *anatomy_names("precut"),
    ),
    key_figure="volume_m3",
    timeout_s=600,
)
