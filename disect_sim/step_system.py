"""One time step as an optimisation problem: device arrays and the launches that fill energy, gradient and Hessian."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import warp as wp

from disect_sim.device_arrays import upload
from disect_sim.device_model import DeviceModel, HessianSlots
from disect_sim.kernels import board, elasticity, inertia, knife_contact, springs
from disect_sim.model import Model
from disect_sim.parameters import ExpandedParameters
from disect_sim.sparsity import block_pattern


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

    `begin` sets the start of a step; `gradient` may then be asked at any positions, and `hessian`, `energies`,
    `volume_ratios` and `damaged` say more about the positions of the last `gradient`.
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
            self.on_device = DeviceModel(model, parameters, dt, parallel=self.device.is_cuda)
            self._slots = HessianSlots(model, self.pattern, self.on_device.tet_order)
            self._allocate()
            self._gradient: list[wp.Launch] = []
            self._hessian: list[wp.Launch] = []
            self._record_inertia()
            self._record_board()
            self._record_tets()
            self._record_springs()
            self._record_contacts()
            self._hessian += self._record(
                inertia.mirror_lower,
                len(self.pattern.upper),
                [self._slots.upper, self._slots.lower, self.blocks],
            )
            self._record_damage()

    def _allocate(self) -> None:
        m = self.model
        n, s, b = m.node_count, m.spring_count, len(m.board_nodes)
        vec = wp.vec3d
        self.x, self.x_previous, self.predicted = (wp.zeros(n, dtype=vec) for _ in range(3))
        self.pose, self.pose_previous = (wp.zeros(1, dtype=vec) for _ in range(2))
        self.grad = wp.zeros(n, dtype=vec)
        self.blocks = wp.zeros(self.pattern.trash + 1, dtype=wp.mat33d)
        self.stiffness, self.damping = (wp.zeros(s, dtype=wp.float64) for _ in range(2))
        self.energy_inertia = wp.zeros(n, dtype=wp.float64)
        self.energy_tets = wp.zeros(m.tet_count, dtype=vec)
        self.energy_springs = wp.zeros(s, dtype=vec)
        self.energy_board = wp.zeros(b, dtype=vec)
        self._allocate_contacts(len(m.contact_parents))

    def _allocate_contacts(self, count: int) -> None:
        self.found, self.curvature, self.lag_found, self.lag_curvature, self.lag_depth, self.lag_force = (
            wp.zeros(count, dtype=wp.float64) for _ in range(6)
        )
        self.touch = wp.zeros(count, dtype=wp.float64)
        self.lag_normal, self.energy_contacts, self.normal_force, self.friction_force = (
            wp.zeros(count, dtype=wp.vec3d) for _ in range(4)
        )
        self._now, self._before = knife_contact.KnifeState(), knife_contact.KnifeState()
        self._now.x, self._now.pose = self.x, self.pose
        self._now.found, self._now.curvature = self.found, self.curvature
        self._before.x, self._before.pose = self.x_previous, self.pose_previous
        self._before.found, self._before.curvature = self.lag_found, self.lag_curvature
        lagged = self._lagged = knife_contact.Lagged()
        lagged.depth, lagged.normal, lagged.force = self.lag_depth, self.lag_normal, self.lag_force
        forces = self._forces = knife_contact.ContactForces()
        forces.energy, forces.touch = self.energy_contacts, self.touch
        forces.normal_force, forces.friction_force = self.normal_force, self.friction_force

    def _record(self, kernel: wp.Kernel, count: int, inputs: list) -> list[wp.Launch]:
        if count == 0:
            return []
        return [wp.launch(kernel, dim=count, inputs=inputs, device=self.device, record_cmd=True)]

    def _record_inertia(self) -> None:
        count, mass, dt = self.model.node_count, self.on_device.mass, self.on_device.dt
        state = [self.x, self.predicted]
        outputs = [self.energy_inertia, self.grad]
        self._gradient += self._record(inertia.inertia_gradient, count, [mass, dt, *state, *outputs])
        self._hessian += self._record(
            inertia.inertia_hessian, count, [mass, dt, self._slots.nodes, self.blocks]
        )

    def _record_board(self) -> None:
        d, count = self.on_device, len(self.model.board_nodes)
        shared = [d.board, d.dt, d.board_nodes, d.board_area_ratio]
        state = [self.x, self.x_previous]
        self._gradient += self._record(
            board.board_gradient, count, [*shared, *state, self.energy_board, self.grad]
        )
        self._hessian += self._record(
            board.board_hessian, count, [*shared, self._slots.board, *state, self.blocks]
        )

    def _record_tets(self) -> None:
        d = self.on_device
        shared, state = [d.tets, d.elastic, d.dt], [self.x, self.x_previous]
        for first, count in d.tet_groups:
            self._gradient += self._record(
                elasticity.tet_gradient, count, [*shared, first, *state, self.energy_tets, self.grad]
            )
            self._hessian += self._record(
                elasticity.tet_hessian, count, [*shared, self._slots.tets, first, *state, self.blocks]
            )

    def _record_springs(self) -> None:
        d = self.on_device
        held = [self.stiffness, self.damping]
        for first, count in d.spring_groups:
            shared = [d.springs, d.dt, d.spring_order, first]
            state = [*held, self.x, self.x_previous]
            self._gradient += self._record(
                springs.spring_gradient, count, [*shared, *state, self.energy_springs, self.grad]
            )
            self._hessian += self._record(
                springs.spring_hessian, count, [*shared, self._slots.springs, *held, self.x, self.blocks]
            )

    def _record_contacts(self) -> None:
        d, contacts = self.on_device, len(self.model.contact_parents)
        shared = [d.contact, d.edges, d.contact_parameters]
        search, lag = knife_contact.closest_point, knife_contact.lag
        before = [self.x_previous, self.pose_previous, self.lag_found, self.lag_curvature]
        self._lag = [
            *self._record(search, contacts, [*shared, *before]),
            *self._record(lag, contacts, [*shared, self._before, self._lagged]),
        ]
        now = [self.x, self.pose, self.found, self.curvature]
        self._gradient += self._record(search, contacts, [*shared, *now])
        step = [self._now, self._before, self._lagged]
        for first, count in d.contact_groups:
            group = [*shared, d.contact_order, first]
            self._gradient += self._record(
                knife_contact.contact_gradient, count, [*group, *step, self._forces, self.grad]
            )
            self._hessian += self._record(
                knife_contact.contact_hessian, count, [*group, self._slots.contacts, *step, self.blocks]
            )

    def _record_damage(self) -> None:
        d, count = self.on_device, self.model.spring_count
        self.damage_arrays = d.damage_arrays(count)
        self._damage_out = wp.zeros(count, dtype=wp.float64)
        inputs = [d.damage, *self.damage_arrays.values(), self._damage_out]
        self._damage = self._record(d.damage_kernel, count, inputs)

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
        out[self.on_device.tet_order] = self.energy_tets.numpy()[:, 2]
        return out

    def damage_state(self, stiffness: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        """What the damage law takes from the step, under the forces of the last `gradient`, by the law's own names."""
        s = self.model.spring_count
        force = self.normal_force.numpy() + self.friction_force.numpy()
        touch = self.touch.numpy()
        state = {
            "stiffness": stiffness,
            "force_positive": force[:s],
            "force_negative": force[s:],
            "touch_positive": touch[:s],
            "touch_negative": touch[s:],
        }
        if "d" in self.damage_arrays:
            state["d"] = self.model.spring_operator @ x
        return {name: value for name, value in state.items() if name in self.damage_arrays}

    def damaged(self, stiffness: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Spring stiffness per reference area at the end of the step, under the forces of the last `gradient`."""
        for name, value in self.damage_state(stiffness, x).items():
            upload(self.damage_arrays[name], value)
        _launch(self._damage)
        return self._damage_out.numpy().copy()


def _launch(launches: Sequence[wp.Launch]) -> None:
    for launch in launches:
        launch.launch()
