"""Semi-implicit Euler, the paper's Algorithm 1: many small steps, forward only."""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

from disect_sim.model import Model
from disect_sim.outcome import Outcome, OutcomeKind
from disect_sim.parameters import ExpandedParameters
from disect_sim.recorder import Recorder
from disect_sim.step_system import StepSystem
from disect_sim.timing import Stopwatch

SAFETY = 0.5
"""Share of the stability limit used: contact and damping can stiffen the system beyond its rest state."""


def stable_step(model: Model, parameters: ExpandedParameters, device: str) -> float:
    """Largest stable explicit step [s] around the rest state with every spring whole and every edge in contact.

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
    """Mass [kg], stiffness [N/m] and damping [N s/m] of the free nodes at rest, with every edge pressed by the knife.

    The Hessian of a step is M/dt^2 + C/dt + K: two different steps tell C and K apart.
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
    """What knife contact on every cut edge adds to the diagonal, for its stiffness or damping."""
    value = np.tile(parameters.row(name) * model.spring_area_ratio, 2)
    diagonal = np.zeros(model.node_count)
    np.add.at(diagonal, model.contact_parents[:, 0], value * (1.0 - model.contact_coordinate) ** 2)
    np.add.at(diagonal, model.contact_parents[:, 1], value * model.contact_coordinate**2)
    return sp.diags(np.repeat(diagonal[~model.fixed], 3))


def _largest(matrix: sp.csr_matrix) -> float:
    start = np.sin(np.arange(matrix.shape[0]) + 1.0)
    return float(eigsh(matrix.tocsr(), k=1, which="LA", tol=1e-3, v0=start, return_eigenvectors=False)[0])


def run_explicit(
    system: StepSystem,
    poses: np.ndarray,
    x: np.ndarray,
    velocity: np.ndarray,
    recorder: Recorder,
    progress: Callable[[float], None],
) -> tuple[np.ndarray, Outcome | None]:
    """Step through the motion. Returns the last good positions and, if the run had to stop, why."""
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
