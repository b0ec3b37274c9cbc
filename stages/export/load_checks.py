"""Check 5: torques with the predicted cutting force, how far the edge gives way, and what to expect."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.export.checks import Check, at_most
from stages.export.demand import Demand
from stages.export.dynamics import deflection, joint_torques
from stages.export.export_files import ExportFiles
from stages.export.inverse import JointMotion
from stages.export.motion_checks import cut_phase
from stages.export.segments import PERIOD_S
from stages.shared.library.library import AMPLITUDE_SPREAD, NINETY

TORQUE_SHARE = 0.7
UPPER_BAND = float(np.exp(NINETY * AMPLITUDE_SPREAD))
"""Force that 95 of 100 cuts stay below, over the predicted one: the amplitude of the next cut is not known."""
WEAKER = (
    "Use another knife (cut.knife), move the board nearer (export.board_position_m), or take a stronger arm"
)
STIFFER = "Raise export.joint_stiffness_nm_rad, use another knife, or state in export.max_deflection_m what you accept"
SOFT_NM_RAD = 3000.0
"""libfranka's usual joint stiffness, for comparison."""


def loads(files: ExportFiles, demand: Demand) -> list[Check]:
    """All of check 5."""
    robot, cell, params = demand.robot, demand.cell, demand.params
    pushed = UPPER_BAND * force_on_knife(files, demand)
    used, in_air = (
        np.abs(joint_torques(robot, cell, _central(q), force)).max(axis=0) / robot.torque_nm
        for q, force in (
            (files.cut.joints, pushed),
            (files.air.joints, np.zeros((len(files.air.joints), 3))),
        )
    )
    bent = (
        UPPER_BAND * np.linalg.norm(_deflection(files, demand, params.joint_stiffness_nm_rad), axis=1).max()
    )
    return [
        at_most(
            5,
            "torque with the cutting force",
            used.max(),
            TORQUE_SHARE,
            "of the limit",
            f"joint {used.argmax() + 1}; {UPPER_BAND:.2f} of the predicted force, as 95 of 100 cuts stay below; rigid "
            "links and tool, no friction, no rotor inertia",
            remedy=WEAKER,
        ),
        at_most(
            5,
            "air cut: torque",
            in_air.max(),
            TORQUE_SHARE,
            "of the limit",
            f"joint {in_air.argmax() + 1}",
            remedy="Correct export.tool_mass_kg and tool_com_m, or move the board nearer (export.board_position_m)",
        ),
        at_most(
            5,
            f"deflection at {params.joint_stiffness_nm_rad:g} Nm/rad",
            float(bent),
            params.max_deflection_m,
            "m",
            f"under {UPPER_BAND:.2f} of the predicted force",
            remedy=STIFFER,
        ),
    ]


def load_figures(files: ExportFiles, demand: Demand) -> dict[str, Any]:
    """What the operator has to expect."""
    force = force_on_knife(files, demand)
    soft = np.linalg.norm(_deflection(files, demand, SOFT_NM_RAD), axis=1).max()
    stiff = np.linalg.norm(_deflection(files, demand, demand.params.joint_stiffness_nm_rad), axis=1).max()
    return {
        "peak_force_n": float(np.linalg.norm(force, axis=1).max()),
        "joint_stiffness_nm_rad": demand.params.joint_stiffness_nm_rad,
        "deflection_m": float(stiff),
        "deflection_at_3000_nm_rad_m": float(soft),
        "end_lift_m": end_lift(files, demand),
    }


def end_lift(files: ExportFiles, demand: Demand) -> float:
    """How far above its path the edge is held by the predicted force at the end of the cut [m]."""
    last = cut_phase(files)[1] - 1
    return float(_deflection(files, demand, demand.params.joint_stiffness_nm_rad)[last, 2])


def force_on_knife(files: ExportFiles, demand: Demand) -> NDArray[np.float64]:
    """Force on the knife in the base frame [N], shape [n, 3], at every sample of the file."""
    force = np.zeros((len(files.cut.rows), 3))
    start, end = cut_phase(files)
    force[start:end] = demand.cut.force[: end - start] @ demand.cell.o_t_c[:3, :3].T
    return force


def _deflection(files: ExportFiles, demand: Demand, stiffness: float) -> NDArray[np.float64]:
    return deflection(demand.robot, demand.cell, files.cut.joints, force_on_knife(files, demand), stiffness)


def _central(q: NDArray[np.float64]) -> JointMotion:
    """Derivatives of the file by central differences; it rests at both ends."""
    dq, ddq = np.zeros_like(q), np.zeros_like(q)
    dq[1:-1] = (q[2:] - q[:-2]) / (2.0 * PERIOD_S)
    ddq[1:-1] = (q[2:] - 2.0 * q[1:-1] + q[:-2]) / PERIOD_S**2
    return JointMotion(q, dq, ddq)
