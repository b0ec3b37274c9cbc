"""Exact gradients of a whole run: the implicit-function adjoint, step by step backwards.

A step solves g(x_{n+1}; x_n, x_{n-1}, k_n, poses, parameters) = 0 with symmetric Hessian H = dg/dx_{n+1}. Given the
derivative x_bar of the loss in x_{n+1}, solve H v = x_bar; everything the step depends on then receives -v . dg/d(it).
Contact, springs, damage and board take that product from Warp's adjoint of their force kernels; tets have their own.
"""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import warp as wp

from disect_sim.adjoint_kernel import AdjointKernel
from disect_sim.device_arrays import upload
from disect_sim.errors import InputError
from disect_sim.implicit import predict
from disect_sim.kernels import board, contact_force, elasticity, springs
from disect_sim.linear_solver import CachedCholeskySolver, IndefiniteHessianError
from disect_sim.motions import Motion
from disect_sim.parameters import CONTACT_NAMES, CONTACT_PER_AREA, SPRING_NAMES, collect_gradient
from disect_sim.result import sampling_operator
from disect_sim.step_system import StepSystem

ADJOINT_TOLERANCE = 1.0e-8
"""Relative accuracy of the adjoint's linear solves."""

DAMAGE_PARAMETERS = {"initial": "cut_spring_ke", "softness": "cut_spring_softness"}
"""Inputs of the damage laws that are parameters."""


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
        with wp.ScopedDevice(system.device):
            self._contact = self._contact_kernel()
            self._spring = self._spring_kernel()
            self._damage = self._damage_kernel()
            self._board = self._board_kernel()
            self._v = wp.zeros(m.node_count, wp.vec3d)
            self._tet_x_bar = wp.zeros(m.node_count, wp.vec3d)
            self._tet_moduli = wp.zeros(m.tet_count, wp.vec3d)

    def _contact_kernel(self) -> AdjointKernel:
        d, count = self.system.on_device, len(self.model.contact_parents)
        found = self._found = contact_force.Found()
        found.now, found.lag = wp.zeros(count, wp.vec2d), wp.zeros(count, wp.vec2d)
        ends = {name: wp.zeros(count, wp.vec3d) for name in ("x0", "x1", "y0", "y1")}
        return AdjointKernel(
            contact_force.contact_force,
            count,
            constants={"setting": d.contact, "edges": d.edges, "found": found},
            inputs={"parameters": d.contact_parameters} | ends,
            outputs={
                "normal_force": wp.zeros(count, wp.vec3d),
                "friction_force": wp.zeros(count, wp.vec3d),
                "u": wp.zeros(count, wp.vec2d),
                "touch": wp.zeros(count, wp.float64),
            },
        )

    def _spring_kernel(self) -> AdjointKernel:
        d, count = self.system.on_device, self.model.spring_count
        return AdjointKernel(
            springs.spring_force,
            count,
            constants={"springs": d.springs, "dt": d.dt, "area_ratio": d.area_ratio},
            inputs={
                "stiffness": wp.zeros(count, wp.float64),
                "initial": d.initial,
                "damping": d.damping,
                "d": wp.zeros(count, wp.vec3d),
                "d_previous": wp.zeros(count, wp.vec3d),
            },
            outputs={"tension": wp.zeros(count, wp.vec3d)},
        )

    def _damage_kernel(self) -> AdjointKernel:
        d, count = self.system.on_device, self.model.spring_count
        return AdjointKernel(
            d.damage_kernel,
            count,
            constants={"setting": d.damage},
            inputs=d.damage_arrays(count),
            outputs={"stiffness": wp.zeros(count, wp.float64)},
        )

    def _board_kernel(self) -> AdjointKernel:
        d, count = self.system.on_device, len(self.model.board_nodes)
        return AdjointKernel(
            board.board_force,
            count,
            constants={"board": d.board, "dt": d.dt, "area_ratio": d.board_area_ratio},
            inputs={"x": wp.zeros(count, wp.vec3d), "x_previous": wp.zeros(count, wp.vec3d)},
            outputs={"force": wp.zeros(count, wp.vec3d)},
        )

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
        upload(self._found.now, np.stack([s.found.numpy(), s.curvature.numpy()], axis=1))
        upload(self._found.lag, np.stack([s.lag_found.numpy(), s.lag_curvature.numpy()], axis=1))
        self._contact.fill(x0=x[a] - pose, x1=x[b] - pose, y0=x_n[a] - pose_n, y1=x_n[b] - pose_n)
        self._force = s.normal_force.numpy().copy(), s.friction_force.numpy().copy()
        self._damage_state = s.damage_state(stiffness, x)
        self._u = m.contact_coordinate * s.found.numpy(), m.contact_coordinate * s.lag_found.numpy()
        self._d, self._d_n = m.spring_operator @ x, m.spring_operator @ x_n
        self._stiffness = stiffness
        self._board.fill(x=x[m.board_nodes], x_previous=x_n[m.board_nodes])

    def outputs(
        self, force_bar: np.ndarray, k_bar: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Through the knife force and the damage: gradients in x, x_n, pose, pose_n and the stiffness before."""
        m = self.model
        self._damage.fill(**self._damage_state)
        bar = self._damage.run(stiffness=k_bar)
        for name, parameter in DAMAGE_PARAMETERS.items():
            if name in bar:
                self._add(parameter, bar[name])
        seed = _both_sides(bar, "force", np.zeros((m.spring_count, 3))) - force_bar
        touch = _both_sides(bar, "touch", np.zeros(m.spring_count))
        x_bar, x_bar_n, pose_bar, pose_bar_n = self._through_contact(
            normal_force=seed, friction_force=seed, touch=touch
        )
        if "d" in bar:
            x_bar = x_bar + m.spring_operator.T @ bar["d"]
        return x_bar, x_bar_n, pose_bar, pose_bar_n, bar["stiffness"]

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
        u_bar = np.stack([(along * self._force[0]).sum(axis=1), (along * self._force[1]).sum(axis=1)], axis=1)
        _, x_bar_n, pose_bar, pose_bar_n = self._through_contact(
            normal_force=v[a] + along * u, friction_force=v[a] + along * u_lag, u=u_bar
        )
        self._spring.fill(stiffness=self._stiffness, d=self._d, d_previous=self._d_n)
        bar = self._spring.run(tension=-(m.spring_operator @ v))
        self._add("cut_spring_ke", bar["initial"])
        self._add("cut_spring_kd", bar["damping"])
        x_bar_n += m.spring_operator.T @ bar["d_previous"]
        if len(m.board_nodes):
            x_bar_n[m.board_nodes] += self._board.run(force=v[m.board_nodes])["x_previous"]
        x_bar_n += self._through_tets(v)
        return x_bar_n, pose_bar, pose_bar_n, bar["stiffness"]

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

    def _through_contact(self, **seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        bar = self._contact.run(**seeds)
        table = bar["parameters"]
        table[:, CONTACT_PER_AREA] *= np.tile(self.system.area_ratio, 2)[:, None]
        count = self.model.spring_count
        for column, name in enumerate(CONTACT_NAMES):
            self._add(name, table[:count, column] + table[count:, column])
        x_bar = self._to_parents @ np.concatenate([bar["x0"], bar["x1"]])
        x_bar_n = self._to_parents @ np.concatenate([bar["y0"], bar["y1"]])
        return x_bar, x_bar_n, -(bar["x0"] + bar["x1"]).sum(axis=0), -(bar["y0"] + bar["y1"]).sum(axis=0)

    def _through_tets(self, v: np.ndarray) -> np.ndarray:
        s, d = self.system, self.system.on_device
        upload(self._v, v)
        self._tet_x_bar.zero_()
        for first, count in d.tet_groups:
            wp.launch(
                elasticity.tet_pullback,
                dim=count,
                inputs=[d.tets, d.elastic, d.dt, first, s.x, s.x_previous, self._v],
                outputs=[self._tet_moduli, self._tet_x_bar],
                device=s.device,
            )
        self.moduli += self._tet_moduli.numpy().sum(axis=0)
        return self._tet_x_bar.numpy()

    def _add(self, name: str, gradient: np.ndarray) -> None:
        self.spring[SPRING_NAMES.index(name)] += gradient


def _both_sides(bar: dict[str, np.ndarray], name: str, nothing: np.ndarray) -> np.ndarray:
    """Gradients in the named quantity of the positive, then the negative side of the cut."""
    return np.concatenate([bar.get(f"{name}_positive", nothing), bar.get(f"{name}_negative", nothing)])
