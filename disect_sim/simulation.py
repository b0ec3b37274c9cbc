"""`simulate`: check the settings of a run, choose device and solver, and run the cut."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import warp as wp
from scipy.sparse.linalg import eigsh

from disect_sim.adjoint import Tape
from disect_sim.device_arrays import Stopwatch
from disect_sim.laws import contact_law, damage_law
from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.newton import NewtonOptions, run_implicit
from disect_sim.outcome import InputError, Outcome, OutcomeKind
from disect_sim.parameters import ExpandedParameters, Values, expand
from disect_sim.resident import run_resident
from disect_sim.result import Recorder, Result
from disect_sim.step_system import StepSystem

# Semi-implicit Euler, the paper's Algorithm 1: many small steps, forward only


_SAFETY = 0.5
"""Fraction of the stability limit used: contact and damping can make the system stiffer than at rest."""


def stable_step(model: Model, parameters: ExpandedParameters, device: str) -> float:
    """Return the largest stable explicit step [s] around the rest state with all springs intact and all edges in
    contact.

    For the highest frequency w and the highest damping rate c: 2/w (sqrt(1 + z^2) - z), z = c / (2 w).
    """
    mass, stiffness, damping = _rest_matrices(model, parameters, device)
    scale = sp.diags(1.0 / np.sqrt(mass))
    frequency = np.sqrt(_largest(scale @ stiffness @ scale))
    ratio = _largest(scale @ damping @ scale) / (2.0 * frequency)
    return float(2.0 / frequency * (np.sqrt(1.0 + ratio**2) - ratio))


def _rest_matrices(
    model: Model, parameters: ExpandedParameters, device: str
) -> tuple[np.ndarray, sp.csr_matrix, sp.csr_matrix]:
    """Return mass [kg], stiffness [N/m] and damping [N s/m] of the free nodes at rest, with all edges in contact.

    The Hessian of a step is M/dt^2 + C/dt + K: two different steps separate C and K.
    """
    free = ~model.fixed
    rest = model.mesh.nodes
    nowhere = np.array([0.0, 10.0, 0.0])
    short, long = 1.0e-5, 1.0e-3
    without_mass = []
    for dt in (short, long):
        system = StepSystem(model, parameters, dt, device)
        system.begin(rest, rest, parameters.row("cut_spring_ke"), nowhere, nowhere)
        system.gradient(rest)
        pattern = system.pattern
        size = 3 * pattern.free_count
        hessian = sp.bsr_matrix(
            (system.hessian().copy(), pattern.indices, pattern.indptr), shape=(size, size)
        )
        mass = np.repeat(system.mass[free], 3)
        without_mass.append(hessian - sp.diags(mass / dt**2))
    damping = (without_mass[0] - without_mass[1]) / (1.0 / short - 1.0 / long)
    stiffness = without_mass[1] - damping / long
    return (
        mass,
        stiffness + _pressed(model, parameters, "sdf_ke"),
        damping + _pressed(model, parameters, "sdf_kd"),
    )


def _pressed(model: Model, parameters: ExpandedParameters, name: str) -> sp.dia_matrix:
    """Return what knife contact on every cut edge adds to the diagonal, for its stiffness or damping."""
    value = np.tile(parameters.row(name) * model.spring_area_ratio, 2)
    diagonal = np.zeros(model.node_count)
    np.add.at(diagonal, model.contact_parents[:, 0], value * (1.0 - model.contact_coordinate) ** 2)
    np.add.at(diagonal, model.contact_parents[:, 1], value * model.contact_coordinate**2)
    return sp.diags(np.repeat(diagonal[~model.fixed], 3))


def _largest(matrix: sp.csr_matrix) -> float:
    start = np.sin(np.arange(matrix.shape[0]) + 1.0)
    return float(eigsh(matrix.tocsr(), k=1, which="LA", tol=1e-3, v0=start, return_eigenvectors=False)[0])


def _run_explicit(
    system: StepSystem,
    poses: np.ndarray,
    x: np.ndarray,
    velocity: np.ndarray,
    recorder: Recorder,
    progress: Callable[[float], None],
) -> tuple[np.ndarray, Outcome | None]:
    """Step through the motion. Return the last good positions and, if the run had to stop, the outcome."""
    dt, fixed = system.dt, system.model.fixed
    inverse_mass = np.where(fixed, 0.0, 1.0 / system.mass)[:, None]
    gravity = np.where(fixed[:, None], 0.0, system.model.gravity)
    stiffness, passed = recorder.stiffness[0], recorder.passed[0]
    watch = Stopwatch()
    outcome = None
    last_good = x
    steps = len(poses) - 1
    x_previous = x - dt * velocity
    for n in range(steps):
        with watch("gradient"):
            system.begin(x_previous, x, stiffness, poses[max(n - 1, 0)], poses[n], ahead=x)
            acceleration = gravity - inverse_mass * system.gradient(x)
        stiffness, passed = system.damaged(stiffness, x, poses[n], passed)
        outcome = recorder.step(x, x_previous, stiffness, passed)
        if outcome is not None:
            last_good = x_previous if outcome.kind is OutcomeKind.DIVERGED else x
            break
        velocity = velocity + dt * acceleration
        x_previous, x = x, x + dt * velocity
        if n % 1000 == 0:
            progress((n + 1) / steps)
        last_good = x
    recorder.statistics.seconds = watch.split()
    return last_good, outcome


# Device and linear solver


SOLVERS = {
    "cholesky": "conjugate gradients preconditioned by an old Cholesky factor, on the host",
    "conjugate_gradients": "conjugate gradients with block-Jacobi and affine clusters; a whole run stays on the device",
}
_LARGE_TETS = 20_000
"""Number of tets above which conjugate gradients are faster on the CPU too (lab/notes/performance.md)."""
_LARGE_FORWARD_TETS = 6_000
"""Same for a run without gradient, whose steps then never leave the device."""
_OLDEST_DRIVER = "12.4"
"""CUDA version of the oldest driver whose graphs support loops."""


def choose_device(device: str | None) -> str:
    """Return the requested device, or CUDA if present, or the CPU."""
    if device is None:
        return "cuda:0" if wp.is_cuda_available() else "cpu"
    if device.startswith("cuda") and not wp.is_cuda_available():
        raise InputError(
            f"simulate: device {device!r} was requested, but there is no CUDA device. Use device='cpu'."
        )
    return device


def on_cuda() -> bool:
    """Return True if runs use a CUDA device by default: many cuts then run there in batches instead of processes."""
    return choose_device(None) != "cpu"


def _choose_solver(name: str | None, device: str, tets: int) -> str:
    """Return the requested solver, or the default for the device and number of tets."""
    able = device == "cpu" or wp.is_conditional_graph_supported()
    if name is None:
        better = device != "cpu" or tets > _LARGE_TETS
        return "conjugate_gradients" if better and able else "cholesky"
    if name not in SOLVERS:
        raise InputError(
            f"simulate: solver is {name!r}. It must be one of {', '.join(map(repr, SOLVERS))}. Choose one."
        )
    if name == "conjugate_gradients" and not able:
        raise InputError(
            f"simulate: solver {name!r} needs a CUDA driver of version {_OLDEST_DRIVER} or newer. Update the driver, "
            "or use solver='cholesky'."
        )
    return name


def forward_solver(tets: int) -> str | None:
    """Return the fastest solver of a run without gradient, for `simulate`; the force is the same to 1e-6."""
    large = not on_cuda() and tets > _LARGE_FORWARD_TETS
    return "conjugate_gradients" if large else None


def describe_device() -> str:
    """Describe in one line the default device and how it solves the steps."""
    device = choose_device(None)
    solver = _choose_solver(None, device, 0)
    if device == "cpu":
        return f"no CUDA device; the simulator runs on the CPU: up to {_LARGE_TETS:,} tets {SOLVERS[solver]}"
    cuda = wp.get_device(device)
    name = f"{cuda.name}, {cuda.total_memory / 1e9:.0f} GB ({device})"
    if solver == "cholesky":
        return f"{name}: {SOLVERS[solver]}, since the driver is older than CUDA {_OLDEST_DRIVER}; update it"
    return f"{name}: {SOLVERS[solver]}"


# Settings of a run


_DEFAULT_DT_S = 3.0e-3
"""Default implicit time step [s]: 0.15 mm of knife travel at the usual 50 mm/s; for its error see docs/simulator.md."""
_STEP_ROUNDING = 1.0e-6
"""A duration that exceeds a whole number of steps by less than this fraction of a step is rounded down to it."""


@dataclass(frozen=True)
class Setting:
    """Checked arguments of `simulate`, with all defaults resolved."""

    model: Model
    motion: Motion
    parameters: ExpandedParameters
    integrator: str
    device: str
    solver: str
    dt: float
    """Time step [s]."""
    times: np.ndarray
    """Times [s], shape [step_count + 1]."""
    poses: np.ndarray
    """Knife positions [m], shape [step_count + 1, 3]."""
    x: np.ndarray
    """Node positions at the start [m], shape [node_count, 3]."""
    velocity: np.ndarray
    """Node velocities at the start [m/s], shape [node_count, 3]."""
    differentiable: bool
    sample_rate_hz: float
    keep_times: tuple[float, ...]
    newton: NewtonOptions
    force_limit_n: float


def settle(
    *,
    model: Model,
    motion: Motion,
    parameters: Values | None,
    duration: float,
    dt: float | None,
    integrator: str,
    differentiable: bool,
    sample_rate_hz: float,
    keep_times: Sequence[float],
    device: str | None,
    solver: str | None,
    newton: NewtonOptions | None,
    initial_positions: np.ndarray | None,
    initial_velocity: np.ndarray | None,
    force_limit_n: float,
) -> Setting:
    """Check the arguments of `simulate`, which documents them, and resolve the defaults."""
    if integrator not in ("implicit", "explicit"):
        raise InputError(
            f"simulate: integrator is {integrator!r}. It must be 'implicit' or 'explicit'. Choose one."
        )
    if not duration > 0.0 or (dt is not None and not 0.0 < dt <= duration):
        raise InputError(
            f"simulate: duration {duration} s, dt {dt} s. Both must be > 0 and dt <= duration. Correct them."
        )
    smooth = contact_law(model.contact_law).differentiable and damage_law(model.damage_law).differentiable
    if differentiable and (integrator == "explicit" or not smooth):
        raise InputError(
            f"simulate: no gradient for the {integrator} integrator with {model.contact_law} contact and damage by "
            f"{model.damage_law}: it would be meaningless (see docs/simulator.md). Use integrator='implicit' and "
            "contact_law='one_sided'."
        )
    if integrator == "explicit" and damage_law(model.damage_law).at_edge:
        raise InputError(
            "simulate: the explicit integrator has no edge law. Use integrator='implicit', or a model with "
            "damage_law='force'."
        )
    expanded = expand(parameters or {}, model.material, model.surface, model.damage_law)
    name = choose_device(device)
    if dt is None:
        dt = duration / np.ceil(duration / _DEFAULT_DT_S - _STEP_ROUNDING)
        if integrator == "explicit":
            limit = _SAFETY * stable_step(model, expanded, name)
            dt = 1.0 / (sample_rate_hz * np.ceil(1.0 / (sample_rate_hz * limit)))
    times = np.arange(int(np.ceil(duration / dt - _STEP_ROUNDING)) + 1) * dt
    rest = model.mesh.nodes
    return Setting(
        model=model,
        motion=motion,
        parameters=expanded,
        integrator=integrator,
        device=name,
        solver=_choose_solver(solver, name, model.tet_count),
        dt=float(dt),
        times=times,
        poses=motion.poses(times),
        x=rest.copy() if initial_positions is None else np.array(initial_positions, float),
        velocity=np.zeros_like(rest) if initial_velocity is None else np.array(initial_velocity, float),
        differentiable=differentiable,
        sample_rate_hz=sample_rate_hz,
        keep_times=tuple(keep_times),
        newton=newton or NewtonOptions(),
        force_limit_n=force_limit_n,
    )


def simulate(
    model: Model,
    motion: Motion,
    parameters: Values | None = None,
    *,
    duration: float = 0.9,
    dt: float | None = None,
    integrator: str = "implicit",
    differentiable: bool = False,
    sample_rate_hz: float = 1000.0,
    keep_times: Sequence[float] = (),
    device: str | None = None,
    solver: str | None = None,
    newton: NewtonOptions | None = None,
    initial_positions: np.ndarray | None = None,
    initial_velocity: np.ndarray | None = None,
    force_limit_n: float = 1000.0,
    progress: Callable[[float], None] | None = None,
) -> Result:
    """Simulate a knife motion through a body.

    **Main arguments**

    - `model`: from `build_model`.
    - `motion`: a `ConstantVelocity`, `RecordedMotion` or `SlicingMotion`.
    - `parameters`: name → number, or one number per spring; missing ones have their default (see `parameter_info`).
    - `duration` [s].

    **Other arguments**

    - `dt`: time step [s]; by default 3 ms for "implicit", or slightly less for a whole number of steps; for "explicit"
      half the stability limit or less, a whole number of steps per sample.
    - `integrator`: "implicit" (second order, exact gradients) or "explicit" (the paper's scheme, forward only).
    - `differentiable`: store the states for `result.gradient(...)`. The results are the same.
    - `sample_rate_hz`: rate at which forces are reported, as means over the interval.
    - `keep_times`: times [s] at which node positions are kept.
    - `device`: "cpu" or "cuda"; by default CUDA if present.
    - `solver`: of the implicit steps, "cholesky" (an old factor on the host) or "conjugate_gradients" (the whole run
      stays on the device); by default the second on CUDA and for large bodies, otherwise the first.
    - `newton`: tolerances of the implicit steps.
    - `initial_positions` [m], `initial_velocity` [m/s], shape [node_count, 3]: by default at rest.
    - `force_limit_n`: a knife force above this [N] ends the run as jammed.
    - `progress`: called with the fraction done.

    A run that fails does not raise: see `result.outcome`.
    """
    setting = settle(
        model=model,
        motion=motion,
        parameters=parameters,
        duration=duration,
        dt=dt,
        integrator=integrator,
        differentiable=differentiable,
        sample_rate_hz=sample_rate_hz,
        keep_times=keep_times,
        device=device,
        solver=solver,
        newton=newton,
        initial_positions=initial_positions,
        initial_velocity=initial_velocity,
        force_limit_n=force_limit_n,
    )
    system = StepSystem(model, setting.parameters, setting.dt, setting.device)
    recorder = Recorder(system, setting.poses, keep_times, force_limit_n)
    recorder.start(setting.x, setting.velocity)
    last, outcome, states = _run(setting, system, recorder, progress or _ignore)
    result = recorder.result(outcome, sample_rate_hz, last)
    if not differentiable:
        return result
    s = setting
    tape = Tape(
        system, motion, s.times, s.poses, states, result.stiffness, recorder.passed, sample_rate_hz, s.solver
    )
    return Result(**(vars(result) | {"tape": tape}))


def _run(
    setting: Setting, system: StepSystem, recorder: Recorder, progress: Callable[[float], None]
) -> tuple[np.ndarray, Outcome | None, list[np.ndarray]]:
    """Return the last good positions, the outcome if the run had to stop, and the states if stored for gradients."""
    s, states = setting, list[np.ndarray]()
    if s.integrator == "explicit":
        return *_run_explicit(system, s.poses, s.x, s.velocity, recorder, progress), states
    if s.solver == "conjugate_gradients":
        (run,) = run_resident(
            system,
            s.poses[None],
            s.x,
            s.velocity,
            [recorder],
            s.newton,
            progress,
            keep_states=s.differentiable,
            force_limits_n=[s.force_limit_n],
        )
        return run.last, run.outcome, run.states
    keep = states.append if s.differentiable else _ignore
    return *run_implicit(system, s.poses, s.x, s.velocity, recorder, s.newton, keep, progress), states


def _ignore(_: object) -> None:
    return None
