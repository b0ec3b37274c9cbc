"""Run a cut."""

from collections.abc import Callable, Sequence

import numpy as np

from disect_sim.adjoint import Tape
from disect_sim.errors import InputError
from disect_sim.explicit import SAFETY, run_explicit, stable_step
from disect_sim.implicit import run_implicit
from disect_sim.laws.contact import contact_law
from disect_sim.laws.damage import damage_law
from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.newton import NewtonOptions
from disect_sim.parameters import Values, expand
from disect_sim.recorder import Recorder
from disect_sim.resident import run_resident
from disect_sim.result import Result
from disect_sim.solvers import choose_device, choose_solver
from disect_sim.step_system import StepSystem

DEFAULT_DT_S = 3.0e-3
"""Implicit time step [s]: 0.15 mm of the knife's way at a usual 50 mm/s; its error is in docs/simulator.md."""
STEP_ROUNDING = 1.0e-6
"""A duration this share of a step beyond a whole number of steps is meant to be that whole number."""


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
            f"{model.damage_law}: it would be useless (see docs/simulator.md). Use integrator='implicit' and "
            "contact_law='one_sided'."
        )
    if integrator == "explicit" and damage_law(model.damage_law).at_edge:
        raise InputError(
            "simulate: the explicit integrator has no edge law. Use integrator='implicit', or a model with "
            "damage_law='force'."
        )
    expanded = expand(parameters or {}, model.material, model.surface, model.damage_law)
    name = choose_device(device)
    chosen = choose_solver(solver, name, model.tet_count)
    if dt is None:
        dt = duration / np.ceil(duration / DEFAULT_DT_S - STEP_ROUNDING)
        if integrator == "explicit":
            limit = SAFETY * stable_step(model, expanded, name)
            dt = 1.0 / (sample_rate_hz * np.ceil(1.0 / (sample_rate_hz * limit)))
    steps = int(np.ceil(duration / dt - STEP_ROUNDING))
    times = np.arange(steps + 1) * dt
    poses = motion.poses(times)
    system = StepSystem(model, expanded, dt, name)
    x = model.mesh.nodes.copy() if initial_positions is None else np.array(initial_positions, float)
    velocity = np.zeros_like(x) if initial_velocity is None else np.array(initial_velocity, float)
    recorder = Recorder(system, poses, keep_times, force_limit_n)
    recorder.start(x, velocity)
    states: list[np.ndarray] = []
    keep = states.append if differentiable else _ignore
    tell, options = progress or _ignore, newton or NewtonOptions()
    if integrator == "implicit" and chosen == "conjugate_gradients":
        run = run_resident(
            system,
            poses,
            x,
            velocity,
            recorder,
            options,
            tell,
            keep_states=differentiable,
            force_limit_n=force_limit_n,
        )
        last, outcome, states = run.last, run.outcome, run.states
    elif integrator == "implicit":
        last, outcome = run_implicit(system, poses, x, velocity, recorder, options, keep, tell)
    else:
        last, outcome = run_explicit(system, poses, x, velocity, recorder, tell)
    result = recorder.result(outcome, sample_rate_hz, last)
    if not differentiable:
        return result
    tape = Tape(
        system, motion, times, poses, states, result.stiffness, recorder.passed, sample_rate_hz, chosen
    )
    return Result(**(vars(result) | {"tape": tape}))


def _ignore(_: object) -> None:
    return None
