"""Green-strain-rate damping: blind to rigid motion, dissipative otherwise, with the right size."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from disect_sim.parameters import MATERIALS
from tests.disect_sim.tet_body import TetBody
from tests.disect_sim.tet_meshes import jittered_box

DT = 1e-3
EDGE = 0.01


def bodies(retardation_s=1e-2):
    """The same body with and without damping."""
    mesh = jittered_box(5, (3, 3, 3))
    apple = MATERIALS["apple"]
    return [TetBody(*mesh, apple.replaced(retardation_s=tau)) for tau in (retardation_s, 0.0)]


def viscous_gradient(x, x_previous):
    damped, elastic = bodies()
    return damped.evaluate(x, x_previous, DT).gradient - elastic.evaluate(x, x_previous, DT).gradient


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("angle", [1e-3, 0.5])
def test_rigid_motion_of_a_strained_body_is_not_damped(seed, angle):
    rng = np.random.default_rng(seed)
    start = bodies()[0].nodes * (1.05, 0.97, 1.0) + 0.02 * EDGE * rng.normal(size=(64, 3))
    rotation = Rotation.from_rotvec(angle * np.array([0.6, 0.0, 0.8])).as_matrix()
    x = start @ rotation.T + rng.uniform(-0.1, 0.1, 3)
    # Rounding of the strains, times viscosity E τ / dt = 10 E, times an area of edge^2.
    assert np.abs(viscous_gradient(x, start)).max() < 1e-10 * 10 * 3e6 * EDGE**2
    assert bodies()[0].evaluate(x, start, DT).viscous < 1e-20


@pytest.mark.parametrize("seed", range(5))
def test_straining_motion_loses_energy(seed):
    rng = np.random.default_rng(seed)
    start = bodies()[0].nodes
    x = start + 0.01 * EDGE * rng.normal(size=start.shape)
    assert bodies()[0].evaluate(x, start, DT).viscous > 0.0
    # Power of the damping forces on the way just taken is negative.
    assert (viscous_gradient(x, start) * (x - start)).sum() > 0.0


def test_damping_force_is_a_resultant_free_pair_of_reactions():
    rng = np.random.default_rng(9)
    start = bodies()[0].nodes
    x = start + 0.01 * EDGE * rng.normal(size=start.shape)
    force = -viscous_gradient(x, start)
    scale = np.abs(force).sum()
    assert np.abs(force.sum(axis=0)).max() < 1e-12 * scale
    assert np.abs(np.cross(x, force).sum(axis=0)).max() < 1e-12 * scale


def test_slow_stretching_has_kelvin_voigt_stress():
    """At a strain rate e the viscous force is τ e / strain times the elastic one, to first order in strain."""
    damped, elastic = bodies(retardation_s=1e-2)
    strain = 1e-6
    x = damped.nodes * (1.0 + strain, 1.0, 1.0)
    viscous = damped.evaluate(x, damped.nodes, DT).gradient - elastic.evaluate(x).gradient
    ratio = np.linalg.norm(viscous) / np.linalg.norm(elastic.evaluate(x).gradient)
    # Rounding of the elastic force at this strain is 1e-16 / 1e-6.
    assert ratio == pytest.approx(1e-2 / DT, rel=1e-5)
