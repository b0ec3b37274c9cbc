"""Collision thresholds: above what the prediction reads on the arm, below what a collision would read."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import Cell
from stages.export.checks import Check, at_least, at_most
from stages.export.demand import Demand
from stages.export.dynamics import edge_torques
from stages.export.export_files import ExportFiles
from stages.export.load_checks import force_on_knife
from stages.shared.kinematics import flange_pose, jacobian
from stages.shared.robots.robot import Robot

FACTOR = 1.3
"""Thresholds above the predicted load: cuts vary."""
READS_HIGH = 1.08
"""The arm reads known masses 6 to 8 % too high."""
BIAS_N = 10.0
"""What the arm may read with nothing touching: 3 to 5.6 N at rest, up to 3.7 N the other way when moving in air."""
FLOOR_NM = 3.0
"""Added to every torque and moment: friction and the error of the arm's own model."""
COLLISION_N = 120.0
"""A push of this size on the edge, along any axis and at any moment, must stop the arm."""
STOP_N = 5.0
"""Added to the force at which the run script stops."""
EXACT = 1e-6
STRIDE = 20


@dataclass(frozen=True)
class Thresholds:
    """For the robot's collision behaviour and for the run script."""

    torque_nm: list[float]
    """One per joint."""
    force_n: list[float]
    """Force [N] along x, y, z, then moment about the flange [Nm]; they hold in the base's and the edge's axes."""
    stop_force_n: float
    """Norm of the measured force at which the run script stops."""


def thresholds(
    robot: Robot, cell: Cell, joints: NDArray[np.float64], force: NDArray[np.float64]
) -> Thresholds:
    """For joints [rad], shape [n, joint_count], and the predicted force on the edge, base frame [N], shape [n, 3]."""
    read, bias = _read(robot, cell, joints, force)
    count = joints.shape[1]
    wanted = FACTOR * read + bias + np.array([FLOOR_NM] * count + [0.0] * 3 + [FLOOR_NM] * 3)
    peak = float(np.linalg.norm(force, axis=1).max())
    return Thresholds(wanted[:count].tolist(), wanted[count:].tolist(), FACTOR * peak + BIAS_N + STOP_N)


def plain(cut: Thresholds, air: Thresholds) -> dict[str, Any]:
    """For cut.json."""
    return {"cut": asdict(cut), "air_cut": asdict(air)}


def collisions(files: ExportFiles, demand: Demand) -> list[Check]:
    """The thresholds of the file let the predicted motion pass and stop a collision; cut and air cut."""
    found = []
    pushed = force_on_knife(files, demand)
    for key, variant, force in (
        ("cut", files.cut, pushed),
        ("air_cut", files.air, np.zeros((len(files.air.joints), 3))),
    ):
        stated = files.document["collision"][key]
        limits = np.array([*stated["torque_nm"], *stated["force_n"]], float)
        read, bias = _read(demand.robot, demand.cell, variant.joints, force)
        peak = float(np.linalg.norm(force, axis=1).max())
        room = min(
            float((limits - READS_HIGH * read - bias).min()),
            float(stated["stop_force_n"]) - READS_HIGH * peak - BIAS_N,
        )
        wanted = thresholds(demand.robot, demand.cell, variant.joints, force)
        needed = np.array([*wanted.torque_nm, *wanted.force_n, wanted.stop_force_n])
        excess = float((np.array([*limits, float(stated["stop_force_n"])]) - needed).max())
        push = max(
            stopping_push(demand.robot, demand.cell, variant.joints, limits), float(stated["stop_force_n"])
        )
        found += [
            at_least(
                5,
                f"{variant.name}: collision thresholds above what the prediction reads",
                room,
                0.0,
                "N or Nm",
                remedy="The arm would stop by itself; export again",
            ),
            at_most(
                5,
                f"{variant.name}: collision thresholds beyond what the motion needs",
                excess,
                EXACT,
                "N or Nm",
                remedy="A collision would be felt too late; export again",
            ),
            at_most(
                5,
                f"{variant.name}: push on the edge that stops the arm",
                push,
                COLLISION_N,
                "N",
                remedy="The predicted force is too high to tell a collision from it; use another knife",
            ),
        ]
    return found


def stopping_push(
    robot: Robot, cell: Cell, joints: NDArray[np.float64], limits: NDArray[np.float64]
) -> float:
    """The push [N] on the edge that surely exceeds a threshold, wherever on the way and along whichever base axis."""
    linear = np.abs(jacobian(robot.table, joints[::STRIDE], cell.f_t_e)[:, :3])
    count = joints.shape[1]
    by_torque = (limits[:count] / np.maximum(linear, 1e-12)).min(axis=2)
    return float(np.minimum(by_torque, limits[count : count + 3]).max())


def _read(
    robot: Robot, cell: Cell, joints: NDArray[np.float64], force: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Largest predicted reading of all channels (joints, force, moment), and what BIAS_N on the edge adds to each."""
    turn = cell.o_t_c[:3, :3]
    arm = (flange_pose(robot.table, joints[:1])[0, :3, :3] @ cell.f_t_e[:3, 3])[None]
    moment = np.cross(arm, force)
    torque = np.abs(edge_torques(robot, cell, joints, force)).max(axis=0)
    lever = np.linalg.norm(jacobian(robot.table, joints[::STRIDE], cell.f_t_e)[:, :3], axis=1).max(axis=0)
    sizes = [np.maximum(np.abs(v), np.abs(v @ turn)).max(axis=0) for v in (force, moment)]
    reach = float(np.linalg.norm(arm))
    return (
        np.concatenate([torque, *sizes]),
        BIAS_N * np.concatenate([lever, np.ones(3), np.full(3, reach)]),
    )
