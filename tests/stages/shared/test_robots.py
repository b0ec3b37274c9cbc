"""The robots: a data file each, which says all that export, checklist and run script need; others are refused."""

import json

import numpy as np
import pytest

from disect_sim.errors import InputError
from stages.export.checklist import air_cut
from stages.shared.robots import robot as module
from stages.shared.robots.names import FOLDER, ROBOTS
from stages.shared.robots.robot import load_robot


@pytest.mark.parametrize("name", ROBOTS)
def test_every_file_is_a_whole_robot(name):
    robot = load_robot(name)
    assert robot.name == name
    assert len(robot.joint_names) == 7 and len(set(robot.joint_names)) == 7
    assert (robot.position_low_rad < robot.ready_pose_rad).all()
    assert (robot.ready_pose_rad < robot.position_high_rad).all()
    assert robot.link_com_m.shape == (7, 3) and robot.link_inertia_kg_m2.shape == (7, 3, 3)
    assert (np.linalg.eigvalsh(robot.link_inertia_kg_m2) > 0.0).all()
    assert set(robot.origin) >= {"limits", "links", "ready_pose", "control"}
    low, high = robot.control.server_versions
    assert high is None or low <= high
    assert robot.control.run_script or robot.control.clients, "nothing can move it"


def test_how_the_air_cut_is_run_follows_from_the_file():
    assert air_cut(load_robot("fr3")) == "`python run_cut.py --air --execute --robot fr3 --host ADDRESS`"
    assert air_cut(load_robot("panda")) == (
        "air_cut/joint_1khz.csv with a libfranka 0.9 client (joint position motion generator) or "
        "air_cut/joint_trajectory.* with franka_ros"
    )


def test_other_robots_are_refused():
    with pytest.raises(InputError, match=r"robot is 'ur5'. It must be one of fr3, panda\..*robots/ur5\.json"):
        load_robot("ur5")


def test_a_file_that_is_not_whole_is_refused(tmp_path, monkeypatch):
    content = json.loads((FOLDER / "panda.json").read_text())
    del content["jerk_rad_s3"]
    (tmp_path / "half.json").write_text(json.dumps(content))
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(module, "ROBOTS", ("half",))
    with pytest.raises(InputError, match=r"half\.json .* has no 'jerk_rad_s3'.*Add it"):
        load_robot("half")
