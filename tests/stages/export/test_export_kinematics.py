"""Kinematics, inverse kinematics and dynamics of the arm against second derivations."""

import numpy as np
import pytest

from stages.export.cell import cell_of, flange_targets
from stages.export.dynamics import GRAVITY_M_S2, deflection, edge_torques, joint_torques
from stages.export.inverse import (
    JointMotion,
    choose_posture,
    follow,
    smallest_singular_value,
    solve,
)
from stages.shared.robots.robot import ROBOTS, flange_pose, jacobian, jacobian_rate, joint_poses, load_robot
from tests.stages.franka_reference import flange
from tests.stages.franka_reference import smallest_singular_value as second_sigma
from tests.stages.synthetic_cut import PARAMS

PANDA = load_robot("panda")
CELL = cell_of(PARAMS)
RANDOM = np.random.default_rng(5).uniform(PANDA.position_low_rad, PANDA.position_high_rad, (50, 7))


def test_forward_kinematics_equals_a_second_derivation():
    # Two chains of seven rotations in double precision: a few roundings of a metre.
    assert flange_pose(PANDA.table, RANDOM) == pytest.approx(flange(RANDOM), abs=5e-15)


def test_smallest_singular_value_equals_a_second_derivation():
    # Central differences with a step of 1e-6: rounding of 1e-16 / 1e-6.
    assert smallest_singular_value(PANDA.table, RANDOM) == pytest.approx(second_sigma(RANDOM), abs=1e-8)


def test_forward_kinematics_at_poses_known_by_hand():
    zero, ready = flange_pose(PANDA.table, np.stack([np.zeros(7), PANDA.ready_pose_rad]))
    assert zero[:3, 3] == pytest.approx([0.088, 0.0, 0.333 + 0.316 + 0.384 - 0.107], abs=1e-15)
    # Franka's documents give the hand's centre, 103.4 mm below the flange, as (0.3069, 0, 0.4869) at the ready pose.
    assert ready[:3, 3] + [0.0, 0.0, -0.1034] == pytest.approx([0.3069, 0.0, 0.4869], abs=1e-4)
    assert ready[:3, 2] == pytest.approx([0.0, 0.0, -1.0], abs=1e-15)


def test_jacobian_and_its_rate_are_derivatives():
    tool, step = CELL.f_t_e, 1e-6
    rates = np.random.default_rng(6).normal(size=(50, 7))
    ahead, behind = (flange_pose(PANDA.table, RANDOM + s * step * rates) @ tool for s in (1.0, -1.0))
    speed = (ahead - behind)[:, :3, 3] / (2.0 * step)
    # Central differences: step squared and rounding / step, both about 1e-10.
    assert np.einsum("nij,nj->ni", jacobian(PANDA.table, RANDOM, tool)[:, :3], rates) == pytest.approx(
        speed, abs=1e-8
    )
    change = (
        jacobian(PANDA.table, RANDOM + step * rates, tool)
        - jacobian(PANDA.table, RANDOM - step * rates, tool)
    ) / (2.0 * step)
    assert jacobian_rate(PANDA.table, RANDOM, rates, tool) == pytest.approx(change, abs=1e-7)


@pytest.mark.parametrize("robot", ROBOTS)
def test_inverse_kinematics_is_exact_smooth_and_comes_back(robot):
    arm = load_robot(robot)
    angle = np.linspace(0.0, 2.0 * np.pi, 201)
    edge = np.stack([0.0 * angle, 0.05 + 0.04 * np.cos(angle), 0.05 * np.sin(angle)], axis=1)
    targets = flange_targets(CELL, edge)
    posture = choose_posture(arm, flange_targets(CELL, np.array([[0.0, 0.05, 0.0]]))[0])
    q = solve(posture, targets)
    assert flange_pose(arm.table, q) == pytest.approx(targets, abs=1e-14)
    # A closed path of the edge is a closed path of the joints.
    assert q[-1] == pytest.approx(q[0], abs=1e-13)
    turn = CELL.o_t_c[:3, :3]
    velocity = np.stack([0.0 * angle, -0.04 * np.sin(angle), 0.05 * np.cos(angle)], axis=1) @ turn.T
    push = np.stack([0.0 * angle, -0.04 * np.cos(angle), -0.05 * np.sin(angle)], axis=1) @ turn.T
    motion = follow(posture, targets, velocity, push)
    h = angle[1]
    # Central differences over h = 0.03: errors of h²/6 and h²/12 times derivatives below 1.
    assert motion.velocity[1:-1] == pytest.approx((q[2:] - q[:-2]) / (2.0 * h), abs=2e-4)
    assert motion.acceleration[1:-1] == pytest.approx((q[2:] - 2.0 * q[1:-1] + q[:-2]) / h**2, abs=2e-4)


def test_envelope_is_the_one_measured_for_the_brief():
    """Blade along base y, board at 0.575 m: about 10 m/s² along the blade on a Panda, 5.2 on an FR3."""
    target = flange_targets(CELL, np.array([[0.0, 0.06, 0.0]]))[0]
    for robot, expected in (("panda", 10.0), ("fr3", 5.2)):
        arm = load_robot(robot)
        joints = choose_posture(arm, target).joints
        # The largest fraction of a joint's acceleration limit per 1 m/s² of the flange along the blade.
        scaled = jacobian(arm.table, joints[None])[0] * arm.acceleration_rad_s2
        along = np.concatenate([CELL.o_t_c[:3, 2], np.zeros(3)])
        effort = np.abs(np.linalg.lstsq(scaled, along, rcond=None)[0]).max()
        assert 1.0 / effort == pytest.approx(expected, rel=0.1)


