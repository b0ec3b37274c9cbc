"""Exact gradients of a whole run: the implicit-function adjoint, step by step backwards.

A step solves g(x_{n+1}; x_n, x_{n-1}, k_n, poses, parameters) = 0 with symmetric Hessian H = dg/dx_{n+1}. Given the
derivative x_bar of the loss in x_{n+1}, solve H v = x_bar; everything the step depends on then receives -v . dg/d(it).
Contact, springs, damage and board take that product from Warp's adjoint of their force kernels; tets have their own.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from disect_sim.backward import StepPullback
from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.newton import start_of_step
from disect_sim.outcome import InputError
from disect_sim.parameters import SPRING_NAMES, Material, collect_gradient
from disect_sim.result import kept_step, sampling_operator
from disect_sim.step_system import StepSystem


@dataclass
class Tape:
    """States that a differentiable run stores for the backward sweep."""

    system: StepSystem
    motion: Motion
    times: np.ndarray
    """Times [s], shape [step_count + 1]."""
    poses: np.ndarray
    """Positions [m] and pitch [rad] of the knife, shape [step_count + 1, 4]."""
    states: list[np.ndarray]
    """Positions [m] at the steps -1, 0, 1, ..., each of shape [node_count, 3]."""
    stiffness: np.ndarray
    """Spring stiffness [N/m], shape [step_count + 1, spring_count]."""
    passed: list[np.ndarray]
    """Largest depth of the edge beyond each sample of the edge law [m], per step, each of shape [sample_count]."""
    sample_rate_hz: float
    solver: str
    """Name of the linear solver."""
    pose_columns: int
    """Number of columns of the motion's poses: 4 if it turns the knife, otherwise 3."""


@dataclass(frozen=True)
class Gradients:
    """Derivatives of a loss."""

    parameters: dict[str, np.ndarray]
    """Derivatives in every spring, contact and material parameter, in the shape the parameter was given in."""
    anatomy: dict[str, np.ndarray]
    """Derivatives in the ratios and shares of the regions (`young_ratio`, `density_ratio`, `toughness_ratio`, `press`,
    `drag`), each of shape [region_count], and in the ratios of the grain (`grain`), shape [3]; empty without anatomy.
    """
    motion: dict[str, np.ndarray]
    """Derivatives in the parameters of the motion."""
    poses: np.ndarray
    """Derivatives in the motion's poses: positions [1/m] and, of a motion that turns the knife, pitch [1/rad], shape
    [step_count + 1, 3 or 4].
    """
    largest_adjoint: float
    """Largest entry of the adjoint state during the sweep [1/m]; if it stays bounded, the gradient is reliable."""
    indefinite_hessians: int
    """Steps with an indefinite Hessian: the run passed an event whose timing the gradient cannot see."""

    def __repr__(self) -> str:
        names = ", ".join((*self.parameters, *self.motion))
        return f"Gradients({names}; {self.indefinite_hessians} indefinite Hessians)"


