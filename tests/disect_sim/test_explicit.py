"""The paper's explicit integrator: agrees with the implicit one, and knows how long its steps may be."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, OutcomeKind, simulate
from disect_sim.model import BoardProperties
from disect_sim.parameters import expand
from disect_sim.simulation import stable_step
from tests.disect_sim.scenes import APPLE, block_model, regular_block

AWAY = ConstantVelocity(initial_y=10.0, velocity_y=0.0)
MATERIAL = APPLE.replaced(young_pa=3.0e5)
"""Ten times softer than an apple: slower waves, so that both integrators resolve them."""
HIGH = np.array([0.0, 0.2, 0.0])
NO_BOARD = BoardProperties(ke=1e-9, kd=1e-12)
"""The stability limit is that of a body standing on the board; this one takes the board out of it."""


@pytest.fixture(scope="module")
def mesh():
    return regular_block()


def limit(model, parameters=None):
    values = expand(parameters or {}, model.material, model.surface, model.damage_law)
    return stable_step(model, values, "cpu")


def test_implicit_and_explicit_agree_on_a_cut_with_soft_friction(mesh):
    """Friction that builds up over 1 m/s, so that explicit steps do not chatter (at 1 cm/s they are 23 % off)."""
    model = block_model(mesh, MATERIAL)
    motion = ConstantVelocity(initial_y=0.0265, velocity_y=-0.27)
    parameters = {"sdf_kf": 1.0, "cut_spring_softness": 0.3}
    explicit = simulate(model, motion, parameters, duration=0.05, integrator="explicit")
    usual = simulate(model, motion, parameters, duration=0.05)
    implicit = simulate(model, motion, parameters, duration=0.05, dt=1e-4)
    assert explicit.outcome.kind is implicit.outcome.kind is OutcomeKind.COMPLETE
    scale = explicit.force_norm.mean()
    assert scale > 1.0
    # The touch at 0.27 m/s rings for some milliseconds, which steps of 1 ms see only in the mean.
    common = len(explicit.force)
    assert common >= 49
    assert np.linalg.norm(implicit.force[:common] - explicit.force, axis=1).mean() < 0.03 * scale
    assert implicit.force_norm[:common].mean() == pytest.approx(scale, rel=0.03)
    assert usual.force_norm[:common].mean() == pytest.approx(scale, rel=0.03)
    assert implicit.cut_fraction[-1] == pytest.approx(explicit.cut_fraction[-1], rel=0.03)


def test_a_run_lasts_as_long_as_asked(mesh):
    model = block_model(mesh, MATERIAL)
    result = simulate(model, AWAY, {"sdf_kf": 1.0}, duration=5e-3, integrator="explicit")
    assert result.step_time[-1] == pytest.approx(5e-3, rel=1e-9)


def swing(mesh, dt):
    """Kinetic energy over 400 steps of a flying block that was given a random shake [J]."""
    model = block_model(mesh, MATERIAL, boundary="free", gravity=(0.0, 0.0, 0.0), board=NO_BOARD)
    shake = 1e-3 * np.random.default_rng(0).normal(size=mesh.nodes.shape)
    return simulate(
        model,
        AWAY,
        duration=400 * dt,
        dt=dt,
        integrator="explicit",
        sample_rate_hz=1.0 / dt,
        initial_positions=mesh.nodes + HIGH,
        initial_velocity=shake,
    )


def free_limit(mesh):
    """Limit of a body the knife does not touch: its contact must not count."""
    model = block_model(mesh, MATERIAL, boundary="free", gravity=(0.0, 0.0, 0.0), board=NO_BOARD)
    return limit(model, {"sdf_ke": 1e-9, "sdf_kd": 1e-9})


def test_steps_below_the_limit_are_stable_and_above_it_are_not(mesh):
    step = free_limit(mesh)
    below = swing(mesh, 0.9 * step)
    kinetic = below.energy["kinetic"]
    assert below.outcome.ok
    assert kinetic.max() <= 1.05 * kinetic[0]
    above = swing(mesh, 1.5 * step)
    grown = above.energy["kinetic"]
    assert above.outcome.kind is OutcomeKind.DIVERGED or grown[-1] > 1e3 * grown[0]


def test_limit_scales_as_theory_says(mesh):
    """Without damping the limit goes with sqrt(density / stiffness): four times as dense, twice as long."""
    values = {"cut_spring_kd": 1e-9, "sdf_kd": 1e-9}

    def limit_of(**changes):
        return limit(block_model(mesh, MATERIAL.replaced(**changes), board=NO_BOARD), values)

    light = limit_of(retardation_s=0.0)
    assert limit_of(retardation_s=0.0, density_kg_m3=4.0 * 787.0) / light == pytest.approx(2.0, rel=0.01)
    assert limit_of(retardation_s=1e-3) < light


def test_free_fall_follows_semi_implicit_eulers_formula(mesh):
    model = block_model(mesh, MATERIAL, boundary="free")
    dt, n = 1e-5, 50
    result = simulate(
        model, AWAY, duration=n * dt, dt=dt, integrator="explicit", initial_positions=mesh.nodes + HIGH
    )
    fallen = -9.81 * dt**2 * n * (n + 1) / 2.0
    end = list(result.positions.values())[-1]
    assert end == pytest.approx(mesh.nodes + HIGH + np.array([0.0, fallen, 0.0]), abs=1e-14)


def test_two_runs_give_the_same_bits(mesh):
    model = block_model(mesh, MATERIAL)
    motion = ConstantVelocity(initial_y=0.0255, velocity_y=-0.5)
    runs = [simulate(model, motion, duration=4e-3, integrator="explicit") for _ in range(2)]
    assert (runs[0].force == runs[1].force).all()
    assert (runs[0].force != 0.0).any()
