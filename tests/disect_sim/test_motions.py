"""Knife motions: closed forms, rest at both ends, interpolation, derivatives."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from disect_sim import ConstantVelocity, InputError, RecordedMotion, RockingMotion, SlicingMotion

TIMES = np.linspace(0.0, 0.9, 901)


def test_constant_velocity_is_a_straight_line():
    poses = ConstantVelocity(initial_y=0.07, velocity_y=-0.04, z=0.01).poses(TIMES)
    assert poses == pytest.approx(np.stack([0.0 * TIMES, 0.07 - 0.04 * TIMES, 0.0 * TIMES + 0.01], axis=1))


def test_slicing_follows_its_velocity_formula():
    """Against adaptive quadrature of the printed formula; three Gauss points per millisecond leave rounding only."""
    a, b, c = np.array([0.05, 0.02, 0.08]), np.array([20.0, 30.0, 25.0]), np.array([-0.05, -0.02, -0.07])
    motion = SlicingMotion(
        amplitude=a, frequency=b, velocity_y=c, keyframes=3, initial_y=0.09, initial_z=0.003
    )

    def edge(z):
        c = np.clip(z, 0.0, 1.0)
        return c**3 * (10.0 - 15.0 * c + 6.0 * c**2)

    def window(t):
        return edge(t / 0.12) * edge((0.9 - t) / 0.12)

    def weights(t):
        return np.exp(-((t - np.array([0.0, 0.45, 0.9])) ** 2) / 0.06)

    poses = motion.poses(TIMES)
    for n in (100, 450, 900):
        parts = np.linspace(0.0, TIMES[n], 7)
        y = 0.09 + sum(quad(lambda t: window(t) * (c @ weights(t)), *p)[0] for p in pairwise(parts))
        z = 0.003 + sum(
            quad(lambda t: window(t) * (a @ weights(t)) * np.cos((b @ weights(t)) * t), *p)[0]
            for p in pairwise(parts)
        )
        assert poses[n] == pytest.approx([0.0, y, z], abs=1e-9)


def test_slicing_starts_and_ends_at_rest_without_acceleration():
    motion = SlicingMotion(amplitude=0.1, frequency=40.0)
    tensors = {k: torch.tensor(v) for k, v in motion.parameters.items()}
    for end, inwards in ((0.0, 1.0), (0.9, -1.0)):
        times = torch.tensor([end, end + inwards * 1e-5, end + inwards * 2e-5], dtype=torch.float64)
        velocity = motion.velocities(times, tensors).numpy()
        assert (velocity[0] == 0.0).all()
        # The window leaves zero with the third power: (1e-5 s / 0.12 s)^3 = 6e-13 of the speed.
        assert np.abs(velocity).max() < 1e-11
        assert np.abs(np.diff(velocity, axis=0)).max() / 1e-5 < 1e-5
    inside = motion.velocities(torch.tensor([0.45], dtype=torch.float64), tensors).numpy()
    assert np.abs(inside).min() > 1e-3


def test_slicing_without_amplitude_goes_straight_down():
    poses = SlicingMotion(amplitude=0.0).poses(TIMES)
    assert (poses[:, [0, 2]] == 0.0).all()
    assert (np.diff(poses[1:-1, 1]) < 0.0).all()


@pytest.mark.parametrize("with_velocities", [False, True])
@pytest.mark.parametrize("columns", [2, 3])
def test_recorded_motion_passes_through_its_samples(with_velocities, columns):
    times = np.sort(np.random.default_rng(0).uniform(0.0, 0.9, 30))
    wave = np.stack([0.0 * times, 0.08 - 0.05 * times, 0.01 * np.sin(9.0 * times)], axis=1)
    slope = np.stack([0.0 * times, 0.0 * times - 0.05, 0.09 * np.cos(9.0 * times)], axis=1)
    motion = RecordedMotion(
        times, wave[:, -columns:], velocities=slope[:, -columns:] if with_velocities else None, offset_y=0.002
    )
    assert motion.poses(times) == pytest.approx(wave + np.array([0.0, 0.002, 0.0]), abs=1e-15)
    dense = np.linspace(times[0], times[-1], 300)
    curve = np.stack([0.0 * dense, 0.082 - 0.05 * dense, 0.01 * np.sin(9.0 * dense)], axis=1)
    # Cubic interpolation of a sine: 9^4 × 0.01 m × gap^4 / 100, with gaps up to 0.12 s.
    assert motion.poses(dense) == pytest.approx(curve, abs=2e-4)
    if with_velocities:
        step = 1e-7
        around = motion.poses(np.concatenate([times[5:6] - step, times[5:6] + step]))
        assert (around[1] - around[0]) / (2.0 * step) == pytest.approx(slope[5], abs=1e-6)


def test_recorded_motion_rests_outside_its_samples():
    motion = RecordedMotion(np.array([0.1, 0.2, 0.3]), np.array([[0.08, 0.0], [0.07, 0.01], [0.05, 0.0]]))
    poses = motion.poses(np.array([0.0, 0.1, 0.3, 0.5]))
    assert (poses[0] == poses[1]).all()
    assert (poses[2] == poses[3]).all()


MOTIONS = {
    "constant": ConstantVelocity(),
    "recorded": RecordedMotion(
        np.linspace(0.0, 0.9, 10), np.random.default_rng(1).uniform(0.0, 0.1, (10, 2))
    ),
    "slicing": SlicingMotion(amplitude=[0.05, 0.02, 0.03, 0.04, 0.06], initial_z=0.001),
    "rocking": RockingMotion(
        amplitude=[0.05, 0.02, 0.03, 0.04, 0.06],
        pivot=(0.004, 0.07),
        initial_pitch=-0.3,
        pitch_rate=[0.1, 0.3, 0.2, 0.15, 0.2],
    ),
}


@pytest.mark.parametrize("name", MOTIONS)
def test_pullback_agrees_with_central_differences(name):
    motion = MOTIONS[name]
    times = TIMES[::3]
    bar = np.random.default_rng(2).normal(size=motion.poses(times).shape)
    gradient = motion.pullback(times, bar)
    assert set(gradient) == set(motion.parameters)
    for key, value in motion.parameters.items():
        for i in np.ndindex(value.shape):
            step = 1e-4 * max(abs(float(value[i])), 0.01)
            moved = []
            for sign in (1.0, -1.0):
                changed = value.copy()
                changed[i] += sign * step
                moved.append((motion.with_parameters(**{key: changed}).poses(times) * bar).sum())
            # Second-order truncation at relative steps of 1e-4.
            assert gradient[key][i] == pytest.approx((moved[0] - moved[1]) / (2.0 * step), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", MOTIONS)
def test_same_bits_with_and_without_derivatives(name):
    motion = MOTIONS[name]
    tensors = {k: torch.tensor(v, requires_grad=True) for k, v in motion.parameters.items()}
    assert (motion.trajectory(torch.as_tensor(TIMES), tensors).detach().numpy() == motion.poses(TIMES)).all()


def test_with_parameters_leaves_the_original_alone():
    motion = ConstantVelocity()
    other = motion.with_parameters(initial_y=0.2)
    assert motion.parameters["initial_y"] == 0.08
    assert other.parameters["initial_y"] == 0.2
    with pytest.raises(InputError, match="not a parameter of ConstantVelocity"):
        motion.with_parameters(amplitude=1.0)


@pytest.mark.parametrize(
    ("times", "positions"),
    [
        ([0.0], [[0.0, 0.0]]),
        ([0.0, 0.0], [[0.0, 0.0], [0.0, 0.0]]),
        ([0.0, 1.0], [[0.0, np.nan], [0.0, 0.0]]),
        ([0.0, 1.0], [[0.0], [0.0]]),
        ([0.0, 1.0], [[0.0, 0.0]]),
    ],
)
def test_useless_recordings_are_refused(times, positions):
    with pytest.raises(InputError, match="recorded motion"):
        RecordedMotion(np.array(times), np.array(positions))


def test_slicing_shorter_than_its_windows_is_refused():
    with pytest.raises(InputError, match="two windows"):
        SlicingMotion(duration=0.2)


def test_slicing_accelerations_are_the_derivative_of_its_velocities():
    motion = SlicingMotion(
        amplitude=np.array([0.05, 0.2, 0.08]), frequency=np.array([20.0, 3.0, 25.0]), keyframes=3
    )
    parameters = {name: torch.as_tensor(value) for name, value in motion.parameters.items()}
    times = torch.tensor(TIMES, requires_grad=True)
    velocity = motion.velocities(times, parameters)
    exact = [torch.autograd.grad(velocity[:, k].sum(), times, retain_graph=True)[0] for k in (0, 1)]
    # Both are analytic; rounding of about 1e-15 times the largest acceleration of some 20 m/s2 remains.
    assert torch.allclose(
        motion.accelerations(times, parameters), torch.stack(exact, dim=1), rtol=0.0, atol=1e-12
    )
