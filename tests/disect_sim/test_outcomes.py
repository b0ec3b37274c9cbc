"""Runs that go wrong end with an outcome, a remedy and their last good state, never with a crash."""

import numpy as np
import pytest

from disect_sim import ConstantVelocity, OutcomeKind, simulate
from disect_sim.newton import NewtonOptions
from tests.disect_sim.scenes import APPLE, block_model, regular_block

DOWN = ConstantVelocity(initial_y=0.0265, velocity_y=-0.27)
AWAY = ConstantVelocity(initial_y=10.0, velocity_y=0.0)


@pytest.fixture(scope="module")
def mesh():
    return regular_block()


def assert_leaves_its_last_good_state(result, mesh, *, complete=False):
    steps = len(result.step_time) - 1
    assert (steps == 40) == complete
    assert result.stiffness.shape == (steps + 1, len(mesh.spring_area))
    assert result.pose.shape == (steps + 1, 3)
    assert all(len(v) == steps + 1 for v in result.energy.values())
    assert len(result.force) == len(result.time) == steps
    assert np.isfinite(result.force).all()
    last = list(result.positions.values())[-1]
    assert last.shape == mesh.nodes.shape
    assert np.isfinite(last).all()
    assert np.abs(last - mesh.nodes).max() < 0.4


def run(mesh, motion=DOWN, parameters=None, *, model=None, **options):
    model = block_model(mesh) if model is None else model
    return simulate(model, motion, parameters, **({"duration": 0.04, "dt": 1e-3} | options))


def test_complete(mesh):
    result = run(mesh, parameters={"cut_spring_softness": 0.5})
    assert result.outcome.kind is OutcomeKind.COMPLETE
    assert result.outcome.ok
    assert_leaves_its_last_good_state(result, mesh, complete=True)


def test_nothing_cut(mesh):
    result = run(mesh, ConstantVelocity(initial_y=0.05, velocity_y=0.0))
    assert result.outcome.kind is OutcomeKind.NOTHING_CUT
    assert not result.force.any()
    assert_leaves_its_last_good_state(result, mesh, complete=True)


def test_newton_stalled(mesh):
    result = run(mesh, newton=NewtonOptions(max_iterations=1, tolerance_m=1e-15))
    assert result.outcome.kind is OutcomeKind.NEWTON_STALLED
    assert not result.outcome.ok
    assert result.outcome.step == 1
    assert 0 <= result.outcome.node < len(mesh.nodes)
    assert_leaves_its_last_good_state(result, mesh)


def test_newton_stalls_late_and_keeps_what_went_before(mesh):
    """Two iterations are enough until the knife touches, then no longer at this tolerance."""
    result = run(mesh, newton=NewtonOptions(max_iterations=2, tolerance_m=1e-9))
    assert result.outcome.kind is OutcomeKind.NEWTON_STALLED
    assert result.outcome.step == len(result.step_time)
    assert_leaves_its_last_good_state(result, mesh)


def test_diverged(mesh):
    model = block_model(mesh, boundary="free")
    result = run(mesh, AWAY, model=model, initial_velocity=np.full(mesh.nodes.shape, 1000.0))
    assert result.outcome.kind is OutcomeKind.DIVERGED
    assert result.outcome.step == 1
    assert_leaves_its_last_good_state(result, mesh)


def test_knife_jammed(mesh):
    result = run(mesh, force_limit_n=0.5)
    assert result.outcome.kind is OutcomeKind.KNIFE_JAMMED
    assert "0.5 N" in str(result.outcome)
    assert result.force_norm[-1] > 0.5
    assert (result.force_norm[:-1] <= 0.5).all()
    assert_leaves_its_last_good_state(result, mesh)


def test_mesh_inverted(mesh):
    """A body of jelly that starts inside out has not turned back after a few steps."""
    model = block_model(mesh, APPLE.replaced(young_pa=10.0), boundary="free", gravity=(0.0, 0.0, 0.0))
    start = mesh.nodes * (1.0, 1.0, -1.0) + np.array([0.0, 0.1, 0.0])
    result = run(mesh, AWAY, model=model, initial_positions=start, duration=5e-3)
    assert result.outcome.kind is OutcomeKind.MESH_INVERTED
    assert result.statistics.inverted_tets > 0


def test_a_stopped_run_still_has_a_gradient(mesh):
    """Up to where it got: the states before the knife jammed."""
    result = run(mesh, force_limit_n=0.5, differentiable=True)
    gradients = result.gradient(np.ones_like(result.force))
    assert np.isfinite(gradients.parameters["sdf_ke"])
    assert gradients.parameters["sdf_ke"] != 0.0


@pytest.mark.parametrize("kind", OutcomeKind)
def test_every_outcome_is_a_sentence_with_a_remedy(kind):
    assert kind.value.endswith(".")
    if kind is not OutcomeKind.COMPLETE:
        assert kind.value.count(".") >= 2
