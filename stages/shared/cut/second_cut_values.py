"""The simulator's parameters for both cuts, read back from the tables of transport and calibrate."""

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.parameters import SPRING_NAMES, SURFACE_PREFIX

Read = Callable[[str], pl.DataFrame]
Factors = Mapping[str, np.ndarray | float]
"""Parameter → factor on its fitted value: a number, or one per spring, shape [spring_count]."""


def read_body_values(read: Read) -> dict[str, float]:
    """What replaces the material's own values."""
    return dict(read("calibrate/body").select("name", "value").iter_rows())


def read_possible_materials(read: Read, skin: NDArray[np.bool_], depth: NDArray[np.float64]) -> list[Factors]:
    """Possible materials by calibrate's posterior, each as factors on the fitted values. May be none.

    Args:
        read: Maps the name of one of the scan's artifacts to its table.
        skin: Which springs of the body are skin, shape [spring_count]: there a factor of `surface_<name>` holds.
        depth: Their relative depth, 0 at the top to 1, shape [spring_count].
    """
    table = read("calibrate/draws").sort("draw", "name", "relative_depth")
    return [
        _on_springs(
            {name: _at(points, depth) for (name,), points in rows.group_by("name", maintain_order=True)}, skin
        )
        for _, rows in table.group_by("draw", maintain_order=True)
    ]


def _at(points: pl.DataFrame, depth: NDArray[np.float64]) -> np.ndarray | float:
    """The factor of one parameter: a number, or one per spring where it varies with depth."""
    factor = points["factor"].to_numpy()
    if len(factor) == 1:
        return float(factor[0])
    return np.interp(depth, points["relative_depth"].to_numpy(), factor)


def _on_springs(drawn: Factors, skin: NDArray[np.bool_]) -> Factors:
    """One number per parameter; one per spring where it varies or the skin's factor is another than the flesh's."""
    out: dict[str, np.ndarray | float] = {}
    for name in dict.fromkeys(name.removeprefix(SURFACE_PREFIX) for name in drawn):
        flesh = drawn.get(name, 1.0)
        on_skin = drawn.get(SURFACE_PREFIX + name, flesh)
        out[name] = flesh if on_skin is flesh else np.where(skin, on_skin, flesh)
    return out


def of_material(values: Mapping[str, np.ndarray], factors: Factors) -> dict[str, np.ndarray]:
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
