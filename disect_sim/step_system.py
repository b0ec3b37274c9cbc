"""One time step as an optimisation problem: device arrays and launches for energy, gradient and Hessian."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import warp as wp

from disect_sim.device_arrays import Launches, clear, host, upload, zeros
from disect_sim.device_model import DeviceModel, HessianSlots, node_mass
from disect_sim.edge_cut import EdgeCut, EdgeLoad
from disect_sim.kernels import boundary, elasticity, knife_contact, springs
from disect_sim.model import ONSET_M, OVERLAP_ONSET_M, Model
from disect_sim.motions import with_pitch
from disect_sim.parameters import ExpandedParameters
from disect_sim.sparsity import BlockPattern, block_pattern


class _Switches:
    """Stiffnesses that switch on and off: one per spring along the cut normal, then one per board node, upwards."""

    def __init__(self, model: Model, pattern: BlockPattern) -> None:
        m = self._model = model
        springs, board = m.spring_count, len(m.board_nodes)
        nodes = np.concatenate([np.repeat(m.spring_nodes.ravel(), 3), m.board_nodes])
        axis = np.concatenate([np.tile([0, 1, 2], 4 * springs), np.ones(board, int)])
        weights = (m.spring_weights[:, :, None] * m.spring_normal[:, None, :]).ravel()
        values = np.concatenate([weights, np.ones(board)])
        rows = np.concatenate([np.repeat(np.arange(springs), 12), springs + np.arange(board)])
        free = pattern.free_index[nodes] >= 0
        columns = 3 * pattern.free_index[nodes] + axis
        self.directions = sp.csr_matrix(
            (values[free], (rows[free], columns[free])), shape=(springs + board, 3 * pattern.free_count)
        )
        """Directions as rows over the unknowns of the Hessian, shape [switch_count, 3 free_count]."""

    def stiffness(self, x: np.ndarray, spring_stiffness: np.ndarray) -> np.ndarray:
        """Return the stiffness along the directions [N/m], shape [switch_count], at positions x with these springs."""
        m = self._model
        apart = ((m.spring_operator @ x) * m.spring_normal).sum(axis=1)
        closed = m.overlap_stiffness * np.clip(-apart / OVERLAP_ONSET_M, 0.0, 1.0)
        depth = m.board.radius_m - x[m.board_nodes, 1]
        pressed = m.board.ke * m.board_area_ratio * np.clip(depth / ONSET_M, 0.0, 1.0)
        return np.concatenate([spring_stiffness + closed, pressed])


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
    hold: float

    @property
    def total(self) -> float:
        """Sum of the parts, which Newton's method minimises."""
        return sum(vars(self).values())


class StepStart(NamedTuple):
    """Inputs of a step from t_n to t_{n+1}."""

    x_n: np.ndarray
    """Positions [m], shape [node_count, 3]."""
    predicted: np.ndarray
    """Positions under inertia and gravity alone [m], shape [node_count, 3]."""
    stiffness: np.ndarray
    """Spring stiffness per reference area that acts during the step [N/m], shape [spring_count]."""
    pose_n: np.ndarray
    """Position [m] and pitch [rad] of the knife at t_n, shape [4]."""
    pose: np.ndarray
    """The same at t_{n+1}."""
    ahead: np.ndarray | None = None
    """Node positions at t_{n+1} as predicted for friction [m], shape [node_count, 3]; by default x_n."""
    swing: np.ndarray | None = None
    """Half second difference of the knife's positions [m] and pitch [rad], shape [4]; by default zero."""
    load: EdgeLoad | None = None
    """Force of the edge on the body, under the edge law."""

    @property
    def expected(self) -> np.ndarray:
        """Initial guess for the end of the step [m], shape [node_count, 3]."""
        return self.x_n if self.ahead is None else self.ahead


