"""Model and parameters of a run as kernel inputs: structs and arrays that stay constant during the run."""

from dataclasses import dataclass
from inspect import signature

import numpy as np
import warp as wp

from disect_sim.edge_cut import EdgeCut
from disect_sim.kernels import boundary, contact_point, damage, elasticity, springs
from disect_sim.laws import damage_law
from disect_sim.model import HAND_N_M, ONSET_M, OVERLAP_ONSET_M, REGULARISER_M, Model
from disect_sim.parameters import (
    CONTACT_NAMES,
    CONTACT_PER_AREA,
    REFERENCE_AREA_M2,
    SPRING_NAMES,
    ExpandedParameters,
)
from disect_sim.sparsity import BlockPattern, element_slots, launch_groups

_ONSET_SPEED_M_S = 1.0e-3
"""Length of the quadratic start of the approach damping [m/s]: 2 % of a usual cutting speed."""


_TINY_M3 = 1.0e-30


class DeviceModel:
    """Arrays on the current Warp device; elements in launch order."""

    def __init__(self, model: Model, parameters: ExpandedParameters, dt: float, *, parallel: bool) -> None:
        self.dt, copies = wp.float64(dt), model.copies
        self.tet_order, self.tet_groups = launch_groups(model.tet_nodes, parallel=parallel, copies=copies)
        order, self.spring_groups = launch_groups(model.spring_nodes, parallel=parallel, copies=copies)
        self.spring_order = wp.array(order)
        order, self.contact_groups = launch_groups(model.contact_parents, parallel=parallel, copies=copies)
        self.contact_order = wp.array(order)
        self.mass = wp.array(node_mass(model, parameters), dtype=wp.float64)
        self.tets, self.elastic = _tets(model, parameters, self.tet_order)
        self.springs = _springs(model)
        self.area_ratio = wp.array(model.spring_area_ratio, dtype=wp.float64)
        law = damage_law(model.damage_law)
        self.edge = EdgeCut(model, parameters) if law.at_edge else None
        self.damage_kernel: wp.Kernel | None = None
        if not law.at_edge:
            self.damage_kernel = getattr(damage, law.kernel)
        self.damage = damage.DamageSetting()
        self.damage.dt, self.damage.area_ratio, self.damage.normal = dt, self.area_ratio, self.springs.normal
        self.contact = _contact_setting(model, dt)
        self.edges = _contact_edges(model, np.arange(len(model.contact_parents)))
        self.contact_parameters = wp.array(_contact_table(model, parameters), dtype=wp.float64)
        self.board = _board(model)
        self.held = _held(model)
        self.board_nodes = wp.array(model.board_nodes)
        self.board_area_ratio = wp.array(model.board_area_ratio, dtype=wp.float64)

    def damage_arrays(self, parameters: ExpandedParameters) -> dict[str, wp.array]:
        """Return the damage kernel's inputs by argument name, with the parameters filled in."""
        types = {
            "stiffness": wp.float64,
            "force_positive": wp.vec3d,
            "force_negative": wp.vec3d,
            "touch_positive": wp.float64,
            "touch_negative": wp.float64,
            "d": wp.vec3d,
        }
        count = parameters.spring.shape[1]
        names = [] if self.damage_kernel is None else input_names(self.damage_kernel)
        return {
            name: wp.array(parameters.row(name), dtype=wp.float64)
            if name in SPRING_NAMES
            else wp.zeros(count, dtype=types[name])
            for name in names
        }


class HessianSlots:
    """Hessian block to which each element adds."""

    def __init__(self, model: Model, pattern: BlockPattern, tet_order: np.ndarray) -> None:
        nodes = np.arange(model.node_count)
        a, b = model.contact_parents.T
        mixed, transposed = pattern.slots(a, b)
        diagonal = pattern.slots(a, a)[0], pattern.slots(b, b)[0]
        self.nodes = wp.array(pattern.slots(nodes, nodes)[0])
        self.board = wp.array(pattern.slots(model.board_nodes, model.board_nodes)[0])
        self.held = wp.array(pattern.slots(model.guided, model.guided)[0])
        self.tets = wp.array(element_slots(pattern, model.tet_nodes[tet_order]))
        self.springs = wp.array(element_slots(pattern, model.spring_nodes))
        self.contacts = wp.array(np.stack([*diagonal, mixed, transposed.astype(np.int32)], axis=1))
        self.upper, self.lower = wp.array(pattern.upper), wp.array(pattern.lower)


