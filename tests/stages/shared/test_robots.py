"""The robots: a data file each, which says all that export, checklist and run script need; others are refused."""

import json

import numpy as np
import pytest

from stages.export.cell import cell_of, flange_targets
from stages.export.inverse import choose_posture, follow
from stages.export.motion_checks import ACCELERATION_SHARE
from stages.export.package import air_cut
from stages.runtime.errors import InputError
from stages.runtime.params import merge_params
from stages.shared.robots import robot as module
from stages.shared.robots.robot import FOLDER, ROBOTS, edge_limits, load_robot
from tests.stages.synthetic_cut import ROOT

PARAMS_YAML = ROOT / "params.yaml"


@pytest.mark.parametrize("name", ROBOTS)
def test_every_file_is_a_whole_robot(name):
    robot = load_robot(name)
    assert robot.name == name
    count = len(robot.table)
    assert len(set(robot.joint_names)) == count
    assert (robot.position_low_rad < robot.ready_pose_rad).all()
    assert (robot.ready_pose_rad < robot.position_high_rad).all()
    assert robot.link_com_m.shape == (count, 3) and robot.link_inertia_kg_m2.shape == (count, 3, 3)
    assert (np.linalg.eigvalsh(robot.link_inertia_kg_m2) > 0.0).all()
    assert set(robot.origin) >= {"kinematics", "limits", "links", "ready_pose", "control", "capsules"}
    assert robot.control.run_script or robot.control.clients, "nothing can move it"


def test_how_the_air_cut_is_run_follows_from_the_file():
    assert air_cut(load_robot("fr3")) == "`python run_cut.py --air --execute --robot fr3 --host ADDRESS`"
    assert air_cut(load_robot("panda")) == "`python run_cut.py --air --execute --robot panda --host ADDRESS`"
    assert air_cut(load_robot("ur5e")) == (
        "air_cut/joint_trajectory.* with the scaled_joint_trajectory_controller of ur_robot_driver (ROS 2) or "
        "air_cut/joint_1khz.csv with a program that streams every second row with servoj at 500 Hz"
    )


def test_other_robots_are_refused():
    with pytest.raises(
        InputError, match=r"robot is 'ur5'. It must be one of fr3, panda, ur5e\..*robots/ur5\.json"
    ):
        load_robot("ur5")


def test_a_file_that_is_not_whole_is_refused(tmp_path, monkeypatch):
    content = json.loads((FOLDER / "panda.json").read_text())
    del content["jerk_rad_s3"]
    (tmp_path / "half.json").write_text(json.dumps(content))
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(module, "ROBOTS", ("half",))
    with pytest.raises(InputError, match=r"half\.json .* has no 'jerk_rad_s3'.*Add it"):
        load_robot("half")


def test_lists_of_different_lengths_and_arms_of_five_joints_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(module, "ROBOTS", ("odd",))
    content = json.loads((FOLDER / "ur5e.json").read_text())
    content["torque_nm"] = content["torque_nm"][:5]
    (tmp_path / "odd.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"odd\.json .* a_m has 6, torque_nm has 5.*Correct it"):
        load_robot("odd")
    content["kinematics"]["a_m"] = content["kinematics"]["a_m"][:5]
    (tmp_path / "odd.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=r"a_m has 5, .*6 or 7 revolute joints"):
        load_robot("odd")


def test_one_setting_chooses_the_robot_of_search_certificate_and_files():
    """The limits of the search follow from the robot's file unless they are given."""
    for name in ROBOTS:
        params = merge_params(PARAMS_YAML, {"arm": {"robot": name}}, overrides_from="test")
        assert params.export.arm.robot == name
        found = {key: getattr(params.optimize, key) for key in edge_limits(name)}
        assert found == edge_limits(name)
    own = {"arm": {"robot": "fr3"}, "optimize": {"max_acceleration_along_m_s2": 1.5}}
    params = merge_params(PARAMS_YAML, own, overrides_from="test")
    assert params.optimize.max_acceleration_along_m_s2 == 1.5
    assert params.optimize.max_speed_m_s == edge_limits("fr3")["max_speed_m_s"]
    with pytest.raises(InputError, match=r"export\.robot is given.*Write it as arm\.robot"):
        merge_params(PARAMS_YAML, {"export": {"robot": "fr3"}}, overrides_from="test")


@pytest.mark.parametrize("name", ROBOTS)
def test_limits_of_the_search_are_inside_what_the_certificate_allows_in_the_shipped_cell(name):
    """Along the blade and vertically, wherever the edge may be; 0.6 of the joints' limits are allowed."""
    export = merge_params(PARAMS_YAML, {"arm": {"robot": name}}, overrides_from="test").export
    robot, cell, limits = load_robot(name), cell_of(export), edge_limits(name)
    places = np.array([[0.0, y, z] for y in (0.0, 0.06, 0.12) for z in (-0.06, 0.0, 0.06)])
    posture = choose_posture(robot, flange_targets(cell, places.mean(axis=0)[None])[0])
    along, vertical = limits["max_acceleration_along_m_s2"], limits["max_acceleration_vertical_m_s2"]
    for push in (np.array([0.0, 0.0, along]), np.array([0.0, vertical, 0.0])):
        moved = np.tile(cell.o_t_c[:3, :3] @ push, (len(places), 1))
        need = follow(posture, flange_targets(cell, places), np.zeros_like(places), moved).acceleration
        assert (np.abs(need) <= ACCELERATION_SHARE * robot.acceleration_rad_s2).all()
