"""An arm that is not Franka's, from its data file alone: kinematics, one posture, a certified motion, its files."""

import json
import subprocess
import sys

import numpy as np
import pytest

from stages.export.cell import cell_of, flange_targets
from stages.export.certificate import verify
from stages.export.inverse import choose_posture, smallest_singular_value, solve
from stages.runtime.params import merge_params
from stages.shared.robots.robot import flange_pose, jacobian, load_robot
from tests.stages.synthetic_cut import ROOT, exported_cut, motion_table

UR5E = load_robot("ur5e")
PARAMS = merge_params(ROOT / "params.yaml", {"arm": {"robot": "ur5e"}}, overrides_from="test").export
CELL = cell_of(PARAMS)
MOTION = motion_table(duration=2.0, amplitude=0.02, frequency=5.0)
"""Slower than the Franka's: within edge_limits of ur5e.json."""
JOINTS = (
    "shoulder_pan_joint",
    "shoulder_lift_joint",
    "elbow_joint",
    "wrist_1_joint",
    "wrist_2_joint",
    "wrist_3_joint",
)


def standard_dh(q: np.ndarray) -> np.ndarray:
    """The flange by the maker's own table: theta about z, d along z, a along x, alpha about x; shape [4, 4]."""
    pose = np.diag([-1.0, -1.0, 1.0, 1.0])  # ROS's base_link against the maker's Base
    rows = [
        (0.0, 0.1625, np.pi / 2),
        (-0.425, 0.0, 0.0),
        (-0.3922, 0.0, 0.0),
        (0.0, 0.1333, np.pi / 2),
        (0.0, 0.0997, -np.pi / 2),
        (0.0, 0.0996, 0.0),
    ]
    for (a, d, alpha), theta in zip(rows, q, strict=True):
        c, s, ca, sa = np.cos(theta), np.sin(theta), np.cos(alpha), np.sin(alpha)
        pose = pose @ np.array(
            [[c, -s * ca, s * sa, a * c], [s, c * ca, -c * sa, a * s], [0, sa, ca, d], [0, 0, 0, 1]]
        )
    return pose


def test_forward_kinematics_is_that_of_the_makers_table():
    random = np.random.default_rng(3).uniform(-np.pi, np.pi, (20, 6))
    for q in (np.zeros(6), UR5E.ready_pose_rad, *random):
        # Two chains of six turns in double precision: a few roundings of a metre.
        assert flange_pose(UR5E.table, q[None])[0] == pytest.approx(standard_dh(q), abs=5e-15)
    stretched = flange_pose(UR5E.table, np.zeros((1, 6)))[0, :3, 3]
    assert stretched == pytest.approx([0.425 + 0.3922, 0.1333 + 0.0996, 0.1625 - 0.0997], abs=1e-15)
    assert jacobian(UR5E.table, random).shape == (20, 6, 6)


def test_posture_is_elbow_up_inside_limits_and_far_from_singular():
    target = flange_targets(CELL, np.array([[0.0, 0.05, 0.0]]))
    posture = choose_posture(UR5E, target[0])
    assert posture.conditions.shape == (0, 6)
    q = solve(posture, target)
    assert flange_pose(UR5E.table, q) == pytest.approx(target, abs=1e-14)
    assert smallest_singular_value(UR5E.table, q)[0] > 0.2
    assert q[0, 2] > 0.0, "the elbow is up"
    again = choose_posture(UR5E, target[0]).joints
    assert np.array_equal(again, posture.joints)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return exported_cut(tmp_path_factory.mktemp("export") / "cut", MOTION, PARAMS)


def test_motion_is_certified_and_the_folder_verifies_by_itself(exported):
    assert exported.certificate.certified, exported.certificate.verdict
    assert verify(exported.folder).certified


def test_files_are_for_six_joints_with_the_names_of_the_driver(exported):
    document = json.loads((exported.folder / "cut.json").read_text())
    assert tuple(document["robot"]["joint_names"]) == JOINTS
    assert document["robot"]["dh"]["theta_rad"][0] == np.pi
    head, first = (exported.folder / "joint_1khz.csv").read_text().splitlines()[:2]
    assert head == "t,q1,q2,q3,q4,q5,q6" and len(first.split(",")) == 7
    yaml_text = (exported.folder / "joint_trajectory.yaml").read_text()
    assert all(name in yaml_text for name in JOINTS)


def test_the_page_for_the_operator_names_what_can_play_the_files(exported):
    page = (exported.folder / "CHECKLIST.md").read_text()
    assert "Universal Robots UR5e (ur5e)" in page
    assert "scaled_joint_trajectory_controller of ur_robot_driver" in page
    assert "Desk" not in page


def test_the_run_script_refuses_with_what_to_use_instead(exported):
    done = subprocess.run(
        [sys.executable, exported.folder / "run_cut.py", "--execute", "--robot", "ur5e", "--host", "x"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "does not support a Universal Robots UR5e" in done.stdout and "ur_robot_driver" in done.stdout


def test_a_motion_for_a_franka_is_refused_with_a_remedy(tmp_path):
    fast = motion_table(amplitude=0.12, frequency=14.0)
    found = exported_cut(tmp_path / "cut", fast, PARAMS).certificate
    assert not found.certified
    failed = [check for check in found.failed if check.name == "cut: joint acceleration"]
    assert failed and "arm.robot" in failed[0].sentence()