def pullback(
    tape: Tape, force_bars: np.ndarray, position_bars: Mapping[float, np.ndarray]
) -> list[Gradients]:
    """Compute gradients of losses whose derivatives in the sampled knife force are force_bars.

    force_bars: shape [loss_count, sample_count, 3].
    position_bars: derivatives in the node positions at some times [s], each of shape [loss_count, node_count, 3].
    All losses are propagated together, since states, Hessians and factors are the same for all of them.
    """
    system, model, dt = tape.system, tape.system.model, tape.system.dt
    steps = len(tape.states) - 2
    mean = sampling_operator(dt, steps, tape.sample_rate_hz)
    force_bars = np.asarray(force_bars, float)
    if force_bars.ndim != 3 or force_bars.shape[1:] != (mean.shape[0], 3):
        raise InputError(
            f"gradient: force_bar has shape {force_bars.shape[1:]}. It must be {(mean.shape[0], 3)}, like result.force."
        )
    columns = len(force_bars)
    at_step = _by_step(position_bars, dt, steps, (columns, model.node_count, 3))
    step_force_bar = (mean.T @ np.moveaxis(force_bars, 0, -1).reshape(mean.shape[0], -1)).reshape(
        steps, 3, -1
    )
    sweep = StepPullback(system, columns, tape.solver)
    mass_rate = (system.mass / dt**2)[:, None, None]
    x_bar, x_bar_previous = np.zeros((2, model.node_count, 3, columns))
    k_bar, k_bar_previous = np.zeros((2, model.spring_count, columns))
    passed_bar = np.zeros((len(tape.passed[0]), columns))
    pose_bar = np.zeros((steps + 1, 4, columns))
    density, node_density = np.zeros(columns), np.zeros((model.node_count, columns))
    largest = np.zeros(columns)
    for n in reversed(range(steps)):
        x_before, x_n, x = tape.states[n], tape.states[n + 1], tape.states[n + 2]
        k_n, k_before = tape.stiffness[n], tape.stiffness[max(0, n - 1)]
        passed = tape.passed[n]
        start = start_of_step(system, n, tape.poses, x_n, x_before, k_n, k_before, passed)
        sweep.begin(x, start, k_n)
        outputs, k_damaged, passed_bar = sweep.outputs(
            step_force_bar[n], k_bar, tape.stiffness[n + 1], passed, passed_bar
        )
        x_bar += outputs.x
        if n + 1 in at_step:
            x_bar += at_step[n + 1]
        v = sweep.solve(x_bar)
        largest = np.maximum(largest, np.abs(x_bar).max(axis=(0, 1)))
        res, k_felt = sweep.residual(v)
        passed_bar += sweep.edge_load(v, step_force_bar[n], passed, res)
        weighted = v * (mass_rate * (start.predicted - x)[..., None])
        density += weighted.sum(axis=(0, 1))
        if model.mesh.anatomy:
            node_density += weighted.sum(axis=1)
        ahead = mass_rate * v + outputs.ahead + res.ahead
        x_bar, x_bar_previous = x_bar_previous + outputs.x_n + res.x_n + 2.0 * ahead, -ahead
        k_felt = np.where(start.stiffness[:, None] > 0.0, k_felt, 0.0)
        pose_bar[n + 1] += outputs.pose + res.pose
        pose_bar[n] += outputs.pose_n + res.pose_n
        if n == 0:
            k_bar = k_damaged + k_felt + k_bar_previous
        else:
            k_bar, k_bar_previous = k_damaged + 1.5 * k_felt + k_bar_previous, -0.5 * k_felt
            swing = 0.5 * (outputs.swing + res.swing)
            pose_bar[n - 1 : n + 2] += swing * np.array([1.0, -2.0, 1.0])[:, None, None]
    pose_bar = pose_bar[:, : tape.pose_columns]
    spring, contact_young = sweep.spring_gradient()
    spring[SPRING_NAMES.index("cut_spring_ke")] += k_bar
    material = system.parameters.material
    anatomy = sweep.anatomy_gradients()
    if anatomy:
        anatomy["density_ratio"] = _node_parts(model) @ node_density
    return [
        Gradients(
            collect_gradient(
                system.parameters,
                spring[..., i],
                _material_gradient(material, sweep.moduli[:, i], contact_young[i])
                | {"density_kg_m3": density[i] / material.density_kg_m3},
                model.surface,
            ),
            {name: value[:, i].copy() for name, value in anatomy.items()},
            tape.motion.pullback(tape.times[: steps + 1], pose_bar[..., i]),
            pose_bar[..., i].copy(),
            float(largest[i]),
            sweep.solver.statistics.indefinite,
        )
        for i in range(columns)
    ]


def _node_parts(model: Model) -> np.ndarray:
    """Return d(log of the node masses)/d(density ratio), shape [region_count, node_count]."""
    quarter = np.repeat(model.tet_volume[:, None] * model.tet_shares / 4.0, 4, axis=0)
    nodes = model.tet_nodes.ravel()
    per_node = [np.bincount(nodes, column, minlength=model.node_count) for column in quarter.T]
    return np.array(per_node).reshape(-1, model.node_count) / model.node_flesh_volume


def _by_step(
    position_bars: Mapping[float, np.ndarray], dt: float, steps: int, shape: tuple[int, int, int]
) -> dict[int, np.ndarray]:
    """Return the derivatives in the positions at the end of steps, each of shape [node_count, 3, columns]."""
    by_step: dict[int, np.ndarray] = {}
    for time, given in position_bars.items():
        bar = np.asarray(given, float)
        if bar.shape != shape:
            raise InputError(
                f"gradient: the derivative in the positions at {time:g} s has shape {bar.shape[1:]} for {len(bar)} "
                f"losses. It must be {shape[1:]} for {shape[0]}, like result.positions."
            )
        step = min(kept_step(time, dt), steps)
        by_step[step] = by_step.get(step, 0.0) + np.moveaxis(bar, 0, -1)
    return by_step


def _material_gradient(material: Material, moduli: np.ndarray, contact_young: float) -> dict[str, float]:
    """Convert gradients in the Lamé parameters to Young's modulus, Poisson's ratio and retardation time.

    contact_young: gradient in Young's modulus through the stiffness of the knife contact.
    """
    e, nu = material.young_pa, material.poisson
    mu_bar, lambda_bar, tau_bar = moduli
    d_mu = -e / (2.0 * (1.0 + nu) ** 2)
    d_lambda = e * (1.0 + 2.0 * nu**2) / ((1.0 + nu) ** 2 * (1.0 - 2.0 * nu) ** 2)
    young = (mu_bar * material.lame_mu_pa + lambda_bar * material.lame_lambda_pa) / e
    return {
        "young_pa": float(young + contact_young),
        "poisson": float(mu_bar * d_mu + lambda_bar * d_lambda),
        "retardation_s": float(tau_bar),
    }
