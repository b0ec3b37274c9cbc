"""The paper's integrator (semi-implicit Euler, Algorithm 1), as an oracle of the implicit one.

It shares forces, damage and recording with the product, and none of its steps, predictions and Newton iterations.
"""

import numpy as np

from disect_sim.outcome import OutcomeKind
from disect_sim.parameters import expand
from disect_sim.result import Recorder
from disect_sim.step_system import StepSystem


def simulate_explicit(model, motion, parameters, *, duration, dt):
    """Return the `Result` of a cut in explicit steps; `dt` [s] must be below the stability limit."""
    values = expand(parameters, model.material, model.surface, model.damage_law)
    system = StepSystem(model, values, dt, "cpu")
    poses = motion.poses(np.arange(round(duration / dt) + 1) * dt)
    recorder = Recorder(system, poses, (), 1000.0)
    x = x_previous = model.mesh.nodes
    velocity = np.zeros_like(x)
    recorder.start(x, velocity)
    inverse_mass = np.where(model.fixed, 0.0, 1.0 / system.mass)[:, None]
    gravity = np.where(model.fixed[:, None], 0.0, model.gravity)
    stiffness, passed = recorder.stiffness[0], recorder.passed[0]
    outcome = None
    for n in range(len(poses) - 1):
        system.begin(x_previous, x, stiffness, poses[max(n - 1, 0)], poses[n], ahead=x)
        acceleration = gravity - inverse_mass * system.gradient(x)
        stiffness, passed = system.damaged(stiffness, x, poses[n], passed)
        outcome = recorder.step(x, x_previous, stiffness, passed)
        if outcome is not None:
            assert outcome.kind is not OutcomeKind.DIVERGED, f"dt = {dt} s is above the stability limit"
            break
        velocity = velocity + dt * acceleration
        x_previous, x = x, x + dt * velocity
    return recorder.result(outcome, 1000.0, x)
