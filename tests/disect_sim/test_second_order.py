"""The force on the knife is of second order in the step; snap, jam, soft bodies, sawing, starting in between."""

import hashlib
import subprocess
import sys
from functools import cache

import numpy as np
import pytest

from disect_sim import ConstantVelocity, OutcomeKind, simulate
from disect_sim.newton import NewtonOptions
from disect_sim.result import sampling_operator
from tests.disect_sim.gradient_cases import CUTTING, Case, slicing, smallest_error, straight
from tests.disect_sim.scenes import APPLE, block_model, irregular_block, regular_block

DOWN = ConstantVelocity(initial_y=0.0255, velocity_y=-0.2)
SOFT = APPLE.replaced(young_pa=3.0e4)


@cache
def mean_forces(dt, motion="straight", boundary="held", material=APPLE):
    """Norm of the force [N] of a cut through the block, means over 10 ms."""
    model = block_model(irregular_block(), material, boundary=boundary)
    path = slicing() if motion == "sawing" else DOWN
    result = simulate(model, path, {"cut_spring_softness": 0.3}, duration=0.1, dt=dt, sample_rate_hz=100.0)
    assert result.outcome.ok
    return result.force_norm


def error(dt, first=0, **scene):
    """Mean distance to the profile of a fine step from the sample `first` on, over the mean force."""
    exact = mean_forces(1.25e-4, **scene)
    return np.abs(mean_forces(dt, **scene) - exact)[first:].mean() / exact.mean()


def test_a_straight_cut_converges_with_the_square_of_the_step():
    """The knife makes 0.2 mm per millisecond here: four times the way of a usual cut."""
    errors = [error(dt) for dt in (4e-3, 2e-3, 1e-3)]
    assert errors[2] < 2e-3
    # Springs that die inside a step leave kinks: the rate is near 2, not 2. First order would give 1.
    assert 1.5 < 0.5 * np.log2(errors[0] / errors[2]) < 2.6


def test_a_sawing_cut_converges_faster_than_the_step():
    errors = [error(dt, motion="sawing") for dt in (4e-3, 2e-3)]
    assert errors[1] < 0.03
    assert np.log2(errors[0] / errors[1]) > 1.2


def test_a_soft_body_converges_too():
    """Below 2 ms the error is that of the body's ringing on the board, half a percent."""
    assert error(1e-3, material=SOFT) < 0.01
    assert error(4e-3, material=SOFT) > 1.5 * error(1e-3, material=SOFT)


def test_a_free_body_converges_once_it_has_settled():
    """For 30 ms it bounces on the board under the first touch, and inertia is of first order; then nothing does."""
    assert error(1e-3, first=3, boundary="free") < 2e-3
    assert error(2e-3, first=3, boundary="free") < 6e-3


@pytest.mark.parametrize("dt", [1e-3, 4e-3])
def test_a_sharp_tip_that_snaps_is_cut_at_every_step(dt):
    """A tip far below the rounding makes rows of edges snap off it."""
    model = block_model(irregular_block())
    result = simulate(model, DOWN, {"cut_spring_softness": 0.3, "sdf_tip": 2e-4}, duration=0.1, dt=dt)
    assert result.outcome.kind is OutcomeKind.COMPLETE
    assert np.isfinite(result.force).all()


@pytest.mark.parametrize("dt", [1e-3, 4e-3])
def test_a_knife_that_jams_says_so_at_every_step(dt):
    result = simulate(block_model(irregular_block()), DOWN, duration=0.1, dt=dt, force_limit_n=1.0)
    assert result.outcome.kind is OutcomeKind.KNIFE_JAMMED


@pytest.mark.parametrize("boundary", ["held", "free"])
@pytest.mark.parametrize("motion", [straight, slicing])
def test_gradients_at_the_usual_step(boundary, motion):
    """4 ms at 50 mm/s are 0.75 ms here, in knife's way; 2.5 ms is three times that."""
    case = Case(block_model(irregular_block(), boundary=boundary), motion(), options={"dt": 2.5e-3})
    names = ("cut_spring_ke", "cut_spring_softness", "sdf_ke", "sdf_mu", "young_pa", "initial_y")
    assert smallest_error(case, {name: case.direction(name) for name in names}) < 1e-4


def test_a_run_starts_in_between_where_another_left_off():
    """Without damage a state is positions and velocities: the second half of a press is the same run."""
    model, dt = block_model(irregular_block()), 1e-3
    values = CUTTING | {"cut_spring_softness": 0.0}
    options = {"dt": dt, "newton": NewtonOptions(tolerance_m=1e-10, cg_tolerance=1e-8)}
    whole = simulate(model, DOWN, values, duration=0.03, keep_times=[0.014, 0.015], **options)
    at, before = whole.positions[0.015], whole.positions[0.014]
    later = ConstantVelocity(initial_y=0.0255 - 0.2 * 0.015, velocity_y=-0.2)
    start = {"initial_positions": at, "initial_velocity": (at - before) / dt}
    rest = simulate(model, later, values, duration=0.015, **start, **options)
    # The first sample of the second run has no force before it to take the mean with.
    assert whole.force[17:] == pytest.approx(rest.force[2:], rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("dt", "rate_hz"), [(4e-3, 1000.0), (1e-3, 1000.0), (1e-3, 300.0), (2.5e-3, 400.0)])
def test_samples_are_exact_for_a_force_that_grows_evenly(dt, rate_hz):
    steps = round(0.1 / dt)
    mean = sampling_operator(dt, steps, rate_hz)
    assert mean.sum(axis=1) == pytest.approx(1.0)
    ends = (np.arange(steps) + 1.0) * dt
    middle = (np.arange(mean.shape[0]) + 0.5) / rate_hz
    after_the_first_step = middle - 0.5 / rate_hz >= dt - 1e-12
    assert (mean @ ends)[after_the_first_step] == pytest.approx(middle[after_the_first_step])


HASH = """
import hashlib
from disect_sim import simulate
from tests.disect_sim.gradient_cases import CUTTING, slicing
from tests.disect_sim.scenes import block_model, irregular_block
run = simulate(block_model(irregular_block()), slicing(), CUTTING, duration=0.1, differentiable=True)
print(hashlib.sha256(run.force.tobytes() + run.gradient(run.force).poses.tobytes()).hexdigest())
"""


def test_every_process_gives_the_same_bytes():
    """Old Hessians and factors are renewed by counts, never by clocks."""
    command = [sys.executable, "-c", HASH]
    found = {subprocess.run(command, check=True, capture_output=True, text=True).stdout for _ in range(2)}
    assert len(found) == 1
    assert len(found.pop().strip()) == 2 * hashlib.sha256().digest_size


def test_gradients_together_are_those_one_by_one():
    """Solves end at a relative 1e-7, together as alone."""
    case = Case(block_model(regular_block()), slicing(), options={"duration": 0.06})
    weights = np.random.default_rng(0).normal(size=(12, *case.result.force.shape))
    together = case.result.gradients(weights)
    assert len(together) == 12
    for weight, found in zip(weights[::4], together[::4], strict=True):
        alone = case.result.gradient(weight)
        for name, value in alone.parameters.items():
            assert found.parameters[name] == pytest.approx(value, rel=1e-5, abs=1e-9), name
        assert np.abs(found.poses - alone.poses).max() < 1e-5 * np.abs(alone.poses).max()
        assert found.motion["amplitude"] == pytest.approx(alone.motion["amplitude"], rel=1e-4)
        assert found.largest_adjoint == pytest.approx(alone.largest_adjoint, rel=1e-5)
