"""Writing the export: every file of the folder, then the document that lists them."""

import json
import math
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import Cell, flange_targets
from stages.export.checks import AGAIN, Check, holds
from stages.export.demand import Demand, motion_bytes, pose_parts, robot_part, stated, timing_part, tool_part
from stages.export.dynamics import deflection
from stages.export.export_files import (
    AIR,
    CHECKLIST,
    DOCUMENT,
    JOINTS,
    MOTION,
    RECORDING,
    RUN_SCRIPTS,
    SCHEMA,
    SCHEMA_VERSION,
    TO_READY,
    TO_START,
    TRAJECTORY_MCAP,
    TRAJECTORY_YAML,
    WAYPOINTS_CSV,
    WAYPOINTS_PARQUET,
    WHOLE,
    ExportFiles,
    code_sha256,
)
from stages.export.inverse import JointMotion, Posture, choose_posture, follow
from stages.export.load_checks import SOFT_NM_RAD, plain, stopping, thresholds
from stages.export.moves import move
from stages.export.signature import signed
from stages.export.trajectory_files import mcap_bytes, recording_bytes, same_bag, yaml_bytes
from stages.export.waypoints import (
    CUT,
    EdgeMotion,
    central_rates,
    csv_bytes,
    joint_csv_bytes,
    parquet_bytes,
    waypoint_rows,
    waypoint_table,
    whole_motion,
    whole_trajectory,
)
from stages.runtime.files import sha256_of_file, sha256_of_value, write_bytes_atomic
from stages.shared.robots.robot import Robot, limits_of

if TYPE_CHECKING:
    from stages.export.certificate import Certificate

# Operator's checklist


def air_cut(robot: Robot) -> str:
    """Return the command or file of the air cut."""
    if robot.control.run_script:
        return f"`python run_cut.py --air --execute --robot {robot.name} --host ADDRESS`"
    return " or ".join(f"air_cut/{file} with {client}" for file, client in robot.control.clients.items())


def _to_ready(robot: Robot) -> str:
    """Return how the arm gets to its ready pose."""
    if robot.control.run_script:
        return f"by `python run_cut.py --ready --execute --robot {robot.name} --host ADDRESS`, Desk or hand guiding"
    return "by the arm's own controls (a slow joint move, watched)"


def _stop_line(robot: Robot, stop: dict[str, float]) -> str:
    """Return the checklist line on what happens at an obstacle."""
    if not robot.control.run_script:
        return "Known: how deep the knife goes on after an obstacle with the program that plays the motion."
    return (
        f"The run script stops at {stop['stop_force_n']:.0f} N, within {1000 * stop['stop_time_s']:.0f} ms; the knife "
        f"may go {1000 * stop['stop_depth_m']:.1f} mm deeper\n      until then. The robot's reflex comes after that."
    )


def _settings(robot: Robot) -> str:
    """Return the start of the checklist line on load, stiffness and thresholds."""
    if robot.control.run_script:
        return "No end effector in Desk: the run script sends"
    return "By hand, before each of the two motions:"


