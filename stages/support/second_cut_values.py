"""The simulator's parameters for the second cut, read back from the tables of transport and calibrate."""

from collections.abc import Callable

import numpy as np
import polars as pl

from disect_sim.parameters import MATERIAL_PARAMETERS, SPRING_NAMES


def read_second_cut_values(read: Callable[[str], pl.DataFrame]) -> dict[str, np.ndarray]:
    """The transported parameters of every spring, shape [spring_count], and fitted ones of the body as a whole."""
    springs, scalars = read("transport/parameters"), read("calibrate/scalars")
    values = {name: springs[name].to_numpy() for name in SPRING_NAMES}
    for name, value in scalars.select("name", "value").iter_rows():
        if name in MATERIAL_PARAMETERS:
            values[name] = np.asarray(value)
    return values
