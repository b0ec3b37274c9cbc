"""One time step as an optimisation problem: device arrays and the launches that fill energy, gradient and Hessian."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import warp as wp

from disect_sim.device_arrays import upload
from disect_sim.kernels import board, elasticity, inertia, knife_contact, springs
from disect_sim.model import OVERLAP_ONSET_M, REGULARISER_M, Model
from disect_sim.parameters import CONTACT_NAMES, ExpandedParameters
from disect_sim.sparsity import block_pattern, element_slots, launch_groups

ONSET_M = 1.0e-4
"""Length of the quadratic start of every penalty [m]."""
ONSET_SPEED_M_S = 1.0e-3
"""The same for approach damping [m/s]: 2 % of a usual cutting speed."""
EXPONENT_SCALE_M = 1.0e-3
"""Depth at which the linear and the quadratic normal force agree [m]."""


@dataclass(frozen=True)
class Energies:
    """Parts of the incremental energy of one step [J]."""

    inertia: float
    elastic: float
    viscous: float
    springs: float
    spring_damping: float
    overlap: float
    contact: float
    contact_damping: float
    friction: float
    board: float
    board_dissipation: float

    @property
    def total(self) -> float:
        """The sum: what Newton's method minimises."""
        return sum(vars(self).values())


class StepSystem:
    """Energy, gradient and Hessian of a step from (x_n, x_{n-1}, k_n) to x_{n+1}, on one device.

    `begin` sets the start of a step; `gradient`, `hessian` and `contact_forces` may then be asked at any positions.
    """

    def __init__(self, model: Model, parameters: ExpandedParameters, dt: float, device: str) -> None:
        self.model = model
        self.parameters = parameters
        self.dt = dt
        self.device = wp.get_device(device)
        self.mass = model.node_volume * parameters.material.density_kg_m3
        self.area_ratio = model.spring_area_ratio
        elements = [model.tet_nodes, model.spring_nodes, model.contact_parents]
        self.pattern = block_pattern(elements, model.fixed)
        with wp.ScopedDevice(self.device):
            self._allocate()
            self._build_structs()
            self._record()

    def _allocate(self) -> None:
        m = self.model
        n, s, c, b = m.node_count, m.spring_count, len(m.contact_parents), len(m.board_nodes)
        vec = wp.vec3d
        self.x, self.x_previous, self.predicted = (wp.zeros(n, dtype=vec) for _ in range(3))
        self.pose, self.pose_previous = (wp.zeros(1, dtype=vec) for _ in range(2))
        self.grad = wp.zeros(n, dtype=vec)
        self.blocks = wp.zeros(self.pattern.trash + 1, dtype=wp.mat33d)
        self.stiffness, self.damping = (wp.zeros(s, dtype=wp.float64) for _ in range(2))
        self.found, self.curvature, self.touch = (wp.zeros(c, dtype=wp.float64) for _ in range(3))
        self.lag_found, self.lag_curvature, self.lag_depth, self.lag_force = (
            wp.zeros(c, dtype=wp.float64) for _ in range(4)
        )
        self.lag_normal, self.normal_force, self.friction_force = (wp.zeros(c, dtype=vec) for _ in range(3))
        self.energy_inertia = wp.zeros(n, dtype=wp.float64)
        self.energy_tets = wp.zeros(m.tet_count, dtype=vec)
        self.energy_springs = wp.zeros(s, dtype=vec)
        self.energy_contacts = wp.zeros(c, dtype=vec)
        self.energy_board = wp.zeros(b, dtype=vec)

    def _build_structs(self) -> None:
        m, parallel = self.model, self.device.is_cuda
        self._tet_order, self.tet_groups = launch_groups(m.tet_nodes, parallel=parallel)
        order, self._spring_groups = launch_groups(m.spring_nodes, parallel=parallel)
        self._spring_order = wp.array(order)
        order, self._contact_groups = launch_groups(m.contact_parents, parallel=parallel)
        self._contact_order = wp.array(order)

        t = self.tets = elasticity.TetGeometry()
        t.nodes = wp.array(m.tet_nodes[self._tet_order], dtype=wp.vec4i)
        t.shape_gradients = wp.array(m.tet_shape_gradients[self._tet_order], dtype=wp.mat33d)
        t.volume = wp.array(m.tet_volume[self._tet_order], dtype=wp.float64)
        e = self.elastic = elasticity.Elastic()
        material = self.parameters.material
        e.lame_mu, e.lame_lambda = material.lame_mu_pa, material.lame_lambda_pa
        e.retardation = material.retardation_s

        s = self.springs = springs.SpringGeometry()
        s.nodes = wp.array(m.spring_nodes, dtype=wp.vec4i)
        s.weights = wp.array(m.spring_weights, dtype=wp.vec4d)
        s.normal = wp.array(m.spring_normal, dtype=wp.vec3d)
        s.overlap_stiffness = wp.array(m.overlap_stiffness, dtype=wp.float64)
        s.overlap_onset = OVERLAP_ONSET_M

        self.shape = m.knife.shape()
        law = self.law = knife_contact.ContactLaw()
        law.kind = int(m.contact_law == "exact")
        law.exponent = m.contact_exponent
        law.exponent_scale, law.onset, law.onset_speed = EXPONENT_SCALE_M, ONSET_M, ONSET_SPEED_M_S
        law.regulariser = REGULARISER_M
        c = self.edges = knife_contact.ContactEdges()
        c.parents = wp.array(m.contact_parents, dtype=wp.vec2i)
        c.coordinate = wp.array(m.contact_coordinate, dtype=wp.float64)
        c.side = wp.array(m.contact_side, dtype=wp.float64)
        c.offset = wp.array(m.contact_offset, dtype=wp.float64)
        self.contact_parameters = wp.array(self._contact_table(), dtype=wp.float64)

        b = self.board = board.Board()
        b.stiffness, b.damping, b.friction_speed = m.board.ke, m.board.kd, m.board.kf
        b.mu, b.radius, b.onset, b.onset_speed = m.board.mu, m.board.radius_m, ONSET_M, ONSET_SPEED_M_S
        self.board_nodes = wp.array(m.board_nodes)
        self.board_area_ratio = wp.array(m.board_area_ratio, dtype=wp.float64)
        self.mass_device = wp.array(self.mass, dtype=wp.float64)
        self.area_ratio_device = wp.array(self.area_ratio, dtype=wp.float64)

    def _contact_table(self) -> np.ndarray:
        """Parameter columns of the contacts, stiffness and damping scaled by area, shape [contact_count, 7]."""
        columns = np.stack([self.parameters.row(name) for name in CONTACT_NAMES], axis=1)
        columns[:, :2] *= self.area_ratio[:, None]
        return np.concatenate([columns, columns])

    def _record(self) -> None:
        m, p = self.model, self.pattern
        dt = wp.float64(self.dt)

        def record(kernel: wp.Kernel, count: int, inputs: list) -> Sequence[wp.Launch]:
            if count == 0:
                return []
            return [wp.launch(kernel, dim=count, inputs=inputs, device=self.device, record_cmd=True)]

        knife = [self.edges, self.law, self.shape]
        step = [self.x, self.x_previous]
        poses = [self.pose, self.pose_previous]
        table = self.contact_parameters
        contacts = len(m.contact_parents)
        search = [*knife, table, self.x, self.pose, self.found, self.curvature]
        lag_search = [*knife, table, self.x_previous, self.pose_previous, self.lag_found, self.lag_curvature]
        lag = [*knife, table, self.x_previous, self.pose_previous, self.lag_found]
        lag += [self.lag_depth, self.lag_normal, self.lag_force]
        self._lag = [
            *record(knife_contact.closest_point, contacts, lag_search),
            *record(knife_contact.lag, contacts, lag),
        ]
        self._search = record(knife_contact.closest_point, contacts, search)

        lagged = [self.lag_found, self.lag_depth, self.lag_normal, self.lag_force]
        forces = [self.energy_contacts, self.normal_force, self.friction_force, self.touch, self.grad]
        board_inputs = [self.board, dt, self.board_nodes, self.board_area_ratio]
        g = [
            *record(
                inertia.inertia_gradient,
                m.node_count,
                [self.mass_device, dt, self.x, self.predicted, self.energy_inertia, self.grad],
            ),
            *record(
                board.board_gradient, len(m.board_nodes), [*board_inputs, *step, self.energy_board, self.grad]
            ),
        ]
        h = list(
            record(
                inertia.inertia_hessian,
                m.node_count,
                [self.mass_device, dt, wp.array(p.slots(*[np.arange(m.node_count)] * 2)[0]), self.blocks],
            )
        )
        h += record(
            board.board_hessian,
            len(m.board_nodes),
            [*board_inputs, wp.array(p.slots(m.board_nodes, m.board_nodes)[0]), *step, self.blocks],
        )
        tet_slots = wp.array(element_slots(p, m.tet_nodes[self._tet_order]))
        for first, count in self.tet_groups:
            shared = [self.tets, self.elastic, dt]
            g += record(elasticity.tet_gradient, count, [*shared, first, *step, self.energy_tets, self.grad])
            h += record(elasticity.tet_hessian, count, [*shared, tet_slots, first, *step, self.blocks])
        spring_slots = wp.array(element_slots(p, m.spring_nodes))
        state = [self.stiffness, self.damping]
        for first, count in self._spring_groups:
            shared = [self.springs, dt, self._spring_order, first]
            g += record(
                springs.spring_gradient, count, [*shared, *state, *step, self.energy_springs, self.grad]
            )
            h += record(springs.spring_hessian, count, [*shared, spring_slots, *state, self.x, self.blocks])
        contact_slots = wp.array(self._contact_slots())
        self._contact_gradient: list[wp.Launch] = []
        for first, count in self._contact_groups:
            shared = [*knife, dt, table, self._contact_order, first]
            self._contact_gradient += record(
                knife_contact.contact_gradient, count, [*shared, *step, *poses, self.found, *lagged, *forces]
            )
            inputs = [*shared, contact_slots, *step, *poses, self.found, self.curvature, *lagged, self.blocks]
            h += record(knife_contact.contact_hessian, count, inputs)
        h += record(inertia.mirror_lower, len(p.upper), [wp.array(p.upper), wp.array(p.lower), self.blocks])
        self._gradient = [*g, *self._search, *self._contact_gradient]
        self._hessian = h
        count = m.spring_count
        types = (wp.float64, wp.vec3d, wp.vec3d, wp.float64, wp.float64, wp.vec3d)
        self._damage_inputs = [wp.zeros(count, dtype=t) for t in types]
        self._damage_out = wp.zeros(count, dtype=wp.float64)
        softness = wp.array(self.parameters.row("cut_spring_softness"), dtype=wp.float64)
        before, *rest = self._damage_inputs
        law = int(m.damage_law == "stretch")
        inputs = [law, dt, self.area_ratio_device, before, softness, *rest, self._damage_out]
        self._damage = record(springs.damage, count, inputs)

    def _contact_slots(self) -> np.ndarray:
        a, b = self.model.contact_parents.T
        mixed, transposed = self.pattern.slots(a, b)
        return np.stack(
            [self.pattern.slots(a, a)[0], self.pattern.slots(b, b)[0], mixed, transposed.astype(np.int32)],
            axis=1,
        )

    def spring_state(self, stiffness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Stiffness [N/m] and damping [N s/m] of the springs as they are, from the stiffness per reference area."""
        initial, damping = self.parameters.row("cut_spring_ke"), self.parameters.row("cut_spring_kd")
        return stiffness * self.area_ratio, damping * self.area_ratio * (stiffness / initial)

    def begin(
        self,
        x_n: np.ndarray,
        predicted: np.ndarray,
        stiffness: np.ndarray,
        pose_n: np.ndarray,
        pose: np.ndarray,
    ) -> None:
        """Start a step: positions x_n [m] and where inertia alone would take them, springs, knife at start and end."""
        k, c = self.spring_state(stiffness)
        upload(self.stiffness, k)
        upload(self.damping, c)
        upload(self.x_previous, x_n)
        upload(self.predicted, predicted)
        upload(self.pose_previous, pose_n.reshape(1, 3))
        upload(self.pose, pose.reshape(1, 3))
        _launch(self._lag)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Gradient of the incremental energy at x [N], shape [node_count, 3]; energies stay on the device."""
        upload(self.x, x)
        _launch(self._gradient)
        return self.grad.numpy()

    def hessian(self) -> np.ndarray:
        """Blocks of the Hessian at the x of the last `gradient` [N/m], shape [block_count, 3, 3]."""
        self.blocks.zero_()
        _launch(self._hessian)
        return self.blocks.numpy()[:-1]

    def energies(self) -> Energies:
        """Energy parts at the x of the last `gradient`."""
        tets = self.energy_tets.numpy().sum(axis=0)
        spring = self.energy_springs.numpy().sum(axis=0)
        contact = self.energy_contacts.numpy().sum(axis=0)
        ground = self.energy_board.numpy().sum(axis=0)
        inertial = self.energy_inertia.numpy().sum()
        parts = [inertial, *tets[:2], *spring, *contact, ground[0], ground[1] + ground[2]]
        return Energies(*(float(part) for part in parts))

    def volume_ratios(self) -> np.ndarray:
        """det F of every tet at the x of the last `gradient` [-], shape [tet_count], in the model's tet order."""
        out = np.empty(self.model.tet_count)
        out[self._tet_order] = self.energy_tets.numpy()[:, 2]
        return out

    def damaged(self, stiffness: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Spring stiffness per reference area at the end of the step, under the forces of the last `gradient`."""
        s = self.model.spring_count
        force = self.normal_force.numpy() + self.friction_force.numpy()
        touch = self.touch.numpy()
        values = (stiffness, force[:s], force[s:], touch[:s], touch[s:], self.model.spring_operator @ x)
        for array, value in zip(self._damage_inputs, values, strict=True):
            upload(array, value)
        _launch(self._damage)
        return self._damage_out.numpy().copy()


def _launch(launches: Sequence[wp.Launch]) -> None:
    for launch in launches:
        launch.launch()
