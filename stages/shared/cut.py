"""The simulator's model of a body and knife as the section `cut` of params.yaml describes them."""

from collections.abc import Callable, Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim import Model, build_model
from disect_sim.cut_mesh import CutMesh
from disect_sim.motions import ConstantVelocity
from disect_sim.parameters import SPRING_NAMES, SURFACE_PREFIX, Material
from stages.runtime.errors import InputError
from stages.shared.cut_description import CutParams

# The straight vertical cut that forces are compared on.


def straight_cut(mesh: CutMesh, params: CutParams) -> tuple[ConstantVelocity, float]:
    """The motion over the fruit's z centre, and its duration [s], a whole number of steps."""
    material_nodes = mesh.nodes[~mesh.node_ghost]
    low, high = material_nodes.min(axis=0), material_nodes.max(axis=0)
    start = float(high[1]) + params.start_clearance_m
    travel = start - params.board_clearance_m
    if not params.board_clearance_m < high[1]:
        raise InputError(
            f"cut.board_clearance_m is {params.board_clearance_m:g} m. It must be less than the fruit's height, "
            f"{high[1]:.4g} m, or nothing is cut. Lower it."
        )
    duration = params.dt_s * int(np.ceil(travel / params.speed_m_s / params.dt_s - 1e-9))
    motion = ConstantVelocity(
        initial_y=start, velocity_y=-travel / duration, z=float(0.5 * (low[2] + high[2]))
    )
    return motion, duration


# The simulator's parameters for both cuts, read back from the tables of transport and calibrate.


_Read = Callable[[str], pl.DataFrame]
Factors = Mapping[str, np.ndarray | float]
"""Parameter → factor on its fitted value: a number, or one per spring, shape [spring_count]."""


def read_body_values(read: _Read) -> dict[str, float]:
    """What replaces the material's own values."""
    return dict(read("calibrate/body").select("name", "value").iter_rows())


def read_possible_materials(
    read: _Read, skin: NDArray[np.bool_], depth: NDArray[np.float64]
) -> list[Factors]:
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


def read_second_cut_values(read: _Read) -> dict[str, np.ndarray]:
    """The transported parameters of every spring, shape [spring_count], and those of the body as a whole."""
    return _values(read, "transport/parameters")


def read_first_cut_values(read: _Read) -> dict[str, np.ndarray]:
    """The same for the first cut, as calibrate fitted them."""
    return _values(read, "calibrate/parameters")


def _values(read: _Read, table: str) -> dict[str, np.ndarray]:
    springs = read(table)
    body = {name: np.asarray(value) for name, value in read_body_values(read).items()}
    return {name: springs[name].to_numpy() for name in SPRING_NAMES} | body


# How deep a spring lies in its fruit: the coordinate of everything that varies from top to bottom.


def relative_depth(mesh: CutMesh) -> NDArray[np.float64]:
    """Of every spring below the top of the cut face, as a share of its height, shape [spring_count]."""
    height = mesh.virtual_positions()[mesh.spring_virtual[:, 0], 1]
    low, top = float(height.min()), float(height.max())
    out: NDArray[np.float64] = (top - height) / (top - low)
    return out


# The cut mesh, read back from the tables of the stage precut or an instance of it.


def read_cut_mesh(read: Callable[[str], pl.DataFrame], stage: str = "precut") -> CutMesh:
    """The CutMesh that precut (or `stage`, an instance of it) wrote; `read` maps an artifact's name to its table.

    The number of snapped vertices is not in the tables (it is in precut/metrics) and is 0 here.
    """
    nodes, tets = read(f"{stage}/nodes"), read(f"{stage}/tets")
    virtual, springs = read(f"{stage}/virtual_nodes"), read(f"{stage}/springs")
    cut = CutMesh(
        nodes=nodes["position_m"].to_numpy(),
        node_original=nodes["original"].to_numpy(),
        node_ghost=nodes["ghost"].to_numpy(),
        tets=tets["nodes"].to_numpy(),
        tet_fraction=tets["fraction"].to_numpy(),
        tet_side=tets["side"].to_numpy(),
        tet_original=tets["original"].to_numpy(),
        virtual_parents=virtual["parents"].to_numpy(),
        virtual_coordinate=virtual["coordinate"].to_numpy(),
        virtual_side=virtual["side"].to_numpy(),
        spring_virtual=springs["virtual_nodes"].to_numpy(),
        spring_position=springs["position_m"].to_numpy(),
        spring_area=springs["area_m2"].to_numpy(),
        spring_surface=springs["surface"].to_numpy(),
    )
    cut.check()
    return cut


OFF_PLANE_M = 1.0e-3
"""A cut surface farther than this from the knife's plane x = 0 is not what the knife cuts [m]: half its spine."""


def cutting_model(mesh: CutMesh, material: Material, cut: CutParams) -> Model:
    """The body with the cut's knife, boundary and damage law."""
    return build_model(mesh, material, cut.blade, boundary=cut.boundary, damage_law=cut.damage_law)


def off_plane_m(mesh: CutMesh) -> float:
    """Largest distance of the cut surface from the knife's plane x = 0 [m]."""
    return float(np.abs(mesh.virtual_positions()[:, 0]).max())