def test_torques_are_the_derivative_of_energy():
    """Power of the motors = rate of kinetic and potential energy, minus the power of the force on the edge."""
    rng = np.random.default_rng(7)
    q0, a, b = (rng.normal(size=7) * 0.3 for _ in range(3))
    step = 1e-5
    time = np.array([-step, 0.0, step]) + 0.4
    q = q0 + np.outer(time, a) + np.outer(time**2, b)
    dq, ddq = a + 2.0 * np.outer(time, b), np.tile(2.0 * b, (3, 1))
    force = np.tile(rng.normal(size=3) * 20.0, (3, 1))
    torque = joint_torques(PANDA, CELL, JointMotion(q, dq, ddq), force)[1]
    edge = (flange_pose(PANDA.table, q) @ CELL.f_t_e)[:, :3, 3]
    work_rate = (energy(q, dq)[2] - energy(q, dq)[0]) / (2.0 * step)
    force_rate = force[0] @ (edge[2] - edge[0]) / (2.0 * step)
    # Energies of about 50 J, known to 1e-10 (numerical velocities), differenced over 2e-5 s.
    assert torque @ dq[1] == pytest.approx(work_rate - force_rate, abs=1e-5)


def energy(q: np.ndarray, dq: np.ndarray) -> np.ndarray:
    """Kinetic and potential energy [J], shape [n], link by link from numerical velocities of their centres."""
    total = np.zeros(len(q))
    step = 1e-6
    ahead, behind, here = (joint_poses(PANDA.table, q + s * step * dq) for s in (1.0, -1.0, 0.0))
    for i in range(7):
        centres = [p[:, i, :3, :3] @ PANDA.link_com_m[i] + p[:, i, :3, 3] for p in (ahead, behind, here)]
        speed = (centres[0] - centres[1]) / (2.0 * step)
        spin = (
            (ahead[:, i, :3, :3] - behind[:, i, :3, :3])
            @ here[:, i, :3, :3].transpose(0, 2, 1)
            / (2.0 * step)
        )
        omega = np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1)
        local = np.einsum("nji,nj->ni", here[:, i, :3, :3], omega)
        mass = PANDA.link_mass_kg[i]
        total += 0.5 * mass * (speed**2).sum(axis=1) + mass * GRAVITY_M_S2 * centres[2][:, 2]
        total += 0.5 * np.einsum("ni,ij,nj->n", local, PANDA.link_inertia_kg_m2[i], local)
    hung = [
        (flange_pose(PANDA.table, q + s * step * dq) @ np.append(CELL.tool_com_m, 1.0))[:, :3]
        for s in (1.0, -1.0, 0.0)
    ]
    speed = (hung[0] - hung[1]) / (2.0 * step)
    return total + CELL.tool_mass_kg * (0.5 * (speed**2).sum(axis=1) + GRAVITY_M_S2 * hung[2][:, 2])


def test_gravity_at_rest_is_the_slope_of_potential_energy():
    q = RANDOM[:1]
    still = np.zeros((1, 7))
    torque = joint_torques(PANDA, CELL, JointMotion(q, still, still), np.zeros((1, 3)))[0]
    step = 1e-5
    slope = [(energy(q + d, still)[0] - energy(q - d, still)[0]) / (2.0 * step) for d in step * np.eye(7)]
    # 100 J rounded to 1e-14 over 2e-5 s.
    assert torque == pytest.approx(slope, abs=1e-8)


def test_edge_gives_way_as_measured():
    """60 N upwards move the edge about 2 mm at 14250 Nm/rad and 9 to 10 mm at 3000."""
    target = flange_targets(CELL, np.array([[0.0, 0.03, 0.0]]))[0]
    q = choose_posture(PANDA, target).joints[None]
    up = np.array([[0.0, 0.0, 60.0]])
    stiff, soft = (np.linalg.norm(deflection(PANDA, CELL, q, up, k)) for k in (14250.0, 3000.0))
    assert soft / stiff == pytest.approx(14250.0 / 3000.0)
    # The brief's figures are for a shorter tool at x = 0.50 m; ours hangs 12 cm aside.
    assert 0.0015 < stiff < 0.0035
    # The work of the force equals the energy in the joints' springs, twice over.
    bent = edge_torques(PANDA, CELL, q, up)[0] ** 2 / 3000.0
    assert (deflection(PANDA, CELL, q, up, 3000.0) * up).sum() == pytest.approx(bent.sum())


def test_limits_are_those_of_the_specification():
    fr3 = load_robot("fr3")
    assert PANDA.acceleration_rad_s2.tolist() == [15.0, 7.5, 10.0, 12.5, 15.0, 20.0, 20.0]
    assert PANDA.jerk_rad_s3 == pytest.approx(500.0 * PANDA.acceleration_rad_s2)
    assert (PANDA.position_low_rad[3], PANDA.position_high_rad[5]) == (-3.0718, 3.7525)
    assert fr3.velocity_rad_s.tolist() == [2.0, 1.0, 1.5, 1.25, 3.0, 1.5, 3.0]
    assert set(fr3.acceleration_rad_s2) == {10.0} and set(fr3.jerk_rad_s3) == {5000.0}
    for robot in (PANDA, fr3):
        assert robot.torque_nm.tolist() == [87.0] * 4 + [12.0] * 3
        assert (np.linalg.eigvalsh(robot.link_inertia_kg_m2) > 0.0).all()
        assert (
            (robot.position_low_rad < robot.ready_pose_rad) & (robot.ready_pose_rad < robot.position_high_rad)
        ).all()
