"""Exact gradients of a whole run: the implicit-function adjoint, step by step backwards.

A step solves g(x_{n+1}; x_n, x_{n-1}, k_n, poses, parameters) = 0 with symmetric Hessian H = dg/dx_{n+1}. Given the
derivative x_bar of the loss in x_{n+1}, solve H v = x_bar; everything the step depends on then receives -v . dg/d(it).
Contact, springs, damage and board take that product from Warp's adjoint of their force kernels; tets have their own.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import warp as wp

from disect_sim.device_arrays import upload
from disect_sim.errors import InputError
from disect_sim.implicit import predict
from disect_sim.kernels import board, elasticity, knife_contact, springs
from disect_sim.linear_solver import CachedCholeskySolver, IndefiniteHessianError
from disect_sim.motions import Motion
from disect_sim.parameters import CONTACT_NAMES, SPRING_NAMES, collect_gradient
from disect_sim.result import sampling_operator
from disect_sim.step_system import StepSystem

ADJOINT_TOLERANCE = 1.0e-8
"""Relative accuracy of the adjoint's linear solves."""


@dataclass
class Tape:
    """What a differentiable run keeps."""

    system: StepSystem
    motion: Motion
    times: np.ndarray
    """[s], shape [step_count + 1]."""
    poses: np.ndarray
    """[m], shape [step_count + 1, 3]."""
    states: list[np.ndarray]
    """Positions [m] at the steps -1, 0, 1, ..., each of shape [node_count, 3]."""
    stiffness: np.ndarray
    """[N/m], shape [step_count + 1, spring_count]."""
    sample_rate_hz: float


@dataclass(frozen=True)
class Gradients:
    """Derivatives of the loss."""

    parameters: dict[str, np.ndarray]
    """In every spring, contact and material parameter, in the shape it was given in."""
    motion: dict[str, np.ndarray]
    """In the parameters of the motion."""
    poses: np.ndarray
    """In the knife positions [1/m], shape [step_count + 1, 3]."""
    largest_adjoint: float
    """Largest entry the adjoint state had on its way [1/m]: a bounded adjoint is a trustworthy one."""
    indefinite_hessians: int
    """Steps whose Hessian was not positive definite: the run passed an event whose timing the gradient cannot see."""


def pullback(tape: Tape, force_bar: np.ndarray) -> Gradients:
    """Gradients of a loss with derivative force_bar in the sampled knife force, shape [sample_count, 3]."""
    system, model, dt = tape.system, tape.system.model, tape.system.dt
    steps = len(tape.states) - 2
    mean = sampling_operator(dt, steps, tape.sample_rate_hz)
    force_bar = np.asarray(force_bar, float)
    if force_bar.shape != (mean.shape[0], 3):
        raise InputError(
            f"gradient: force_bar has shape {force_bar.shape}. It must be {(mean.shape[0], 3)}, like result.force."
        )
    step_force_bar = mean.T @ force_bar
    sweep = _Backward(system)
    free = ~model.fixed
    mass_rate = system.mass[:, None] / dt**2
    x_bar = np.zeros((model.node_count, 3))
    x_bar_previous = np.zeros_like(x_bar)
    k_bar = np.zeros(model.spring_count)
    pose_bar = np.zeros((steps + 1, 3))
    largest = 0.0
    for n in reversed(range(steps)):
        x_before, x_n, x = tape.states[n], tape.states[n + 1], tape.states[n + 2]
        predicted = predict(x_n, x_before, model.gravity, dt)
        sweep.begin(x, x_n, predicted, tape.stiffness[n], tape.poses[n], tape.poses[n + 1])
        out_x, out_xn, out_pose, out_pose_n, k_before = sweep.outputs(step_force_bar[n], k_bar)
        x_bar = x_bar + out_x
        v = np.zeros_like(x_bar)
        v[free] = sweep.solve(x_bar[free].reshape(-1)).reshape(-1, 3)
        largest = max(largest, float(np.abs(x_bar).max()))
        res_xn, res_pose, res_pose_n, res_k = sweep.residual(v)
        pose_bar[n + 1] += out_pose + res_pose
        pose_bar[n] += out_pose_n + res_pose_n
        sweep.density += float((v * (mass_rate * (predicted - x))).sum())
        x_bar, x_bar_previous = x_bar_previous + out_xn + res_xn + 2.0 * mass_rate * v, -mass_rate * v
        k_bar = k_before + res_k
    sweep.spring[SPRING_NAMES.index("cut_spring_ke")] += k_bar
    density = system.parameters.material.density_kg_m3
    return Gradients(
        collect_gradient(
            system.parameters,
            sweep.spring,
            sweep.material_gradient() | {"density_kg_m3": sweep.density / density},
            model.surface,
        ),
        tape.motion.pullback(tape.times[: steps + 1], pose_bar),
        pose_bar,
        largest,
        sweep.solver.statistics.indefinite,
    )


