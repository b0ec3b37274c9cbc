"""The implicit integrator against the paper's explicit one."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, OutcomeKind, simulate
from tests.disect_sim.explicit_steps import simulate_explicit
from tests.disect_sim.scenes import APPLE, block_model, regular_block

MATERIAL = APPLE.replaced(young_pa=3.0e5)
"""Ten times softer than an apple: slower waves, so that both integrators resolve them."""
EXPLICIT_DT_S = 2e-5
"""Below the stability limit of that body with all edges in contact; a divisor of the sample interval of 1 ms."""


def test_implicit_and_explicit_agree_on_a_cut_with_soft_friction():
    """Friction that builds up over 1 m/s, so that explicit steps do not chatter (at 1 cm/s they are 23 % off)."""
    model = block_model(regular_block(), MATERIAL)
    motion = ConstantVelocity(initial_y=0.0265, velocity_y=-0.27)
    parameters = {"sdf_kf": 1.0, "cut_spring_softness": 0.3}
    explicit = simulate_explicit(model, motion, parameters, duration=0.05, dt=EXPLICIT_DT_S)
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