def _checklist(
    demand: Demand, *, scan_id: str, saving: str, joints: NDArray[np.float64], air_start: NDArray[np.float64]
) -> str:
    """Return one page of Markdown; joints of the cut and start pose of the air cut [rad]."""
    cell, params, robot = demand.cell, demand.params, demand.robot
    board = ", ".join(f"{1000 * v:.1f}" for v in params.board_position_m)
    edge = ", ".join(f"{1000 * v:.1f}" for v in params.edge_offset_m)
    com = ", ".join(f"{1000 * v:.1f}" for v in cell.tool_com_m)
    pose, air_pose, ready = (
        ", ".join(f"{v:+.4f}" for v in q) for q in (joints[0], air_start, robot.ready_pose_rad)
    )
    peak = float(np.linalg.norm(demand.cut.force, axis=1).max())
    edge_motion = whole_motion(demand.cut, params)
    force, couple = (load @ cell.o_t_c[:3, :3].T for load in (edge_motion.force, edge_motion.torque))
    stop_n = thresholds(robot, cell, joints, force).stop_force_n
    soft_mm, stiff_mm = (
        1000 * float(np.linalg.norm(deflection(robot, cell, joints, force, k, couple=couple), axis=1).max())
        for k in (SOFT_NM_RAD, params.joint_stiffness_nm_rad)
    )
    cut = np.flatnonzero(edge_motion.phase == CUT)
    stop = stopping(joints, demand, slice(int(cut[0]), int(cut[-1]) + 1), stop_n)
    return f"""# Before the knife moves: {scan_id}

**A knife cell is not a power-and-force-limited application.** The robot's force limits do not protect anyone from a
blade. The certificate in cut.json covers this motion in this cell; it is not a risk assessment and does not replace one
(ISO 10218, ISO/TS 15066). A stop may leave the knife in the fruit: plan how to free it.

## The cell
- [ ] A risk assessment for this cell exists, and someone responsible has signed it.
- [ ] Fence or light curtain closed; nobody within reach while the robot is enabled.
- [ ] Emergency stop in hand, tested today.
- [ ] The robot is a {robot.title} ({robot.name}). This export is for no other robot.
- [ ] The board's top is at (x, y, z) = ({board}) mm in the base frame at the cut, blade direction
      {params.blade_yaw_deg:g}° from the base's x axis. Measured, not guessed: 2 mm of error in height cuts the board.
- [ ] Board clamped, level within 0.2 mm over the blade's length. Nothing else under the arm.

## The knife
- [ ] Edge centre at ({edge}) mm from the flange, blade {1000 * cell.blade_length_m:.0f} mm long, direction
      {params.blade_angle_deg:g}° in the flange's x-y plane. Clamped; does not move when pulled by hand (gloves on).
- [ ] {_settings(robot)} load ({cell.tool_mass_kg:g} kg, centre of mass ({com}) mm from the flange), stiffness
      ({params.joint_stiffness_nm_rad:g} Nm/rad, or as near as the arm offers) and the collision thresholds of cut.json,
      apart for air cut and cut. The predicted force bends the arm by {stiff_mm:.1f} mm at this stiffness, by
      {soft_mm:.1f} mm at {SOFT_NM_RAD:g} Nm/rad, libfranka's usual one.
- [ ] {_stop_line(robot, stop)}
- [ ] Predicted peak force {peak:.0f} N; {demand.parting.remains()} after the cut.
      {saving or "The saving over a vertical cut is not stated."} The certificate does not cover the saving.

## The rehearsal
- [ ] `python run_cut.py` (dry run) ends with "All checks passed".
- [ ] Robot at its ready pose, {_to_ready(robot)}: [{ready}] rad. joint_1khz.csv and
      joint_trajectory.* begin and end there; never play motion_1khz.csv alone, it begins at the start of the cut.
- [ ] **Fruit off the board**, blade guard on if there is one: the air cut, {air_cut(robot)}.
      It is the same motion {1000 * params.air_cut_lift_m:.0f} mm higher; it starts at [{air_pose}] rad. Record it:
      it is the tare of the force signal. Look at the gap to the board at the lowest point.
- [ ] Sounds, cables and gaps as expected. Only then the fruit, held from outside the fence, and the cut. It starts at
      [{pose}] rad.

## Afterwards
- [ ] The log is kept: `scan2cut executed` compares it with the prediction.
- [ ] Knife retracted, robot disabled, blade guard on, before the fence opens.
"""


_WARNING = (
    "A knife cell is not a power-and-force-limited application. This export is not a risk assessment: nobody may be "
    "within reach while the robot is enabled. See CHECKLIST.md."
)


