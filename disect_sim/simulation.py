"""`simulate`: check the settings of a run, choose device and solver, and run the cut."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import warp as wp

from disect_sim.adjoint import Tape
from disect_sim.model import Model
from disect_sim.motions import Motion, with_pitch
from disect_sim.newton import NewtonOptions, run_implicit
from disect_sim.outcome import InputError, Outcome
from disect_sim.parameters import ExpandedParameters, Values, expand
from disect_sim.resident import run_resident
from disect_sim.result import Recorder, Result
from disect_sim.step_system import StepSystem

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
"""Default time step [s]: 0.15 mm of knife travel at the usual 50 mm/s; for its error see docs/simulator.md."""
_STEP_ROUNDING = 1.0e-6
"""A duration that exceeds a whole number of steps by less than this fraction of a step is rounded down to it."""


@dataclass(frozen=True)
class Setting:
    """Checked arguments of `simulate`, with all defaults resolved."""

    model: Model
    motion: Motion
    parameters: ExpandedParameters
    device: str
    solver: str
    dt: float
    """Time step [s]."""
    times: np.ndarray
    """Times [s], shape [step_count + 1]."""
    poses: np.ndarray
    """Positions [m] and pitch, the knife's tilt included [rad], shape [step_count + 1, 4]."""
    pose_columns: int
    """Number of columns of the motion's poses."""
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
    if not duration > 0.0 or (dt is not None and not 0.0 < dt <= duration):
        raise InputError(
            f"simulate: duration {duration} s, dt {dt} s. Both must be > 0 and dt <= duration. Correct them."
        )
    expanded = expand(parameters or {}, model.material, model.surface, model.damage_law)
    name = choose_device(device)
    if dt is None:
        dt = duration / np.ceil(duration / _DEFAULT_DT_S - _STEP_ROUNDING)
    times = np.arange(int(np.ceil(duration / dt - _STEP_ROUNDING)) + 1) * dt
    rest = model.mesh.nodes
    given = motion.poses(times)
    return Setting(
        model=model,
        motion=motion,
        parameters=expanded,
        device=name,
        # Only the host looks for the stop at a rigid region.
        solver="cholesky"
        if model.rigid_points is not None
        else _choose_solver(solver, name, model.tet_count),
        dt=float(dt),
        times=times,
        poses=with_pitch(given, model.knife.tilt_rad),
        pose_columns=given.shape[1],
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
    - `motion`: a `ConstantVelocity`, `RecordedMotion`, `SlicingMotion` or `RockingMotion`.
    - `parameters`: name → number, or one number per spring; missing ones have their default (see `parameter_info`).
    - `duration` [s].

    **Other arguments**

    - `dt`: time step [s]; by default 3 ms, or slightly less for a whole number of steps.
    - `differentiable`: store the states for `result.gradient(...)`. The results are the same.
    - `sample_rate_hz`: rate at which forces are reported, as means over the interval.
    - `keep_times`: times [s] at which node positions are kept.
    - `device`: "cpu" or "cuda"; by default CUDA if present.
    - `solver`: "cholesky" (an old factor on the host) or "conjugate_gradients" (the whole run stays on the device); by
      default the second on CUDA and for large bodies, otherwise the first.
    - `newton`: tolerances of Newton's method.
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
    kept = (states, result.stiffness, recorder.passed)
    tape = Tape(system, motion, s.times, s.poses, *kept, sample_rate_hz, s.solver, s.pose_columns)
    return Result(**(vars(result) | {"tape": tape}))


def _run(
    setting: Setting, system: StepSystem, recorder: Recorder, progress: Callable[[float], None]
) -> tuple[np.ndarray, Outcome | None, list[np.ndarray]]:
    """Return the last good positions, the outcome if the run had to stop, and the states if stored for gradients."""
    s, states = setting, list[np.ndarray]()
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
