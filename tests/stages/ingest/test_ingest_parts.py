"""Parts of ingest against closed forms: kinematics, low-pass, frame, descent, alignment, onset."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.ingest.contact import find_descent, find_onset, require_onset
from stages.ingest.force_recovery import AXES, _cutting_rotation, _force_from_torque, describe, force_on_knife
from stages.ingest.log_file import RobotLog
from stages.ingest.tare import _matching_time
from stages.runtime.errors import InputError
from stages.shared.fitting import low_pass
from stages.shared.robots.robot import flange_pose, jacobian
from tests.stages.force_logs import PANDA, READY

JOINTS = st.lists(st.floats(-2.5, 2.5), min_size=7, max_size=7).map(np.array)


def test_stretched_arm_is_as_long_as_its_links():
    pose = flange_pose(PANDA, np.zeros((1, 7)))[0]
    # All joints at zero: the arm stands up, the hand hangs over by the last link's 88 mm and points down.
    assert np.allclose(pose[:3, 3], [0.088, 0.0, 0.333 + 0.316 + 0.384 - PANDA.flange_m], atol=1e-12)
    assert np.allclose(pose[:3, 2], [0.0, 0.0, -1.0], atol=1e-12)


@given(JOINTS)
@settings(max_examples=30, deadline=None)
def test_jacobian_is_the_derivative_of_the_pose(joints):
    step = 1e-6
    exact = jacobian(PANDA, joints[None])[0]
    pose = flange_pose(PANDA, joints[None])[0]
    for j in range(7):
        moved = joints.copy()
        moved[j] += step
        change = (flange_pose(PANDA, moved[None])[0] - pose) / step
        # First-order differences of lengths of about 1 m: the error is of the order of the step.
        assert np.allclose(change[:3, 3], exact[:3, j], atol=1e-5)
        spin = change[:3, :3] @ pose[:3, :3].T
        assert np.allclose([spin[2, 1], spin[0, 2], spin[1, 0]], exact[3:, j], atol=1e-5)


def test_force_comes_back_from_the_torques_it_causes():
    rng = np.random.default_rng(1)
    joints = READY + rng.uniform(-0.2, 0.2, (50, 7))
    wrench = rng.normal(0.0, 20.0, (50, 6))
    torques = np.einsum("nij,ni->nj", jacobian(PANDA, joints), wrench)
    # The Jacobian has full rank here, so that the least squares are exact up to its condition (about 20).
    assert np.allclose(_force_from_torque(joints, torques), wrench[:, :3], atol=1e-10)


def test_low_pass_halves_at_the_cutoff_without_delay():
    time = np.linspace(0.0, 4.0, 2001)
    for frequency, gain in ((1.0, 1.0), (20.0, 0.5), (100.0, 0.0)):
        wave = np.sin(2 * np.pi * frequency * time)
        smooth = low_pass(time, wave, 20.0)[500:1500]
        # 1/(1 + (f/fc)^4): 6e-6 off at 1 Hz and 0.0016 left at 100 Hz.
        assert smooth @ wave[500:1500] / (wave[500:1500] @ wave[500:1500]) == pytest.approx(gain, abs=0.003)


def test_low_pass_of_uneven_samples_keeps_lines_and_columns():
    rng = np.random.default_rng(0)
    time = np.cumsum(rng.uniform(0.002, 0.011, 400))
    lines = np.column_stack([3.0 + 2.0 * time, -time])
    # A straight line stays one, also at the ends, which are extended as odd reflections.
    assert np.allclose(low_pass(time, lines, 20.0), lines, atol=1e-6)


def test_low_pass_refuses_what_it_cannot_do():
    time = np.arange(100) * 0.01
    with pytest.raises(InputError, match="below half of that, 50 Hz"):
        low_pass(time, time, 60.0)
    with pytest.raises(InputError, match="at least 12"):
        low_pass(time[:5], time[:5], 1.0)


@pytest.mark.parametrize("up", AXES)
@pytest.mark.parametrize("blade", AXES)
def test_cutting_frame_is_right_handed(up, blade):
    if up[-1] == blade[-1]:
        with pytest.raises(InputError, match="perpendicular"):
            _cutting_rotation(up, blade)
        return
    rotation = _cutting_rotation(up, blade)
    assert np.linalg.det(rotation) == pytest.approx(1.0)
    assert np.allclose(rotation @ AXES[up], [0, 1, 0])
    assert np.allclose(rotation @ AXES[blade], [0, 0, 1])
    assert f"y = base {up}" in describe(up, blade)


def test_descent_is_the_way_to_the_lowest_point():
    height = np.concatenate([np.full(10, 0.08), np.linspace(0.08, 0.02, 61), np.linspace(0.02, 0.08, 20)])
    found = find_descent(height, "log")
    assert found.bottom == 70
    # 1 mm steps: the first sample that is deeper than 1 mm is the second after the start.
    assert 10 < found.top <= 13
    with pytest.raises(InputError, match="goes down 2 mm"):
        find_descent(np.linspace(0.08, 0.078, 50), "log")


def test_same_depth_is_the_same_moment():
    """An air run 60 mm higher, with another clock and a shorter rest, is laid over the cut."""
    time, air_time = np.linspace(0.0, 2.0, 401), np.linspace(0.0, 1.8, 361)
    depth = np.clip(time - 0.5, 0.0, 1.0) ** 2 * 0.06
    air_depth = np.clip(air_time - 0.3, 0.0, 1.0) ** 2 * 0.06
    matched = _matching_time(
        time, find_descent(0.07 - depth, "cut"), air_time, find_descent(0.13 - air_depth, "air"), "air"
    )
    # Both runs move alike, the air run 0.2 s earlier; depths lie between samples of 5 ms.
    assert np.allclose(matched, time - 0.2, atol=1e-3)


@pytest.mark.parametrize(
    ("scale", "stretch", "rule"), [(0.5, 1.0, "goes down 30 mm, the cut 60 mm"), (1.0, 2.0, "goes down in")]
)
def test_another_motion_is_no_tare(scale, stretch, rule):
    time = np.linspace(0.0, 1.0, 201)
    cut = find_descent(0.07 - 0.06 * time, "cut")
    air = find_descent(0.07 - 0.06 * scale * time, "air")
    with pytest.raises(InputError, match=rule):
        _matching_time(time, cut, stretch * time, air, "air")


def test_onset_is_the_foot_of_the_rise_and_a_knock_is_not():
    time = np.arange(400) * 0.005
    descent = find_descent(0.08 - 0.03 * time, "log")
    force = np.maximum(time - 1.2, 0.0) * 50.0
    force[150:154] = 5.0
    onset = find_onset(time, force, descent, 2.0)
    # The foot lies where the force was last below a quarter of the threshold: 0.01 s after the start of the rise.
    assert time[onset] == pytest.approx(1.205, abs=0.006)
    assert find_onset(time, np.minimum(force, 1.0), descent, 2.0) is None
    with pytest.raises(InputError, match="other sign"):
        require_onset(time, -force, descent, 2.0, "log")
    with pytest.raises(InputError, match="no contact was found"):
        require_onset(time, 0 * force, descent, 2.0, "log")


def test_a_log_of_another_arm_is_named_not_misread():
    """Six joints can't be a Panda's; the links of the arm that wrote the log are used."""
    joints, torques = np.full((3, 6), 0.3), np.ones((3, 6))
    log = RobotLog("csv", np.arange(3) * 0.01, "t", "s", joints_rad=joints, external_torque_nm=torques)
    with pytest.raises(InputError, match=r"log has 6 joints, and ingest.robot is panda, which has 7"):
        force_on_knife(log, "log", "panda")
    force, _ = force_on_knife(log, "log", "ur5e")
    assert np.allclose(force, log.force_factor * _force_from_torque(joints, torques, "ur5e"))
