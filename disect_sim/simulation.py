"""Run a cut."""

from collections.abc import Callable, Sequence

import numpy as np

from disect_sim.adjoint import Tape
from disect_sim.explicit import run_explicit
from disect_sim.implicit import run_implicit
from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.newton import NewtonOptions
from disect_sim.outcome import Outcome
from disect_sim.parameters import Values
from disect_sim.recorder import Recorder
from disect_sim.resident import run_resident
from disect_sim.result import Result
from disect_sim.setting import Setting, settle
from disect_sim.step_system import StepSystem


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
    - `parameters`: name → number, or one number per spring; what is missing has its default (see `parameter_info`).
    - `duration` [s].

    **Other arguments**

    - `dt`: time step [s]; by default 3 ms for "implicit", or a little less for a whole number of steps; for "explicit"
      half the stability limit or less, a whole number of steps per sample.
    - `integrator`: "implicit" (second order, exact gradients) or "explicit" (the paper's scheme, forward only).
    - `differentiable`: keep the states, so that `result.gradient(...)` can be asked. The numbers are the same.
    - `sample_rate_hz`: rate at which forces are reported, as means over the interval.
    - `keep_times`: times [s] at which node positions are kept.
    - `device`: "cpu" or "cuda"; by default CUDA if there is one.
    - `solver`: of the implicit steps, "cholesky" (an old factor on the host) or "conjugate_gradients" (the whole run
      stays on the device); by default the second on CUDA and for large bodies, else the first.
    - `newton`: tolerances of the implicit steps.
    - `initial_positions` [m], `initial_velocity` [m/s], shape [node_count, 3]: by default at rest.
    - `force_limit_n`: a knife force beyond this [N] ends the run as jammed.
    - `progress`: called with the fraction done.

    Never raises for a run that goes wrong: see `result.outcome`.
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
    """Last good positions, why the run had to stop, and the states, if gradients will be asked."""
    s, states = setting, list[np.ndarray]()
    if s.integrator == "explicit":
        return *run_explicit(system, s.poses, s.x, s.velocity, recorder, progress), states
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
