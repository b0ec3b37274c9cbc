"""Joint torques from rigid-body dynamics and cutting force, and the deflection of the edge."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import Cell
from stages.export.inverse import JointMotion
from stages.shared.robots.robot import Robot, flange_pose, jacobian, joint_poses, load_robot

GRAVITY_M_S2 = 9.80665


def joint_torques(
    robot: Robot,
    cell: Cell,
    motion: JointMotion,
    force: NDArray[np.float64],
    couple: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return motor torques [Nm], shape [n, joint_count], without friction and rotor inertia.

    Links and tool (a point mass) accelerate in gravity; force is that of the fruit on the edge, in the base
    frame [N], shape [n, 3], and couple its moment about the edge's centre [Nm], shape [n, 3].
    """
    q, dq, ddq = motion.position, motion.velocity, motion.acceleration
    poses = joint_poses(robot.table, q)
    axes, origins = poses[:, :, :3, 2], poses[:, :, :3, 3]
    torque = -edge_torques(robot, cell, q, force, couple)
    turn, push = np.zeros((len(q), 3)), np.zeros((len(q), 3))
    lift = np.broadcast_to([0.0, 0.0, GRAVITY_M_S2], (len(q), 3))
    previous = np.zeros((len(q), 3))
    last = len(robot.table) - 1
    for i in range(last + 1):
        arm = origins[:, i] - previous
        lift = lift + _carried(turn, push, arm)
        spin = axes[:, i] * dq[:, i, None]
        push = push + axes[:, i] * ddq[:, i, None] + np.cross(turn, spin)
        turn = turn + spin
        previous = origins[:, i]
        rotation = poses[:, i, :3, :3]
        inertia = rotation @ robot.link_inertia_kg_m2[i] @ rotation.transpose(0, 2, 1)
        momentum = np.einsum("nij,nj->ni", inertia, turn)
        moment = np.einsum("nij,nj->ni", inertia, push) + np.cross(turn, momentum)
        centre = origins[:, i] + rotation @ robot.link_com_m[i]
        loads = [(centre, robot.link_mass_kg[i], moment)]
        if i == last:
            flange = flange_pose(robot.table, q)
            hung = flange[:, :3, 3] + flange[:, :3, :3] @ cell.tool_com_m
            loads.append((hung, cell.tool_mass_kg, np.zeros_like(moment)))
        for point, mass, spun in loads:
            pull = mass * (lift + _carried(turn, push, point - origins[:, i]))
            for j in range(i + 1):
                lever = np.cross(point - origins[:, j], pull) + spun
                torque[:, j] += np.einsum("ni,ni->n", axes[:, j], lever)
    return torque


def edge_torques(
    robot: Robot,
    cell: Cell,
    q: NDArray[np.float64],
    force: NDArray[np.float64],
    couple: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return joint torques [Nm], shape [n, joint_count], of a base-frame force on the edge [N], shape [n, 3].

    couple: moment of that force about the edge's centre [Nm], shape [n, 3].
    """
    rates = jacobian(robot.table, q, cell.f_t_e)
    torque = np.einsum("nij,ni->nj", rates[:, :3], force)
    return torque if couple is None else torque + np.einsum("nij,ni->nj", rates[:, 3:], couple)


def deflection(
    robot: Robot,
    cell: Cell,
    q: NDArray[np.float64],
    force: NDArray[np.float64],
    stiffness_nm_rad: float,
    *,
    couple: NDArray[np.float64] | None = None,
    along_m: float = 0.0,
) -> NDArray[np.float64]:
    """Return the deflection of the edge [m], shape [n, 3], with the same stiffness in every joint.

    along_m: place along the blade, from the edge's centre.
    """
    bent = edge_torques(robot, cell, q, force, couple) / stiffness_nm_rad
    place = cell.f_t_e.copy()
    place[:3, 3] += along_m * place[:3, 2]
    return np.einsum("nij,nj->ni", jacobian(robot.table, q, place)[:, :3], bent)


def _carried(
    turn: NDArray[np.float64], push: NDArray[np.float64], arm: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the acceleration of a point relative to another of the same body, an arm [m] away."""
    return np.cross(push, arm) + np.cross(turn, np.cross(turn, arm))


# Torques at the waypoints of a finished export, for display


def waypoint_torques(document: dict[str, Any]) -> list[list[float]]:
    """Return motor torques [Nm] with the predicted force, one per joint and waypoint of the document cut.json."""

    def column(name: str) -> NDArray[np.float64]:
        return np.array([row[name] for row in document["waypoints"]], float)

    turns = bool(document["waypoints"]) and "torque_nm" in document["waypoints"][0]

    frames, tool = document["frames"], document["tool"]
    cell = Cell(
        o_t_c=np.array(frames["O_T_C"]),
        f_t_e=np.array(frames["F_T_E"]),
        knife=tool["knife"],
        blade_length_m=tool["blade_length_m"],
        blade_height_m=tool["blade_height_m"],
        fixture_low_m=np.array(tool["fixture_low_m"]),
        fixture_high_m=np.array(tool["fixture_high_m"]),
        tool_mass_kg=tool["mass_kg"],
        tool_com_m=np.array(tool["com_in_flange_m"]),
    )
    motion = JointMotion(column("q_rad"), column("dq_rad_s"), column("ddq_rad_s2"))
    couple = column("torque_nm") if turns else None
    torques = joint_torques(load_robot(document["robot"]["name"]), cell, motion, column("force_n"), couple)
    plain: list[list[float]] = torques.tolist()
    return plain
