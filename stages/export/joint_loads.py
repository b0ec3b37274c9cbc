"""Torques at the waypoints of a finished export, for people who look at it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import Cell
from stages.export.dynamics import joint_torques
from stages.export.inverse import JointMotion
from stages.shared.robots.robot import load_robot


def waypoint_torques(document: dict[str, Any]) -> list[list[float]]:
    """Torques of the motors [Nm] with the predicted force, one per joint and waypoint of the document cut.json."""

    def column(name: str) -> NDArray[np.float64]:
        return np.array([row[name] for row in document["waypoints"]], float)

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
    torques = joint_torques(load_robot(document["robot"]["name"]), cell, motion, column("force_n"))
    plain: list[list[float]] = torques.tolist()
    return plain
