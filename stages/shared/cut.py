"""The simulated cut: vertical motion, spring parameters, cut mesh, model (from params.yaml and tables), outcome."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim import Model, build_model
from disect_sim.cut_mesh import CutMesh
from disect_sim.motions import ConstantVelocity
from disect_sim.outcome import Outcome
from disect_sim.parameters import SPRING_NAMES, SURFACE_PREFIX, Material
from disect_sim.regions import rigid_tops
from disect_sim.result import Result
from disect_sim.simulation import simulate
from disect_sim.stop import obstacle
from stages.runtime.errors import InputError
from stages.shared.anatomy import read_anatomy
from stages.shared.cut_description import BESIDE_M, CutParams

# Straight vertical cut, the reference for forces


def straight_cut(mesh: CutMesh, params: CutParams) -> tuple[ConstantVelocity, float]:
    """Return the motion over the fruit's z centre, and its duration [s], a whole number of steps."""
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


# Simulator parameters of both cuts, from the tables of transport and calibrate


_Read = Callable[[str], pl.DataFrame]
Factors = Mapping[str, np.ndarray | float]
"""Parameter → factor on its fitted value: a number, or one per spring, shape [spring_count]."""


def read_body_values(read: _Read) -> dict[str, float]:
    """Return the fitted values that replace those of the material."""
    return dict(read("calibrate/body").select("name", "value").iter_rows())


def read_possible_materials(read: _Read, skin: NDArray[np.bool_]) -> list[Factors]:
    """Return possible materials by calibrate's posterior, each as factors on the fitted values; may be empty.

    Args:
        read: Maps the name of one of the scan's artifacts to its table.
        skin: True for springs in the skin, shape [spring_count], where a factor of `surface_<name>` applies.
    """
    table = read("calibrate/draws").sort("draw", "name")
    return [
        _on_springs(dict(rows.select("name", "factor").iter_rows()), skin)
        for _, rows in table.group_by("draw", maintain_order=True)
    ]


def _on_springs(drawn: Factors, skin: NDArray[np.bool_]) -> Factors:
    """Return one number per parameter; one per spring where it differs between skin and flesh."""
    factors: dict[str, np.ndarray | float] = {}
    for name in dict.fromkeys(name.removeprefix(SURFACE_PREFIX) for name in drawn):
        flesh = drawn.get(name, 1.0)
        on_skin = drawn.get(SURFACE_PREFIX + name, flesh)
        factors[name] = flesh if on_skin is flesh else np.where(skin, on_skin, flesh)
    return factors


def of_material(values: Mapping[str, np.ndarray], factors: Factors) -> dict[str, np.ndarray]:
    """Apply the factors of a possible material to the fitted values."""
    return {name: value * factors.get(name, 1.0) for name, value in values.items()}


def read_second_cut_values(read: _Read) -> dict[str, np.ndarray]:
    """Return the transported parameters of every spring, shape [spring_count], and those of the whole body."""
    return _values(read, "transport/parameters")


def read_first_cut_values(read: _Read) -> dict[str, np.ndarray]:
    """Return the same for the first cut, as fitted by calibrate."""
    return _values(read, "calibrate/parameters")


def _values(read: _Read, table: str) -> dict[str, np.ndarray]:
    springs = read(table)
    body = {name: np.asarray(value) for name, value in read_body_values(read).items()}
    return {name: springs[name].to_numpy() for name in SPRING_NAMES} | body


# Cut mesh from the tables of the stage precut or an instance of it


def read_cut_mesh(read: Callable[[str], pl.DataFrame], stage: str = "precut") -> CutMesh:
    """Return the CutMesh that precut (or `stage`, an instance of it) wrote; `read` maps an artifact's name to its
    table.

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
        anatomy=read_anatomy(read, stage) or None,
    )
    cut.check()
    return cut


OFF_PLANE_M = 1.0e-3
"""Largest distance of the cut surface from the knife's plane x = 0 at which the knife cuts it [m]: half its spine."""


def cutting_model(mesh: CutMesh, material: Material, cut: CutParams) -> Model:
    """Build the model of the body with the cut's knife, boundary and damage law."""
    return build_model(mesh, material, cut.blade, boundary=cut.boundary, damage_law=cut.damage_law)


def off_plane_m(mesh: CutMesh) -> float:
    """Return the largest distance of the cut surface from the knife's plane x = 0 [m]."""
    return float(np.abs(mesh.virtual_positions()[:, 0]).max())


# Rigid regions in the way of a planned cut