@dataclass(frozen=True)
class Plan:
    """Joints of cut and air cut, and the moves from and to the ready pose."""

    edge: EdgeMotion
    air: EdgeMotion
    joints: JointMotion
    air_joints: JointMotion
    moves: dict[str, NDArray[np.float64]]
    """File → joints [rad], shape [n, joint_count]."""

    def whole(self, *, air: bool) -> NDArray[np.float64]:
        """Return joints [rad] from the ready pose through the motion back to it, shape [n, joint_count]."""
        prefix, joints = (f"{AIR}/", self.air_joints) if air else ("", self.joints)
        return np.concatenate(
            [self.moves[f"{prefix}{TO_START}"], joints.position[1:], self.moves[f"{prefix}{TO_READY}"][1:]]
        )


def plan_of(demand: Demand) -> Plan:
    """Solve approach, cut and retract for the joints; raise InputError if a pose is out of reach."""
    cell, robot = demand.cell, demand.robot
    edge = whole_motion(demand.cut, demand.params)
    air = whole_motion(demand.cut, demand.params, lift_m=demand.params.air_cut_lift_m)
    posture = choose_posture(
        robot, flange_targets(cell, _middle(edge.position)[None], _middle(edge.pitch)[None])[0]
    )
    joints, air_joints = _follow(posture, cell, edge), _follow(posture, cell, air)
    ready = robot.ready_pose_rad
    moves = {
        f"{prefix}{name}": move(a, b, demand)
        for prefix, q in (("", joints.position), (f"{AIR}/", air_joints.position))
        for name, a, b in ((TO_START, ready, q[0]), (TO_READY, q[-1], ready))
    }
    return Plan(edge, air, joints, air_joints, moves)


def write_package(folder: Path, demand: Demand, *, scan_id: str, saving: str = "") -> dict[str, Any]:
    """Write all files but the certificate into the folder; return the document."""
    cell, robot = demand.cell, demand.robot
    plan = plan_of(demand)
    joints, air_joints = plan.joints, plan.air_joints
    table, air_table = waypoint_table(plan.edge, joints, cell), waypoint_table(plan.air, air_joints, cell)
    trajectory, air_trajectory = (
        whole_trajectory(
            t, plan.moves[f"{prefix}{TO_START}"], plan.moves[f"{prefix}{TO_READY}"], robot.joint_names
        )
        for prefix, t in (("", table), (f"{AIR}/", air_table))
    )
    files = {
        **{name: joint_csv_bytes(joints) for name, joints in plan.moves.items()},
        MOTION: motion_bytes(demand.cut),
        RECORDING: recording_bytes(table, robot, cell),
        WAYPOINTS_PARQUET: parquet_bytes(table),
        WAYPOINTS_CSV: csv_bytes(table),
        WHOLE: joint_csv_bytes(plan.whole(air=False)),
        f"{AIR}/{WHOLE}": joint_csv_bytes(plan.whole(air=True)),
        JOINTS: joint_csv_bytes(joints.position),
        TRAJECTORY_YAML: yaml_bytes(trajectory),
        TRAJECTORY_MCAP: mcap_bytes(trajectory),
        f"{AIR}/{JOINTS}": joint_csv_bytes(air_joints.position),
        f"{AIR}/{TRAJECTORY_YAML}": yaml_bytes(air_trajectory),
        f"{AIR}/{TRAJECTORY_MCAP}": mcap_bytes(air_trajectory),
        **{name: Path(__file__).with_name(name).read_bytes() for name in RUN_SCRIPTS},
        CHECKLIST: _checklist(
            demand, scan_id=scan_id, saving=saving, joints=joints.position, air_start=air_joints.position[0]
        ).encode(),
    }
    for name, data in files.items():
        write_bytes_atomic(folder / name, data)
    document = document_of(plan, demand, scan_id=scan_id) | {
        "siblings_sha256": {name: sha256_of_file(folder / name) for name in sorted(files)},
        "saving": {"statement": saving or "not stated", "verified": False},
        "waypoints": waypoint_rows(table),
    }
    _write_document(folder, document)
    return document


