"""A run before it starts: the arguments of `simulate`, checked and with everything chosen that was left open."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from disect_sim.errors import InputError
from disect_sim.explicit import SAFETY, stable_step
from disect_sim.laws.contact import contact_law
from disect_sim.laws.damage import damage_law
from disect_sim.model import Model
from disect_sim.motions import Motion
from disect_sim.newton import NewtonOptions
from disect_sim.parameters import ExpandedParameters, Values, expand
from disect_sim.solvers import choose_device, choose_solver

DEFAULT_DT_S = 3.0e-3
"""Implicit time step [s]: 0.15 mm of the knife's way at a usual 50 mm/s; its error is in docs/simulator.md."""
STEP_ROUNDING = 1.0e-6
"""A duration this share of a step beyond a whole number of steps is meant to be that whole number."""


@dataclass(frozen=True)
class Setting:
    """One run."""

    model: Model
    motion: Motion
    parameters: ExpandedParameters
    integrator: str
    device: str
    solver: str
    dt: float
    """[s]."""
    times: np.ndarray
    """[s], shape [step_count + 1]."""
    poses: np.ndarray
    """Knife [m], shape [step_count + 1, 3]."""
    x: np.ndarray
    """Nodes at the start [m], shape [node_count, 3]."""
    velocity: np.ndarray
    """[m/s], shape [node_count, 3]."""
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
    """Check and choose; the arguments are those of `simulate`, where they and their defaults are described."""
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
    if dt is None:
        dt = duration / np.ceil(duration / DEFAULT_DT_S - STEP_ROUNDING)
        if integrator == "explicit":
            limit = SAFETY * stable_step(model, expanded, name)
            dt = 1.0 / (sample_rate_hz * np.ceil(1.0 / (sample_rate_hz * limit)))
    times = np.arange(int(np.ceil(duration / dt - STEP_ROUNDING)) + 1) * dt
    rest = model.mesh.nodes
    return Setting(
        model=model,
        motion=motion,
        parameters=expanded,
        integrator=integrator,
        device=name,
        solver=choose_solver(solver, name, model.tet_count),
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
