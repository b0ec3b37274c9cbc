"""Columns of a table with the parameters of every cutting spring, one per parameter of the simulator."""

from disect_sim.parameters import SPRING_PARAMETERS
from stages.runtime.describe import Column

SPRING_ROW = (
    Column("position_m", "array[f64,2]", "m", "2D position on the cut surface; (z, y) for the plane x = 0"),
    Column("area_m2", "f64", "m²", "tributary area"),
    Column("surface", "bool", "", "true for skin"),
    *(Column(name, "f64", info.unit, info.meaning) for name, info in SPRING_PARAMETERS.items()),
)