class _Backward:
    """The vector-Jacobian products of one step, and the parameter gradients they add up."""

    def __init__(self, system: StepSystem) -> None:
        self.system = system
        self.solver = CachedCholeskySolver(system.pattern)
        m = self.model = system.model
        ends = m.contact_parents.T.ravel()
        self._to_parents = sp.csr_matrix(
            (np.ones(len(ends)), (ends, np.arange(len(ends)))), shape=(m.node_count, len(ends))
        )
        self.spring = np.zeros((len(SPRING_NAMES), m.spring_count))
        self.density = 0.0
        self.moduli = np.zeros(3)
        s, c, b = m.spring_count, len(m.contact_parents), len(m.board_nodes)
        with wp.ScopedDevice(system.device):
            self._contact = _AdjointKernel(
                knife_contact.contact_force,
                c,
                [
                    system.law,
                    system.shape,
                    wp.float64(system.dt),
                    system.edges.coordinate,
                    system.edges.side,
                    system.edges.offset,
                    wp.zeros(c, wp.vec2d),
                    wp.zeros(c, wp.vec2d),
                ],
                [system.contact_parameters, *(wp.zeros(c, wp.vec3d) for _ in range(4))],
                [
                    wp.zeros(c, wp.vec3d),
                    wp.zeros(c, wp.vec3d),
                    wp.zeros(c, wp.vec2d),
                    wp.zeros(c, wp.float64),
                ],
            )
            initial = wp.array(system.parameters.row("cut_spring_ke"), dtype=wp.float64)
            damping = wp.array(system.parameters.row("cut_spring_kd"), dtype=wp.float64)
            self._spring = _AdjointKernel(
                springs.spring_force,
                s,
                [system.springs, wp.float64(system.dt), system.area_ratio_device],
                [wp.zeros(s, wp.float64), initial, damping, wp.zeros(s, wp.vec3d), wp.zeros(s, wp.vec3d)],
                [wp.zeros(s, wp.vec3d)],
            )
            softness = wp.array(system.parameters.row("cut_spring_softness"), dtype=wp.float64)
            self._damage = _AdjointKernel(
                springs.damage,
                s,
                [int(m.damage_law == "stretch"), wp.float64(system.dt), system.area_ratio_device],
                [
                    wp.zeros(s, wp.float64),
                    softness,
                    wp.zeros(s, wp.vec3d),
                    wp.zeros(s, wp.vec3d),
                    wp.zeros(s, wp.float64),
                    wp.zeros(s, wp.float64),
                    wp.zeros(s, wp.vec3d),
                ],
                [wp.zeros(s, wp.float64)],
            )
            self._board = _AdjointKernel(
                board.board_force,
                b,
                [system.board, wp.float64(system.dt), system.board_area_ratio],
                [wp.zeros(b, wp.vec3d), wp.zeros(b, wp.vec3d)],
                [wp.zeros(b, wp.vec3d)],
            )
            self._v = wp.zeros(m.node_count, wp.vec3d)
            self._tet_x_bar = wp.zeros(m.node_count, wp.vec3d)
            self._tet_moduli = wp.zeros(m.tet_count, wp.vec3d)

    def begin(
        self,
        x: np.ndarray,
        x_n: np.ndarray,
        predicted: np.ndarray,
        stiffness: np.ndarray,
        pose_n: np.ndarray,
        pose: np.ndarray,
    ) -> None:
        """Bring the system back to the end of a step."""
        s, m = self.system, self.model
        s.begin(x_n, predicted, stiffness, pose_n, pose)
        s.gradient(x)
        a, b = m.contact_parents.T
        self._contact.fill_constant(6, np.stack([s.found.numpy(), s.curvature.numpy()], axis=1))
        self._contact.fill_constant(7, np.stack([s.lag_found.numpy(), s.lag_curvature.numpy()], axis=1))
        for slot, value in enumerate((x[a] - pose, x[b] - pose, x_n[a] - pose_n, x_n[b] - pose_n), start=1):
            self._contact.fill_input(slot, value)
        self._force = s.normal_force.numpy().copy(), s.friction_force.numpy().copy()
        self._touch = s.touch.numpy().copy()
        self._u = m.contact_coordinate * s.found.numpy(), m.contact_coordinate * s.lag_found.numpy()
        self._d, self._d_n = m.spring_operator @ x, m.spring_operator @ x_n
        self._stiffness = stiffness
        self._board.fill_input(0, x[m.board_nodes])
        self._board.fill_input(1, x_n[m.board_nodes])

    def outputs(
        self, force_bar: np.ndarray, k_bar: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Through the knife force and the damage: gradients in x, x_n, pose, pose_n and the stiffness before."""
        count = self.model.spring_count
        total = self._force[0] + self._force[1]
        values = (
            self._stiffness,
            None,
            total[:count],
            total[count:],
            self._touch[:count],
            self._touch[count:],
            self._d,
        )
        for slot, value in enumerate(values):
            if value is not None:
                self._damage.fill_input(slot, value)
        k_before, softness, plus, minus, touch_plus, touch_minus, d_bar = self._damage.run([k_bar])
        self._add("cut_spring_softness", softness)
        seed = np.concatenate([plus, minus]) - force_bar
        touch_seed = np.concatenate([touch_plus, touch_minus])
        parts = self._through_contact([seed, seed, np.zeros((len(seed), 2)), touch_seed])
        x_bar, x_bar_n, pose_bar, pose_bar_n = parts
        return x_bar + self.model.spring_operator.T @ d_bar, x_bar_n, pose_bar, pose_bar_n, k_before

    def solve(self, x_bar: np.ndarray) -> np.ndarray:
        """H^-1 x_bar on the free nodes."""
        self.solver.set_matrix(self.system.hessian())
        try:
            return self.solver.solve(x_bar, tolerance=ADJOINT_TOLERANCE)
        except IndefiniteHessianError:
            self.solver.forget()
            return self.solver.solve_indefinite(x_bar)

    def residual(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """-v . dg/d(...) for x_n, pose, pose_n and the stiffness, parameters added up on the way."""
        m = self.model
        a, b = m.contact_parents.T
        u, u_lag = (w[:, None] for w in self._u)
        along = v[b] - v[a]
        seeds = [v[a] + along * u, v[a] + along * u_lag]
        u_bar = np.stack([(along * self._force[0]).sum(axis=1), (along * self._force[1]).sum(axis=1)], axis=1)
        _, x_bar_n, pose_bar, pose_bar_n = self._through_contact([*seeds, u_bar, np.zeros(len(a))])

        self._spring.fill_input(0, self._stiffness)
        self._spring.fill_input(3, self._d)
        self._spring.fill_input(4, self._d_n)
        k_bar, ke_bar, kd_bar, _, d_bar = self._spring.run([-(m.spring_operator @ v)])
        self._add("cut_spring_ke", ke_bar)
        self._add("cut_spring_kd", kd_bar)
        x_bar_n += m.spring_operator.T @ d_bar

        if len(m.board_nodes):
            _, board_bar = self._board.run([v[m.board_nodes]])
            x_bar_n[m.board_nodes] += board_bar
        x_bar_n += self._through_tets(v)
        return x_bar_n, pose_bar, pose_bar_n, k_bar

    def material_gradient(self) -> dict[str, float]:
        """Gradients in Young's modulus, Poisson's ratio and retardation time, from those in the Lame values."""
        material = self.system.parameters.material
        e, nu = material.young_pa, material.poisson
        mu_bar, lambda_bar, tau_bar = self.moduli
        d_mu = -e / (2.0 * (1.0 + nu) ** 2)
        d_lambda = e * (1.0 + 2.0 * nu**2) / ((1.0 + nu) ** 2 * (1.0 - 2.0 * nu) ** 2)
        young = (mu_bar * material.lame_mu_pa + lambda_bar * material.lame_lambda_pa) / e
        return {
            "young_pa": float(young),
            "poisson": float(mu_bar * d_mu + lambda_bar * d_lambda),
            "retardation_s": float(tau_bar),
        }

    def _through_contact(
        self, seeds: list[np.ndarray]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        m = self.model
        table, x0, x1, y0, y1 = self._contact.run(seeds)
        table[:, :2] *= np.tile(self.system.area_ratio, 2)[:, None]
        count = m.spring_count
        for column, name in enumerate(CONTACT_NAMES):
            self._add(name, table[:count, column] + table[count:, column])
        x_bar = self._to_parents @ np.concatenate([x0, x1])
        x_bar_n = self._to_parents @ np.concatenate([y0, y1])
        return x_bar, x_bar_n, -(x0 + x1).sum(axis=0), -(y0 + y1).sum(axis=0)

    def _through_tets(self, v: np.ndarray) -> np.ndarray:
        s = self.system
        upload(self._v, v)
        self._tet_x_bar.zero_()
        for first, count in s.tet_groups:
            wp.launch(
                elasticity.tet_pullback,
                dim=count,
                inputs=[s.tets, s.elastic, wp.float64(s.dt), first, s.x, s.x_previous, self._v],
                outputs=[self._tet_moduli, self._tet_x_bar],
                device=s.device,
            )
        self.moduli += self._tet_moduli.numpy().sum(axis=0)
        return self._tet_x_bar.numpy()

    def _add(self, name: str, gradient: np.ndarray) -> None:
        self.spring[SPRING_NAMES.index(name)] += gradient


class _AdjointKernel:
    """A kernel run backwards: constants, differentiable inputs and outputs with their adjoints."""

    def __init__(self, kernel: wp.Kernel, count: int, constants: list, inputs: list, outputs: list) -> None:
        self._kernel, self._count = kernel, count
        self._constants, self._inputs, self._outputs = constants, inputs, outputs
        self._input_bars = [wp.zeros_like(a) for a in inputs]
        self._output_bars = [wp.zeros_like(a) for a in outputs]

    def fill_constant(self, slot: int, value: np.ndarray) -> None:
        upload(self._constants[slot], value)

    def fill_input(self, slot: int, value: np.ndarray) -> None:
        upload(self._inputs[slot], value)

    def run(self, seeds: list[np.ndarray]) -> list[np.ndarray]:
        """Gradients in the inputs, given those in the outputs."""
        for bar, seed in zip(self._output_bars, seeds, strict=True):
            upload(bar, seed)
        for bar in self._input_bars:
            bar.zero_()
        constants = [None if isinstance(c, wp.array) else c for c in self._constants]
        wp.launch(
            self._kernel,
            dim=self._count,
            inputs=[*self._constants, *self._inputs],
            outputs=self._outputs,
            adj_inputs=[*constants, *self._input_bars],
            adj_outputs=self._output_bars,
            adjoint=True,
            device=self._inputs[0].device,
        )
        return [bar.numpy().copy() for bar in self._input_bars]
