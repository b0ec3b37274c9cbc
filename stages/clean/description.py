"""What DVC and the flow need to know of the stage clean."""

from typing import Annotated, Literal

from pydantic import Field

from stages.runtime.describe import (
    Column,
    EdgeLength,
    Fraction,
    Positive,
    Stage,
    StageParams,
    Vector,
    metrics,
    picture,
    table,
)
from stages.shared.columns import POSITION, triangles

_ARTIFACTS = (
    table(
        "clean/vertices",
        [POSITION],
        meaning="vertices of the repaired, watertight surface in the cutting frame",
    ),
    table(
        "clean/faces",
        [triangles("the triangle's vertices, counter-clockwise seen from outside")],
        meaning="triangles of the repaired surface",
    ),
    table(
        "clean/repairs",
        [
            Column("step", "str", "", "what was repaired"),
            Column("before", "i64", "-", "count before the step"),
            Column("after", "i64", "-", "count after the step"),
            Column("note", "str", "", "the rung of the ladder that worked, or why nothing was done"),
        ],
        meaning="what was done to the raw scan, in order",
    ),
    metrics("clean", "size, volume, area, watertightness and displacement from the raw scan"),
    picture("clean", "the raw scan with its faults beside the clean surface on the board"),
)


class CleanParams(StageParams):
    """clean: from the raw scan to a watertight surface in the cutting frame."""

    unit: Literal["auto", "m", "cm", "mm", "in"]
    scale: Positive | None = None
    """Metres per unit of the scan; overrides `unit`."""
    min_component_fraction: Fraction
    target_edge_m: EdgeLength
    smooth_iterations: Annotated[int, Field(ge=0, le=100)]
    max_displacement_fraction: Fraction
    max_faces: Annotated[int, Field(ge=100)]
    max_bytes: Annotated[int, Field(ge=100)]
    """Of the scan's file; larger ones are refused before they are read or copied."""
    max_filled_fraction: Annotated[float, Field(ge=0, le=1)]
    """Part of the clean surface's area that may be invented where the scan saw nothing."""
    orientation: Literal["auto", "y_up", "z_up"]
    rotation_deg: Vector | None = None
    """Turns about the scan's x, y, z axis in this order; y is then up. Overrides `orientation`."""
    turn_deg: Annotated[float, Field(ge=-360, le=360)]
    cut_offset_m: Annotated[float, Field(ge=-1, le=1)]


STAGE = Stage(
    name="clean",
    does="raw scan → watertight surface on the board, y up, cut plane x = 0, in metres",
    params=CleanParams,
    artifacts=_ARTIFACTS,
    reads=(),
    key_figure="volume_m3",
    timeout_s=1800,
    files=("scan",),
    uses_material=True,
)