def document_of(plan: Plan, demand: Demand, *, scan_id: str) -> dict[str, Any]:
    """Return cut.json without waypoints, hashes of its siblings and certificate."""
    cell, robot, edge = demand.cell, demand.robot, plan.edge
    loads = (load @ cell.o_t_c[:3, :3].T for load in (edge.force, edge.torque))
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "warning": _WARNING,
        "scan": scan_id,
        "robot": robot_part(robot),
        "frames": {
            "convention": "A_T_B maps coordinates in B to A; row-major 4x4, metres. O robot base (z up), C cutting "
            "frame (x across the cut, y up, z along the blade, origin on the board), F flange, E centre of the edge",
            "O_T_C": cell.o_t_c.tolist(),
            "F_T_E": cell.f_t_e.tolist(),
        },
        "tool": tool_part(cell),
        "limits": limits_of(robot),
        "timing": timing_part(edge),
        **pose_parts(demand, plan.joints.position[0], plan.air_joints.position[0]),
        "collision": plain(
            thresholds(robot, cell, plan.joints.position, *loads),
            thresholds(robot, cell, plan.air_joints.position, np.zeros((len(plan.air), 3))),
        ),
        "demand": stated(demand),
        "provenance": {
            "release": _release(),
            "code_sha256": code_sha256(),
            "params_sha256": sha256_of_value(demand.params.model_dump(mode="json")),
            "upstream_sha256": demand.provenance,
        },
    }


def _release() -> str:
    try:
        return version("scan2cut")
    except PackageNotFoundError:
        return "not installed"


