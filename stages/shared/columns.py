"""Columns shared by tables of several stages: positions, sides of the cut, triangles."""

from stages.runtime.describe import Column

POSITION = Column("position_m", "array[f64,3]", "m", "position in the cutting frame (y up, board y = 0)")
SIDE = Column(
    "side", "i8", "-", "+1 on the positive side of the cut surface (x > 0 for the plane x = 0), else -1"
)


def triangles(meaning: str) -> Column:
    """Return the column of a triangle table: three vertices per row."""
    return Column("vertices", "array[i32,3]", "index", meaning)