class StepSystem:
    """Energy, gradient and Hessian of a step from (x_n, x_{n-1}, k_n, k_{n-1}) to x_{n+1}, on one device.

    `begin` sets the start of a step; `gradient` can then be evaluated at any positions, and `hessian`, `energies`,
    `volume_ratios` and `damaged` refer to the positions of the last `gradient`.
    """

    def __init__(self, model: Model, parameters: ExpandedParameters, dt: float, device: str) -> None:
        self.model = model
        self.parameters = parameters
        self.dt = dt
        self.device = wp.get_device(device)
        self.mass = node_mass(model, parameters)
        self.area_ratio = model.spring_area_ratio
        elements = [model.tet_nodes, model.spring_nodes, model.contact_parents]
        self.pattern = block_pattern(elements, model.fixed)
        self.switches = _Switches(model, self.pattern)
        self._foresight, self._gradient, self._contact_gradient = (Launches(self.device) for _ in range(3))
        self._tet_hessian, self._hessian, self._damage = (Launches(self.device) for _ in range(3))
        self._tet_hessian_known = False
        self.load: EdgeLoad | None = None
        self._ones = np.ones(max(model.node_count, model.tet_count, len(model.contact_parents)))
        with wp.ScopedDevice(self.device):
            self.on_device = DeviceModel(model, parameters, dt, parallel=self.device.is_cuda)
            self._slots = HessianSlots(model, self.pattern, self.on_device.tet_order)
            self._allocate()
            self._record_inertia()
            self._record_board()
            self._record_hold()
            self._record_tets()
            self._record_springs()
            self._record_contacts()
            mirrored = [self._slots.upper, self._slots.lower, self.blocks]
            self._hessian.add(boundary.mirror_lower, len(self.pattern.upper), mirrored)
            self._record_damage()

    def _allocate(self) -> None:
        m = self.model
        n, s, b = m.node_count, m.spring_count, len(m.board_nodes)
        vec = wp.vec3d
        self.x, self.x_previous, self.x_ahead, self.predicted = (zeros(n, dtype=vec) for _ in range(4))
        self.pose, self.pose_previous, self.swing = (zeros(m.copies, dtype=vec) for _ in range(3))
        self.turn, self.turn_previous = (zeros(m.copies, dtype=wp.vec2d) for _ in range(2))
        self.spin = zeros(m.copies, dtype=wp.float64)
        self.grad = zeros(n, dtype=vec)
        self.blocks, self.tet_blocks = (zeros(self.pattern.trash + 1, dtype=wp.mat33d) for _ in range(2))
        self.stiffness, self.damping = (zeros(s, dtype=wp.float64) for _ in range(2))
        self.energy_inertia = zeros(n, dtype=wp.float64)
        self.energy_tets = zeros(m.tet_count, dtype=vec)
        self.energy_springs = zeros(s, dtype=vec)
        self.energy_board = zeros(b, dtype=vec)
        self.energy_hold = zeros(len(m.guided), dtype=wp.float64)
        self._allocate_contacts(len(m.contact_parents))

    def _allocate_contacts(self, count: int) -> None:
        def numbers() -> wp.array:
            return zeros(count, dtype=wp.float64)

        def vectors() -> wp.array:
            return zeros(count, dtype=wp.vec3d)

        self.found, self.before_found, self.ahead_found = numbers(), numbers(), numbers()
        self.curvature, self.before_curvature, self.ahead_curvature = numbers(), numbers(), numbers()
        knife, knife_before = (self.pose, self.turn), (self.pose_previous, self.turn_previous)
        self._now = _knife_state(self.x, *knife, self.found, self.curvature)
        self._before = _knife_state(self.x_previous, *knife_before, self.before_found, self.before_curvature)
        self._ahead = _knife_state(self.x_ahead, *knife, self.ahead_found, self.ahead_curvature)
        self.friction_limit, self.friction_normal = numbers(), vectors()
        foreseen = self._foreseen = knife_contact.Foreseen()
        foreseen.depth, foreseen.normal, foreseen.force = numbers(), self.friction_normal, self.friction_limit
        foreseen.swing, foreseen.spin = self.swing, self.spin
        self.touch, self.energy_contacts = numbers(), vectors()
        self.normal_force, self.friction_force = vectors(), vectors()
        forces = self._forces = knife_contact.ContactForces()
        forces.energy, forces.touch = self.energy_contacts, self.touch
        forces.normal_force, forces.friction_force = self.normal_force, self.friction_force

    def _record_inertia(self) -> None:
        count, mass, dt = self.model.node_count, self.on_device.mass, self.on_device.dt
        state, outputs = [self.x, self.predicted], [self.energy_inertia, self.grad]
        self._gradient.add(boundary.inertia_gradient, count, [mass, dt, *state, *outputs])
        self._hessian.add(boundary.inertia_hessian, count, [mass, dt, self._slots.nodes, self.blocks])

    def _record_board(self) -> None:
        d, count = self.on_device, len(self.model.board_nodes)
        shared = [d.board, d.dt, d.board_nodes, d.board_area_ratio]
        state = [self.x, self.x_previous]
        self._gradient.add(boundary.board_gradient, count, [*shared, *state, self.energy_board, self.grad])
        self._hessian.add(boundary.board_hessian, count, [*shared, self._slots.board, *state, self.blocks])

    def _record_hold(self) -> None:
        d, count = self.on_device, len(self.model.guided)
        if count:
            self._gradient.add(boundary.hold_gradient, count, [d.held, self.x, self.energy_hold, self.grad])
            self._hessian.add(boundary.hold_hessian, count, [d.held, self._slots.held, self.blocks])

    def _record_tets(self) -> None:
        d = self.on_device
        shared, state = [d.tets, d.elastic, d.dt], [self.x, self.x_previous]
        for first, count in d.tet_groups:
            inputs = [*shared, first, *state]
            self._gradient.add(elasticity.tet_gradient, count, [*inputs, self.energy_tets, self.grad])
            inputs = [*shared, self._slots.tets, first, *state]
            self._tet_hessian.add(elasticity.tet_hessian, count, [*inputs, self.tet_blocks])

    def _record_springs(self) -> None:
        d = self.on_device
        held = [self.stiffness, self.damping]
        for first, count in d.spring_groups:
            shared = [d.springs, d.dt, d.spring_order, first]
            inputs = [*shared, *held, self.x, self.x_previous]
            self._gradient.add(springs.spring_gradient, count, [*inputs, self.energy_springs, self.grad])
            inputs = [*shared, self._slots.springs, *held, self.x]
            self._hessian.add(springs.spring_hessian, count, [*inputs, self.blocks])

    def _record_contacts(self) -> None:
        d, contacts = self.on_device, len(self.model.contact_parents)
        shared = [d.contact, d.edges, d.contact_parameters]
        before, ahead, seen = self._before, self._ahead, self._foreseen
        state = [before.x, before.pose, before.turn, before.found, before.curvature]
        self._foresight.add(knife_contact.look_back, contacts, [*shared, *state, seen.depth])
        state = [ahead.x, ahead.pose, ahead.turn, ahead.found, ahead.curvature]
        self._foresight.add(knife_contact.look_ahead, contacts, [*shared, *state, seen.normal, seen.force])
        step = [self._now, before, ahead, seen]
        for first, count in d.contact_groups:
            group = [*shared, d.contact_order, first]
            outputs = [self.found, self.curvature, self._forces, self.grad]
            for launches in (self._gradient, self._contact_gradient):
                launches.add(knife_contact.contact_gradient, count, [*group, *step, *outputs])
            inputs = [*group, self._slots.contacts, *step]
            self._hessian.add(knife_contact.contact_hessian, count, [*inputs, self.blocks])

    def _record_damage(self) -> None:
        d, count = self.on_device, self.model.spring_count
        self.damage_arrays = d.damage_arrays(self.parameters)
        self._damage_out = zeros(count, dtype=wp.float64)
        if d.damage_kernel is not None:
            self._damage.add(
                d.damage_kernel, count, [d.damage, *self.damage_arrays.values(), self._damage_out]
            )

    @property
    def edge(self) -> EdgeCut | None:
        """Edge law of the model, if it uses it."""
        return self.on_device.edge

    def spring_state(self, stiffness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return actual stiffness [N/m] and damping [N s/m] of the springs, from the stiffness per reference area."""
        initial, damping = self.parameters.row("cut_spring_ke"), self.parameters.row("cut_spring_kd")
        return stiffness * self.area_ratio, damping * self.area_ratio * (stiffness / initial)

    def begin(
        self,
        x_n: np.ndarray,
        predicted: np.ndarray,
        stiffness: np.ndarray,
        pose_n: np.ndarray,
        pose: np.ndarray,
        ahead: np.ndarray | None = None,
        swing: np.ndarray | None = None,
        load: EdgeLoad | None = None,
    ) -> None:
        """Start a step; the arguments are the fields of StepStart. Poses without pitch have three columns."""
        self.load = load
        if load is not None and self.edge is not None:
            predicted = predicted + self.edge.on_nodes(load) * (self.dt**2 / self.mass)[:, None]
        k, c = self.spring_state(stiffness)
        upload(self.stiffness, k)
        upload(self.damping, c)
        upload(self.x_previous, x_n)
        upload(self.predicted, predicted)
        upload(self.x_ahead, x_n if ahead is None else ahead)
        copies = self.model.copies
        before, now = with_pitch(pose_n.reshape(copies, -1)), with_pitch(pose.reshape(copies, -1))
        swung = np.zeros((copies, 4)) if swing is None else with_pitch(swing.reshape(copies, -1))
        upload(self.pose_previous, before[:, :3])
        upload(self.pose, now[:, :3])
        upload(self.swing, swung[:, :3])
        for turn, pitch in ((self.turn_previous, before[:, 3]), (self.turn, now[:, 3])):
            upload(turn, np.stack([np.cos(pitch), np.sin(pitch)], axis=1))
        upload(self.spin, now[:, 3] - before[:, 3] + swung[:, 3])
        self._foresight.run()

    def gradient(self, x: np.ndarray) -> np.ndarray:
        """Return the gradient of the incremental energy at x [N], shape [node_count, 3].

        Energies stay on the device.
        """
        upload(self.x, x)
        self._gradient.run()
        return host(self.grad)

    def find_contacts(self, x: np.ndarray) -> None:
        """Compute only the knife's part of a `gradient`: contact points, forces and their energies."""
        upload(self.x, x)
        self._contact_gradient.run()

    def hessian(self, *, fresh: bool = True) -> np.ndarray:
        """Return the blocks of the Hessian at the x of the last `gradient` [N/m], shape [block_count, 3, 3].

        fresh: recompute the tets' part at this x; otherwise reuse the last one.
        """
        self.assemble(fresh=fresh)
        return host(self.blocks)[:-1]

    def switched_stiffness(self) -> np.ndarray:
        """Return the part of the Hessian at the x of the last `gradient` along the directions of `switches` [N/m]."""
        return self.switches.stiffness(host(self.x), host(self.stiffness) + host(self.damping) / self.dt)

    def assemble(self, *, fresh: bool = True) -> None:
        """Assemble the Hessian on the device as `blocks`; the last block collects the contributions of fixed nodes."""
        if fresh or not self._tet_hessian_known:
            clear(self.tet_blocks)
            self._tet_hessian.run()
            self._tet_hessian_known = True
        if self.device.is_cpu:
            host(self.blocks)[...] = host(self.tet_blocks)
        else:
            wp.copy(self.blocks, self.tet_blocks)
        self._hessian.run()

    def enqueue_start(self) -> None:
        """Enqueue the device part of `begin`, for a graph; the start of the step must be on the device."""
        self._foresight.enqueue()

    def enqueue_gradient(self) -> None:
        """Enqueue `gradient`, for a graph, at the x on the device."""
        self._gradient.enqueue()

    def enqueue_hessian(self) -> None:
        """Enqueue `hessian`, for a graph."""
        self.tet_blocks.zero_()
        self._tet_hessian.enqueue()
        wp.copy(self.blocks, self.tet_blocks)
        self._hessian.enqueue()

    def enqueue_damage(self) -> wp.array:
        """Enqueue the damage law, for a graph.

        Return the array that receives the stiffness per reference area [N/m].
        """
        self._damage.enqueue()
        return self._damage_out

    def energies(self, copy: int = 0) -> Energies:
        """Return the energy parts of a copy of the body at the x of the last `gradient`."""

        def total(array: wp.array) -> np.ndarray:
            values = host(array)
            count = len(values) // self.model.copies
            # as a product: a sum down narrow columns takes eight times as long
            return self._ones[:count] @ values[copy * count : (copy + 1) * count]

        tets, spring = total(self.energy_tets), total(self.energy_springs)
        contact, ground = total(self.energy_contacts), total(self.energy_board)
        inertial, held = total(self.energy_inertia), total(self.energy_hold)
        parts = [inertial, *tets[:2], *spring, *contact, ground[0], ground[1] + ground[2], held]
        return Energies(*(float(part) for part in parts))

    def motion_energies(self, x: np.ndarray, velocity: np.ndarray, copy: int = 0) -> tuple[float, float]:
        """Return kinetic and gravitational energy [J] of a copy of the body with nodes at x [m] and velocity [m/s]."""
        mass = self.mass.reshape(self.model.copies, -1)[copy]
        return float(0.5 * mass @ (velocity**2).sum(axis=1)), float(-mass @ (x @ self.model.gravity))

    def volume_ratios(self) -> np.ndarray:
        """Return det F of every tet at the x of the last `gradient` [-], shape [tet_count], in the model's order."""
        return host(self.energy_tets)[:, 2]

    def damage_state(self, stiffness: np.ndarray, x: np.ndarray) -> dict[str, np.ndarray]:
        """Return the damage law's inputs from the step, under the forces of the last `gradient`, by argument name."""
        s = self.model.spring_count
        force = host(self.normal_force) + host(self.friction_force)
        touch = host(self.touch)
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

    def damaged(
        self, stiffness: np.ndarray, x: np.ndarray, pose: np.ndarray, passed: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return spring stiffness per reference area at the end of the step, under the forces of the last `gradient`.

        Also return the largest depths of the edge; under other laws, the empty array they start with.
        """
        if self.edge is not None:
            passed, remaining = self.edge.passes(x, pose, passed)
            return remaining, passed
        for name, value in self.damage_state(stiffness, x).items():
            upload(self.damage_arrays[name], value)
        self._damage.run()
        return host(self._damage_out).copy(), passed


def _knife_state(
    x: wp.array, pose: wp.array, turn: wp.array, found: wp.array, curvature: wp.array
) -> knife_contact.KnifeState:
    state = knife_contact.KnifeState()
    state.x, state.pose, state.turn, state.found, state.curvature = x, pose, turn, found, curvature
    return state
