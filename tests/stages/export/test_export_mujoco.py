"""The torque-controlled arm in MuJoCo, where the extra `verify` is installed."""

import sys

import numpy as np
import pytest

from stages.export.cell import cell_of
from stages.export.dynamics import deflection, joint_torques
from stages.export.inverse import JointMotion
from stages.export.load_checks import UPPER_BAND
from stages.export.mujoco_check import _run_in_mujoco, arm_xml
from stages.runtime.errors import InputError
from stages.shared.robots.robot import flange_pose, load_robot
from tests.stages.synthetic_cut import PARAMS, exported_cut, motion_table

CELL = cell_of(PARAMS)
WITH_MUJOCO = PARAMS.model_copy(update={"mujoco": True})


def test_without_mujoco_the_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(InputError, match=r"pip install 'scan2cut\[verify\]'"):
        exported_cut(tmp_path / "cut", motion_table(), WITH_MUJOCO)


# One identified inertia of the Panda belongs to no real body, and MuJoCo rounds it off: 0.02 Nm of 87.
@pytest.mark.parametrize(("name", "tolerance"), [("panda", 0.05), ("fr3", 1e-7), ("ur5e", 1e-7)])
def test_kinematics_and_inverse_dynamics_agree_with_mujoco(name, tolerance):
    mujoco = pytest.importorskip("mujoco", reason="needs the extra verify")
    robot = load_robot(name)
    model = mujoco.MjModel.from_xml_string(arm_xml(robot, CELL))
    data = mujoco.MjData(model)
    rng = np.random.default_rng(0)
    for _ in range(5):
        q, dq, ddq = (rng.normal(size=len(robot.table)) * size for size in (0.5, 1.0, 3.0))
        q += robot.ready_pose_rad
        data.qpos[:], data.qvel[:], data.qacc[:] = q, dq, ddq
        mujoco.mj_inverse(model, data)
        ours = joint_torques(robot, CELL, JointMotion(q[None], dq[None], ddq[None]), np.zeros((1, 3)))[0]
        assert ours == pytest.approx(data.qfrc_inverse, abs=tolerance)
        edge = (flange_pose(robot.table, q[None])[0] @ CELL.f_t_e)[:3, 3]
        assert data.site("edge").xpos == pytest.approx(edge, abs=1e-14)


def test_arm_held_against_a_force_gives_way_as_predicted():
    pytest.importorskip("mujoco", reason="needs the extra verify")
    robot = load_robot("panda")
    joints = np.tile(robot.ready_pose_rad, (400, 1))
    force = np.tile([0.0, 10.0, 60.0], (400, 1))
    played = _run_in_mujoco(robot, CELL, joints, force, np.zeros_like(force), stiffness_nm_rad=3000.0)
    bent = played.edge[-1] - played.edge[0]
    # The prediction is linear in the force; 1 cm on an arm of half a metre leaves about 2 %.
    assert bent == pytest.approx(deflection(robot, CELL, joints[:1], force[:1], 3000.0)[0], abs=3e-4)
    still = JointMotion(joints[:1], np.zeros((1, 7)), np.zeros((1, 7)))
    assert played.torque[-1] == pytest.approx(joint_torques(robot, CELL, still, force[:1])[0], abs=1.0)


def test_certified_with_mujoco(tmp_path):
    pytest.importorskip("mujoco", reason="needs the extra verify")
    exported = exported_cut(tmp_path / "cut", motion_table(), WITH_MUJOCO)
    assert exported.certificate.certified and "Not run" not in exported.certificate.verdict
    found = {check.name: check for check in exported.certificate.checks if check.number == 8}
    assert all(check.remedy for check in found.values())
    predicted = UPPER_BAND * exported.certificate.figures["deflection_m"]
    # The arm lags and swings a little beyond the static deflection.
    assert predicted < found["MuJoCo: edge off its path"].value < 1.5 * predicted
