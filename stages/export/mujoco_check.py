"""Check 8: the joint file on a torque-controlled arm in MuJoCo, against the predicted force (extra `verify`).

MuJoCo has its own kinematics, dynamics and integrator; it shares only the robot's data file and the Denavit–Hartenberg
table with the rest. Every joint is driven towards the file by its stiffness and by damping, on top of compensated
gravity, and saturates at its torque limit.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import Cell
from stages.export.checks import Check, at_least, at_most
from stages.export.demand import Demand
from stages.export.dynamics import GRAVITY_M_S2
from stages.export.export_files import ExportFiles
from stages.export.load_checks import STIFFER, TORQUE_SHARE, UPPER_BAND, WEAKER, load_on_knife
from stages.export.motion_checks import edge_poses, lowest_heights
from stages.export.waypoints import PERIOD_S
from stages.runtime.errors import InputError
from stages.shared.robots.robot import Robot

_SUBSTEPS = 10
"""Integration steps per cycle: the stiffest joint oscillates with about 0.5 rad/ms."""
_DAMPING_RATIO = 1.0


@dataclass(frozen=True)
class _TorqueRun:
    """Motion of the simulated arm, one row per cycle."""

    edge: NDArray[np.float64]
    """Positions of the edge in the base frame [m], shape [n, 3]."""
    torque: NDArray[np.float64]
    """Torques of the motors [Nm], shape [n, joint_count]."""


def mujoco_checks(files: ExportFiles, demand: Demand) -> list[Check]:
    """Run check 8."""
    played = _run_in_mujoco(
        demand.robot,
        demand.cell,
        files.cut.joints,
        *(UPPER_BAND * load for load in load_on_knife(files, demand)),
        stiffness_nm_rad=demand.params.joint_stiffness_nm_rad,
    )
    target = edge_poses(files.cut.joints, demand)
    off = np.linalg.norm(played.edge - target[:, :3, 3], axis=1).max()
    used = np.abs(played.torque).max(axis=0) / demand.robot.torque_nm
    poses = target.copy()
    poses[:, :3, 3] = played.edge
    lowest = lowest_heights(poses, demand).min()
    joint = f"joint {used.argmax() + 1}"
    note = f"under {UPPER_BAND:.2f} of the predicted force"
    return [
        at_most(
            8, "MuJoCo: edge off its path", off, demand.params.max_deflection_m, "m", note, remedy=STIFFER
        ),
        at_most(8, "MuJoCo: torque", used.max(), TORQUE_SHARE, "of the limit", joint, remedy=WEAKER),
        at_least(8, "MuJoCo: height of the edge above the board", lowest, 0.0, "m", remedy=STIFFER),
    ]


def _run_in_mujoco(
    robot: Robot,
    cell: Cell,
    joints: NDArray[np.float64],
    force: NDArray[np.float64],
    couple: NDArray[np.float64],
    *,
    stiffness_nm_rad: float,
) -> _TorqueRun:
    """Play joints [rad], shape [n, joint_count], against forces on the edge in the base frame [N], shape [n, 3].

    couple: their moments about the edge's centre [Nm], shape [n, 3].
    """
    mujoco = _mujoco()
    model = mujoco.MjModel.from_xml_string(arm_xml(robot, cell))
    model.opt.timestep = PERIOD_S / _SUBSTEPS
    data = mujoco.MjData(model)
    data.qpos[:] = joints[0]
    mujoco.mj_forward(model, data)
    count = len(robot.table)
    inertia = np.zeros((count, count))
    for row, unit in zip(inertia, np.eye(count), strict=True):
        mujoco.mj_mulM(model, data, row, unit)
    damping = 2.0 * _DAMPING_RATIO * np.sqrt(stiffness_nm_rad * np.diag(inertia))
    tool, edge = model.body("tool").id, model.site("edge").id
    rates = np.gradient(joints, PERIOD_S, axis=0)
    seen, torques = [], []
    for target, rate, push, twist in zip(joints, rates, force, couple, strict=True):
        seen.append(data.site_xpos[edge].copy())
        for _ in range(_SUBSTEPS):
            drive = stiffness_nm_rad * (target - data.qpos) + damping * (rate - data.qvel) + data.qfrc_bias
            data.ctrl[:] = np.clip(drive, -robot.torque_nm, robot.torque_nm)
            data.qfrc_applied[:] = 0.0
            mujoco.mj_applyFT(model, data, push, twist, data.site_xpos[edge], tool, data.qfrc_applied)
            mujoco.mj_step(model, data)
        torques.append(data.ctrl.copy())
    return _TorqueRun(np.array(seen), np.array(torques))


def arm_xml(robot: Robot, cell: Cell) -> str:
    """Return the arm with its knife as a MuJoCo model without shapes; the tool is a point mass.

    MuJoCo does not accept an unphysical inertia (one axis above the sum of the others), like the identified one of the
    Panda's link 4; it replaces it by a sphere's of the same trace.
    """
    open_bodies = []
    table = robot.table
    rows = zip(table.a_m, table.d_m, table.alpha_rad, table.theta_rad, strict=True)
    for i, (a, d, alpha, theta) in enumerate(rows):
        offset = _words([a, -d * np.sin(alpha), d * np.cos(alpha)])
        x, z = 0.5 * alpha, 0.5 * theta
        turn = _words(
            [np.cos(x) * np.cos(z), np.sin(x) * np.cos(z), -np.sin(x) * np.sin(z), np.cos(x) * np.sin(z)]
        )
        inertia = robot.link_inertia_kg_m2[i]
        full = _words(inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]])
        weight = float(robot.link_mass_kg[i])
        open_bodies.append(
            f'<body name="link{i + 1}" pos="{offset}" quat="{turn}"><joint name="joint{i + 1}" axis="0 0 1"/>'
            f'<inertial pos="{_words(robot.link_com_m[i])}" mass="{weight!r}" fullinertia="{full}"/>'
        )
    flange = np.array([0.0, 0.0, table.flange_m])
    hung, tip = _words(flange + cell.tool_com_m), _words(flange + cell.f_t_e[:3, 3])
    mass = max(cell.tool_mass_kg, 1e-6)
    tool = (
        f'<body name="tool"><inertial pos="{hung}" mass="{mass!r}" diaginertia="1e-9 1e-9 1e-9"/>'
        f'<site name="edge" pos="{tip}"/></body>'
    )
    motors = "".join(f'<motor joint="joint{i + 1}"/>' for i in range(len(table)))
    return (
        f'<mujoco><compiler angle="radian" balanceinertia="true"/>'
        f'<option gravity="0 0 {-GRAVITY_M_S2}" integrator="implicitfast"/>'
        f"<worldbody>{''.join(open_bodies)}{tool}{'</body>' * len(table)}</worldbody>"
        f"<actuator>{motors}</actuator></mujoco>"
    )


def _words(values: Any) -> str:
    return " ".join(repr(float(v)) for v in values)


def _mujoco() -> Any:
    try:
        import mujoco
    except ImportError as error:
        raise InputError(
            f"export.mujoco is on, but MuJoCo can't be imported ({error}). The check needs it. "
            "Run pip install 'scan2cut[verify]', or set export.mujoco to false."
        ) from error
    return mujoco
