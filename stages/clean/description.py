"""Description of the stage clean: parameters, artifacts, inputs."""

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
from stages.shared.anatomy import BodyParams, anatomy_tables
from stages.shared.surface import POSITION, triangles

_ARTIFACTS = (
    table(
        "clean/vertices",
        [POSITION],
        meaning="vertices of the cleaned, watertight surface in the cutting frame",
    ),
    table(
        "clean/faces",
        [triangles("vertices of the triangle, counter-clockwise seen from outside")],
        meaning="triangles of the cleaned surface",
    ),
    table(
        "clean/repairs",
        [
            Column("step", "str", "", "repair step"),
            Column("before", "i64", "-", "count before the step"),
            Column("after", "i64", "-", "count after the step"),
            Column("note", "str", "", "method that succeeded, or reason for skipping the step"),
        ],
        meaning="repairs of the raw scan, in order",
    ),
    *anatomy_tables("clean"),
    metrics("clean", "size, volume, area, watertightness and deviation from the raw scan"),
    picture("clean", "raw scan with its defects, and cleaned surface on the board"),
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
    """Maximum size of the scan's file; larger ones are rejected before they are read or copied."""
    max_filled_fraction: Annotated[float, Field(ge=0, le=1)]
    """Part of the clean surface's area that may be invented where the scan saw nothing."""
    orientation: Literal["auto", "y_up", "z_up"]
    rotation_deg: Vector | None = None
    """Turns about the scan's x, y, z axis in this order; y is then up. Overrides `orientation`."""
    turn_deg: Annotated[float, Field(ge=-360, le=360)]
    cut_offset_m: Annotated[float, Field(ge=-1, le=1)]
    body: BodyParams


STAGE = Stage(
    name="clean",
    does="raw scan → watertight surface in the cutting frame (board y = 0, cut plane x = 0), in metres",
    params=CleanParams,
    artifacts=_ARTIFACTS,
    reads=(),
    key_figure="volume_m3",
    timeout_s=1800,
    files=("scan",),
    uses_material=True,
)