def _write_document(folder: Path, document: dict[str, Any]) -> None:
    """Write cut.json; Python's floats are restored exactly."""
    write_bytes_atomic(folder / DOCUMENT, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def write_certificate(folder: Path, document: dict[str, Any], certificate: "Certificate") -> None:
    """Add the certificate to the document, tied to the rest of it by a hash, and by a signature if there is a key."""
    seal = {"content_sha256": sha256_of_value(document)}
    _write_document(folder, document | {"certificate": signed(certificate.plain() | seal, document)})


# Everything the folder states, computed again from settings, motion and joint files


_RELATIVE, _ABSOLUTE = 1e-9, 1e-9
"""Permitted difference of recomputed numbers: another processor rounds differently."""
_NOT_DERIVED = ("siblings_sha256", "saving", "waypoints", "certificate")
"""Parts of cut.json with checks of their own."""


def claims(files: ExportFiles, demand: Demand) -> list[Check]:
    """Checks 6 and 7: cut.json, checklist, scripts and recordings are what this version writes for these inputs."""
    cut, air = (JointMotion(v.joints, v.joints, v.joints) for v in (files.cut, files.air))
    edge = whole_motion(demand.cut, demand.params)
    raised = whole_motion(demand.cut, demand.params, lift_m=demand.params.air_cut_lift_m)
    document, scan = files.document, files.document.get("scan")
    expected = document_of(Plan(edge, raised, cut, air, {}), demand, scan_id=str(scan))
    wrong = [name for name, part in expected.items() if not _agree(document.get(name), _as_json(part))]
    wrong += sorted(document.keys() - expected.keys() - set(_NOT_DERIVED))
    saving = document.get("saving")
    statement = saving.get("statement") if isinstance(saving, dict) else None
    if not isinstance(statement, str) or saving != {"statement": statement, "verified": False}:
        wrong.append("saving")
    checklist = _checklist(
        demand,
        scan_id=str(scan),
        saving="" if statement == "not stated" else str(statement),
        joints=files.cut.joints,
        air_start=files.air.joints[0],
    )
    changed = [
        name for name in RUN_SCRIPTS if _bytes(files, name) != Path(__file__).with_name(name).read_bytes()
    ]
    changed += [] if _bytes(files, CHECKLIST) == checklist.encode() else [CHECKLIST]
    return [
        holds(
            6,
            "every statement in cut.json follows from settings, motion and joints",
            not wrong,
            f"differs: {', '.join(wrong)}" if wrong else f"{len(expected)} parts",
            remedy=f"{AGAIN}; an export of release {_release()} is expected",
        ),
        holds(
            7,
            "run scripts and checklist are those of this release",
            not changed,
            ", ".join(changed) or _release(),
            remedy="They were replaced, or another release wrote them; export again",
        ),
        _as_written(files, demand),
    ]


def _as_written(files: ExportFiles, demand: Demand) -> Check:
    """Check 1: no file has more, less or other content than the export writes for the numbers read from it."""
    written = {WAYPOINTS_CSV: csv_bytes(files.csv_waypoints)}
    bags = {}
    for prefix, variant in (("", files.cut), (f"{AIR}/", files.air)):
        for name, joints in (
            (JOINTS, variant.joints),
            (TO_START, variant.to_start),
            (TO_READY, variant.to_ready),
        ):
            written[f"{prefix}{name}"] = joint_csv_bytes(joints)
        written[f"{prefix}{WHOLE}"] = joint_csv_bytes(variant.whole)
        written[f"{prefix}{TRAJECTORY_YAML}"] = yaml_bytes(variant.from_yaml)
        bags[f"{prefix}{TRAJECTORY_MCAP}"] = mcap_bytes(variant.from_mcap)
    other = [name for name, data in written.items() if _bytes(files, name) != data]
    other += [name for name, data in bags.items() if not same_bag(_bytes(files, name), data)]
    recording = recording_bytes(files.waypoints, demand.robot, demand.cell)
    if not same_bag(_bytes(files, RECORDING), recording, tolerance=_RECORDED):
        other.append(RECORDING)
    note = ", ".join(sorted(other)) or f"{len(written) + len(bags) + 1} files"
    return holds(1, "files have exactly the content that the export writes", not other, note, remedy=AGAIN)


_RECORDED = 1e-6
"""Permitted difference of frames [m], forces [N] and torques [Nm] in motion.mcap, which is for display."""


def _bytes(files: ExportFiles, name: str) -> bytes:
    path = files.folder / name
    return path.read_bytes() if path.is_file() else b""


def _as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def _agree(stated_value: Any, expected: Any) -> bool:
    """Compare JSON values: types, keys and texts exactly, floats within rounding."""
    if type(stated_value) is not type(expected):
        return False
    if isinstance(expected, dict):
        return stated_value.keys() == expected.keys() and all(
            _agree(stated_value[k], expected[k]) for k in expected
        )
    if isinstance(expected, list):
        return len(stated_value) == len(expected) and all(map(_agree, stated_value, expected))
    if isinstance(expected, float):
        return math.isclose(stated_value, expected, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return bool(stated_value == expected)


def _follow(posture: Posture, cell: Cell, edge: EdgeMotion) -> JointMotion:
    """Return the joints; the flange is carried around the edge's centre by the knife's turning."""
    turn = cell.o_t_c[:3, :3]
    targets = flange_targets(cell, edge.position, edge.pitch)
    _, rate, change = central_rates(edge.pitch[:, None])
    spin, push = rate * turn[:, 0], change * turn[:, 0]
    arm = targets[:, :3, 3] - (edge.position @ turn.T + cell.o_t_c[:3, 3])
    velocity = edge.velocity @ turn.T + np.cross(spin, arm)
    acceleration = edge.acceleration @ turn.T + np.cross(push, arm) + np.cross(spin, np.cross(spin, arm))
    return follow(
        posture,
        targets,
        np.concatenate([velocity, spin], axis=1),
        np.concatenate([acceleration, push], axis=1),
    )


def _middle(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(0.5 * (values.min(axis=0) + values.max(axis=0)))
