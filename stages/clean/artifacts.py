"""What the stage clean writes."""

from stages.runtime.describe import Column, metrics, picture, table
from stages.shared.columns import POSITION, triangles

ARTIFACTS = (
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
