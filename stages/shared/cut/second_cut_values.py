"""The simulator's parameters for both cuts, read back from the tables of transport and calibrate."""

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl

from disect_sim.parameters import SPRING_NAMES

Read = Callable[[str], pl.DataFrame]


def read_body_values(read: Read) -> dict[str, float]:
    """What replaces the material's own values."""
    return dict(read("calibrate/body").select("name", "value").iter_rows())


def read_possible_materials(read: Read) -> list[dict[str, float]]:
    """Possible materials by calibrate's posterior: for each, parameter → factor on the fitted value. May be none."""
    table = read("calibrate/draws").sort("draw")
    return [
        dict(rows.select("name", "factor").iter_rows())
        for _, rows in table.group_by("draw", maintain_order=True)
    ]


def of_material(values: Mapping[str, np.ndarray], factors: Mapping[str, float]) -> dict[str, np.ndarray]:
    """The fitted values as those of a possible material."""
    return {name: value * factors.get(name, 1.0) for name, value in values.items()}


def read_second_cut_values(read: Read) -> dict[str, np.ndarray]:
    """The transported parameters of every spring, shape [spring_count], and those of the body as a whole."""
    return _values(read, "transport/parameters")


def read_first_cut_values(read: Read) -> dict[str, np.ndarray]:
    """The same for the first cut, as calibrate fitted them."""
    return _values(read, "calibrate/parameters")


def _values(read: Read, table: str) -> dict[str, np.ndarray]:
    springs = read(table)
    body = {name: np.asarray(value) for name, value in read_body_values(read).items()}
    return {name: springs[name].to_numpy() for name in SPRING_NAMES} | body
