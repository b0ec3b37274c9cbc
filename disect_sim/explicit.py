"""Semi-implicit Euler, the paper's Algorithm 1: many small steps, forward only."""

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

from disect_sim.outcome import Outcome
from disect_sim.recorder import Recorder
from disect_sim.step_system import StepSystem
from disect_sim.timing import Stopwatch

SAFETY = 0.5
"""Share of the stability limit used: contact and damping can stiffen the system beyond its rest state."""


def stable_step(system: StepSystem) -> float:
    """Largest stable explicit step [s] around the rest state with every spring whole and every edge in contact."""
    m = system.model
    free = ~m.fixed
    rest = m.mesh.nodes
    nowhere = np.array([0.0, 10.0, 0.0])
    system.begin(rest, rest, system.parameters.row("cut_spring_ke"), nowhere, nowhere)
    system.gradient(rest)
    pattern = system.pattern
    size = 3 * pattern.free_count
    hessian = sp.bsr_matrix((system.hessian().copy(), pattern.indices, pattern.indptr), shape=(size, size))
    contact = np.zeros(m.node_count)
    ke = np.tile(system.parameters.row("sdf_ke") * system.area_ratio, 2)
    np.add.at(contact, m.contact_parents[:, 0], ke * (1.0 - m.contact_coordinate) ** 2)
    np.add.at(contact, m.contact_parents[:, 1], ke * m.contact_coordinate**2)
    mass = np.repeat(system.mass[free], 3)
    stiffness = hessian - sp.diags(mass / system.dt**2) + sp.diags(np.repeat(contact[free], 3))
    scale = sp.diags(1.0 / np.sqrt(mass))
    start = np.sin(np.arange(size) + 1.0)
    highest = eigsh(
        (scale @ stiffness @ scale).tocsr(), k=1, which="LA", tol=1e-3, v0=start, return_eigenvectors=False
    )
    return float(2.0 / np.sqrt(highest[0]))


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
    stiffness = recorder.stiffness[0]
    watch = Stopwatch()
    outcome = None
    steps = len(poses) - 1
    x_previous = x - dt * velocity
    for n in range(steps):
        with watch("gradient"):
            system.begin(x_previous, x, stiffness, poses[max(n - 1, 0)], poses[n])
            acceleration = gravity - inverse_mass * system.gradient(x)
        stiffness = system.damaged(stiffness, x)
        outcome = recorder.step(x, x_previous, stiffness)
        if outcome is not None:
            break
        velocity = velocity + dt * acceleration
        x_previous, x = x, x + dt * velocity
        if n % 1000 == 0:
            progress((n + 1) / steps)
    recorder.statistics.seconds = watch.split()
    return x, outcome
