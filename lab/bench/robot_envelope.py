"""What the certificate lets the edge do where the board stands: the limits that a motion should be optimised under.

    python -m lab.bench.robot_envelope [ROBOT]

Prints, for the cell of params.yaml, the largest acceleration, jerk and speed of the edge along the blade, vertical and
in between, over all places the edge may be during a cut; how far the edge may go sideways; how hard the fruit may push.
"""

import sys
from pathlib import Path

import numpy as np

from stages.export.cell import Cell, cell_of, flange_targets
from stages.export.dynamics import deflection, joint_torques
from stages.export.inverse import JointMotion, Posture, choose_posture, follow, smallest_singular_value, solve
from stages.export.load_checks import TORQUE_SHARE
from stages.export.motion_checks import (
    ACCELERATION_SHARE,
    JERK_SHARE,
    POSITION_MARGIN_RAD,
    SIGMA_MIN,
    SPEED_SHARE,
)
from stages.runtime.errors import InputError
from stages.runtime.params import load_params
from stages.shared.robots.robot import Robot, load_robot

ROOT = Path(__file__).parents[2]
HEIGHTS_M = np.linspace(0.0, 0.12, 7)
SIDEWAYS_M = np.linspace(-0.06, 0.06, 7)
ANGLES_DEG = (0, 15, 30, 45, 60, 75, 90, 105, 120, 135, 150, 165)
"""Directions in the cut plane, from the blade's to the vertical and on."""
REACH_STEP_M = 0.005


def main() -> None:
    """Print the envelope."""
    params = load_params(ROOT / "params.yaml").export
    if len(sys.argv) > 1:
        params = params.changed(robot=sys.argv[1])
    robot, cell = load_robot(params.arm.robot), cell_of(params)
    places = np.array([[0.0, y, z] for y in HEIGHTS_M for z in SIDEWAYS_M])
    posture = choose_posture(robot, flange_targets(cell, places.mean(axis=0)[None])[0])
    targets, still = flange_targets(cell, places), np.zeros_like(places)
    turn = cell.o_t_c[:3, :3]
    print(
        f"{robot.title}; edge at y {HEIGHTS_M[0]} to {HEIGHTS_M[-1]} m, z {SIDEWAYS_M[0]} to {SIDEWAYS_M[-1]} m"
    )
    print(
        "direction from the blade [deg]: acceleration [m/s²], jerk [m/s³], speed [m/s] that the joints allow"
    )
    for angle in ANGLES_DEG:
        along = np.array([0.0, np.sin(np.deg2rad(angle)), np.cos(np.deg2rad(angle))])
        push = np.tile(turn @ along, (len(places), 1))
        need = np.abs(follow(posture, targets, still, push).acceleration)
        rate = ACCELERATION_SHARE / (need / robot.acceleration_rad_s2).max()
        jerk = JERK_SHARE / (need / robot.jerk_rad_s3).max()
        speed = SPEED_SHARE / (need / robot.velocity_rad_s).max()
        joint = int((need / robot.acceleration_rad_s2).max(axis=0).argmax()) + 1
        print(f"  {angle:4d}: {rate:6.2f}  {jerk:7.0f}  {speed:5.2f}   joint {joint} first")
    for sign in (-1.0, 1.0):
        far = 0.0
        while far < 0.5 and _reaches(robot, cell, posture, sign * (far + REACH_STEP_M)):
            far += REACH_STEP_M
        print(f"reach along the blade: z = {sign * far:+.3f} m at all heights")
    q = solve(posture, targets)
    rest = JointMotion(q, np.zeros_like(q), np.zeros_like(q))
    for name, force in (("up", [0.0, 1.0, 0.0]), ("along the blade", [0.0, 0.0, 1.0])):
        pushed = np.tile(turn @ force, (len(places), 1))
        per_newton = np.linalg.norm(
            deflection(robot, cell, q, pushed, params.joint_stiffness_nm_rad), axis=1
        ).max()
        allowed = params.max_deflection_m / per_newton
        print(f"deflection by a force {name}: {1e3 * per_newton:.4f} mm/N, so at most {allowed:.0f} N")
        strong = [
            size
            for size in range(200)
            if (
                np.abs(joint_torques(robot, cell, rest, size * pushed)) <= TORQUE_SHARE * robot.torque_nm
            ).all()
        ]
        print(f"torque against a force {name}: at most {max(strong)} N")


def _reaches(robot: Robot, cell: Cell, posture: Posture, z: float) -> bool:
    try:
        q = solve(posture, flange_targets(cell, np.array([[0.0, y, z] for y in HEIGHTS_M])))
    except InputError:
        return False
    margin = np.minimum(q - robot.position_low_rad, robot.position_high_rad - q).min()
    return bool(margin >= POSITION_MARGIN_RAD and smallest_singular_value(robot.table, q).min() >= SIGMA_MIN)


if __name__ == "__main__":
    main()