def check_clear_of_rigid(
    model: Model, values: Mapping[str, Any], cut: CutParams, *, lowest_m: float, offset: str
) -> None:
    """Reject a cut through x = 0 down to lowest_m [m] that comes within BESIDE_M of a rigid region.

    The message contains the force with which a vertical cut stops there. offset: name of the parameter that moves
    the cut plane [m].
    """
    anatomy = model.mesh.anatomy
    tops = np.zeros((0, 2)) if anatomy is None else rigid_tops(anatomy, BESIDE_M)
    if anatomy is None or not len(tops) or tops[:, 1].max() + BESIDE_M <= lowest_m:
        return
    top = float(tops[:, 1].max())
    met = obstacle(model)
    found = f"passes within {1e3 * BESIDE_M:g} mm of a rigid region"
    if met is not None:
        motion, duration = straight_cut(model.mesh, cut)
        result = simulate(
            model, motion, values, duration=duration, dt=cut.dt_s, force_limit_n=cut.force_limit_n
        )
        found = (
            f"meets the rigid region {met.name!r} {1e3 * met.top_m:.1f} mm above the board. A vertical cut stops there "
            f"with {result.force_norm[-1]:.3g} N, and every further millimetre adds {1e-3 * met.stiffness_n_m:.3g} N"
        )
    near = [
        one.shape.bounds[:, 0]
        for one in anatomy.regions
        if one.rigid and one.shape.bounds[0, 0] <= BESIDE_M and one.shape.bounds[1, 0] >= -BESIDE_M
    ]
    sides = (min(low for low, _ in near) - BESIDE_M, max(high for _, high in near) + BESIDE_M)
    raise InputError(
        f"The cut {found}. The blade must stay {1e3 * BESIDE_M:g} mm away. Pass beside it: change "
        f"{offset} by {sides[0]:.4f} or {sides[1]:+.4f} (--set), or end above it with --set "
        f"cut.board_clearance_m={top + BESIDE_M:.4f} --set optimize.final_strokes=0 (and the cut fraction that you "
        "accept, export.min_cut_fraction)."
    )


# Outcome of a simulated cut, the same for every stage that simulates one: cut, warning or refused


_HAPPENED = 0.5
"""Minimum parted fraction of what the edge has passed; with less the flesh gave way and the cut did not happen."""
_THROUGH = 0.9
"""Minimum parted fraction of what the edge has passed to count as cut through."""
_GIVES_WAY = (
    "The flesh gives way instead of parting: its toughness is high for its stiffness, or the blade is not drawn. "
    "Check --material, fit a force log of this fruit (--log), or saw"
)
_REFINE = "Lower tetrahedralize.cut_edge_m or cut.dt_s"


class Severity(StrEnum):
    """How serious an outcome is."""

    CUT = "cut"
    WARNING = "warning"
    REFUSED = "refused"


@dataclass(frozen=True)
class CutOutcome:
    """What became of one simulated cut.

    Refused: the simulation stopped (stalled, diverged, jammed), or less than _HAPPENED is parted. Warning: not cut
    through, or elements turned inside out.
    """

    cut: str
    """Name of the cut in messages, e.g. "nominal cut"."""
    ended: Outcome
    """Outcome of the simulation."""
    cut_fraction: float
    """Fraction of the springs' stiffness that is gone [-]."""
    reached_fraction: float
    """Same for the springs that were above the edge's final height before the cut [-]."""
    inverted_tets: int
    """Largest number of inverted tets at once."""

    @property
    def severity(self) -> Severity:
        """Return how serious it is."""
        if not self.ended.ok or not self.reached_fraction >= _HAPPENED:
            return Severity.REFUSED
        if self.reached_fraction < _THROUGH or self.inverted_tets:
            return Severity.WARNING
        return Severity.CUT

    @property
    def message(self) -> str:
        """Return what was found, the rule and the remedy; empty for a cut."""
        return " ".join(self._found())

    def _found(self) -> list[str]:
        if not self.ended.ok:
            return [f"The {self.cut} stopped before its end. {self.ended}"]
        found, parted = [], f"{100.0 * self.reached_fraction:.0f} % of what the edge passed is parted"
        if not self.reached_fraction >= _HAPPENED:
            found.append(
                f"The {self.cut} did not happen: {parted}, at least {100.0 * _HAPPENED:.0f} % must be. {_GIVES_WAY}."
            )
        elif self.reached_fraction < _THROUGH:
            found.append(
                f"The {self.cut} did not cut through: {parted}, at least {100.0 * _THROUGH:.0f} % should be. "
                f"{_GIVES_WAY}."
            )
        if self.inverted_tets:
            found.append(
                f"{self.inverted_tets} elements turned inside out in the {self.cut}; none should, so its force is "
                f"unreliable. {_REFINE}."
            )
        return found

    def metrics(self) -> dict[str, Any]:
        """Return the entries of a stage's metrics; runs, reports and the dashboard read `refused` and `warning`."""
        return {
            "cut_fraction": self.cut_fraction,
            "reached_fraction": self.reached_fraction,
            "inverted_tets": self.inverted_tets,
            **verdict(self),
        }


def verdict(*outcomes: CutOutcome) -> dict[str, str | None]:
    """Return the entries `refused` and `warning` of a stage's metrics for its simulated cuts."""

    def of(severity: Severity) -> str | None:
        return " ".join(one.message for one in outcomes if one.severity is severity) or None

    return {"refused": of(Severity.REFUSED), "warning": of(Severity.WARNING)}


def outcome_of(cut: str, result: Result, mesh: CutMesh, *, step: int = -1) -> CutOutcome:
    """Return the outcome of a result; step: the step at whose end the cut counts as finished, by default the last."""
    height = mesh.virtual_positions()[mesh.spring_virtual[:, 0], 1]
    passed = (height > result.pose[step, 1]) * mesh.spring_area
    parted = 1.0 - result.stiffness[step] / result.stiffness[0]
    return CutOutcome(
        cut,
        result.outcome,
        float(result.cut_fraction[step]),
        float(passed @ parted / passed.sum()) if np.any(passed) else 0.0,
        result.statistics.inverted_tets,
    )