def node_mass(model: Model, parameters: ExpandedParameters) -> np.ndarray:
    """Return node masses [kg], shape [node_count]."""
    density = [material.density_kg_m3 for material in parameters.materials]
    return model.node_flesh_volume * np.repeat(density, model.one.node_count)


def input_names(kernel: wp.Kernel) -> list[str]:
    """Return the kernel's arguments that end in `_in`, without the suffix."""
    return [name.removesuffix("_in") for name in signature(kernel.func).parameters if name.endswith("_in")]


def _contact_edges(model: Model, which: np.ndarray) -> contact_point.ContactEdges:
    """Return the cut edges of the given contacts."""
    c = contact_point.ContactEdges()
    c.parents = wp.array(model.contact_parents[which], dtype=wp.vec2i)
    c.coordinate = wp.array(model.contact_coordinate[which], dtype=wp.float64)
    c.side = wp.array(model.contact_side[which], dtype=wp.float64)
    c.offset = wp.array(model.contact_offset[which], dtype=wp.float64)
    c.copy = wp.array((model.contact_parents[which, 0] // model.one.node_count).astype(np.int32))
    return c


def _tets(
    model: Model, parameters: ExpandedParameters, order: np.ndarray
) -> tuple[elasticity.TetGeometry, wp.array]:
    """Return tet geometry and the moduli of each copy of the body."""
    t, elastics = elasticity.TetGeometry(), []
    t.nodes = wp.array(model.tet_nodes[order], dtype=wp.vec4i)
    t.shape_gradients = wp.array(model.tet_shape_gradients[order], dtype=wp.mat33d)
    t.volume = wp.array((model.tet_volume * model.tet_lame[0])[order], dtype=wp.float64)
    t.bulk = wp.array((model.tet_lame[1] / model.tet_lame[0])[order], dtype=wp.float64)
    t.number, t.per_copy = wp.array(order), model.one.tet_count
    for material in parameters.materials:
        e = elasticity.Elastic()
        e.lame_mu, e.lame_lambda = material.lame_mu_pa, material.lame_lambda_pa
        e.retardation = material.retardation_s
        elastics.append(e)
    return t, wp.array(elastics, dtype=elasticity.Elastic)


def _springs(model: Model) -> springs.SpringGeometry:
    s = springs.SpringGeometry()
    s.nodes = wp.array(model.spring_nodes, dtype=wp.vec4i)
    s.weights = wp.array(model.spring_weights, dtype=wp.vec4d)
    s.normal = wp.array(model.spring_normal, dtype=wp.vec3d)
    s.overlap_stiffness = wp.array(model.overlap_stiffness, dtype=wp.float64)
    s.overlap_onset = OVERLAP_ONSET_M
    return s


def _held(model: Model) -> boundary.Held:
    """Return the stiffness of the hand, distributed by volume."""
    h = boundary.Held()
    h.nodes = wp.array(model.guided)
    h.rest = wp.array(model.mesh.nodes[model.guided, 2], dtype=wp.float64)
    volume = model.node_volume[model.one.guided]
    stiffness = HAND_N_M * volume / max(volume.sum(), _TINY_M3)
    h.stiffness = wp.array(np.tile(stiffness, model.copies), dtype=wp.float64)
    return h


def _contact_setting(model: Model, dt: float) -> contact_point.ContactSetting:
    c = contact_point.ContactSetting()
    c.shape = model.knife.shape()
    c.onset, c.onset_speed, c.regulariser, c.dt = ONSET_M, _ONSET_SPEED_M_S, REGULARISER_M, dt
    return c


def _contact_table(model: Model, parameters: ExpandedParameters) -> np.ndarray:
    """Return the contacts' parameter columns, scaled by area where stated per area, shape [contact_count, 7].

    Stiffness and damping are those of the contact in series with the flesh.
    """
    series = series_stiffness(parameters)
    acting = {"sdf_ke": series.stiffness, "sdf_kd": series.damping}
    columns = np.stack([acting.get(name, parameters.row(name)) for name in CONTACT_NAMES], axis=1)
    columns[:, CONTACT_PER_AREA] *= model.spring_area_ratio[:, None]
    both = np.repeat(columns.reshape(model.copies, 1, -1, len(CONTACT_NAMES)), 2, axis=1)
    return both.reshape(-1, len(CONTACT_NAMES))


def _board(model: Model) -> boundary.Board:
    b, given = boundary.Board(), model.board
    b.stiffness, b.damping, b.friction_speed = given.ke, given.kd, given.kf
    b.mu, b.radius, b.onset, b.onset_speed = given.mu, given.radius_m, ONSET_M, _ONSET_SPEED_M_S
    return b


# Stiffness of the knife contact on a body of given modulus: sdf_ke in series with a layer of flesh.
#
# The knife's rounding r (`sdf_radius`) and its tip width w (`sdf_tip`) displace a layer of flesh of that thickness. Per
# reference area A it has the stiffness E A / (r + w), in series with `sdf_ke`:
#
#     1 / k = 1 / ke + (r + w) / (E A),   damping c = kd k / ke
#
# Firm flesh (3 MPa) leaves 96 % of `sdf_ke`, flesh of 3 kPa 2 %. Without the layer, a contact far stiffer than
# the body pushes soft flesh down, by friction and by the blunt tip, before the edge has parted it.


@dataclass(frozen=True)
class SeriesStiffness:
    """Contact stiffness and damping per reference area, one value per spring."""

    given: np.ndarray
    """`sdf_ke` [N/m], shape [spring_count]."""
    damping_given: np.ndarray
    """`sdf_kd` [N s/m], shape [spring_count]."""
    thickness: np.ndarray
    """Thickness of the layer, `sdf_radius` + `sdf_tip` [m], shape [spring_count]."""
    young: np.ndarray
    """Young's modulus [Pa], shape [spring_count]."""

    @property
    def layer(self) -> np.ndarray:
        """Stiffness of the layer [N/m], shape [spring_count]."""
        return self.young * REFERENCE_AREA_M2 / self.thickness

    @property
    def share(self) -> np.ndarray:
        """Share s of the given stiffness that acts [-], shape [spring_count]."""
        return self.layer / (self.given + self.layer)

    @property
    def stiffness(self) -> np.ndarray:
        """Stiffness k that acts [N/m], shape [spring_count]."""
        return self.given * self.share

    @property
    def damping(self) -> np.ndarray:
        """Damping c that acts [N s/m], shape [spring_count]."""
        return self.damping_given * self.share

    def pullback(self, stiffness_bar: np.ndarray, damping_bar: np.ndarray) -> "_SeriesBars":
        """Return the gradients in the given values from those in k and c, each of shape [spring_count, columns]."""
        share, total = self.share[:, None], (self.given + self.layer)[:, None]
        share_bar = self.given[:, None] * stiffness_bar + self.damping_given[:, None] * damping_bar
        layer_bar = share_bar * self.given[:, None] / total**2
        return _SeriesBars(
            given=share * stiffness_bar - share_bar * share / total,
            damping_given=share * damping_bar,
            thickness=-layer_bar * (self.layer / self.thickness)[:, None],
            young=layer_bar * (self.layer / self.young)[:, None],
        )


@dataclass(frozen=True)
class _SeriesBars:
    """Gradients in the fields of SeriesStiffness, each of shape [spring_count, columns]."""

    given: np.ndarray
    damping_given: np.ndarray
    thickness: np.ndarray
    young: np.ndarray


def series_stiffness(parameters: ExpandedParameters) -> SeriesStiffness:
    """Return the contact stiffness of every spring of a body, or of several copies of it."""
    given = parameters.row("sdf_ke")
    young = [material.young_pa for material in parameters.materials]
    return SeriesStiffness(
        given,
        parameters.row("sdf_kd"),
        parameters.row("sdf_radius") + parameters.row("sdf_tip"),
        np.repeat(young, len(given) // len(young)),
    )
