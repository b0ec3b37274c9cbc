"""Writing the export: every file of the folder, then the document that lists them."""

import json
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import Cell, flange_targets
from stages.export.certificate import Certificate
from stages.export.checklist import checklist
from stages.export.collision import plain, thresholds
from stages.export.demand import Demand
from stages.export.export_files import (
    AIR,
    CHECKLIST,
    DOCUMENT,
    JOINTS,
    MOTION,
    RUN_SCRIPTS,
    SCHEMA,
    SCHEMA_VERSION,
    TO_READY,
    TO_START,
    TRAJECTORY_MCAP,
    TRAJECTORY_YAML,
    WAYPOINTS_CSV,
    WAYPOINTS_PARQUET,
)
from stages.export.inverse import JointMotion, Posture, choose_posture, follow
from stages.export.moves import move
from stages.export.provenance import code_sha256
from stages.export.segments import PERIOD_S, WAYPOINT_STRIDE, EdgeMotion, whole_motion
from stages.export.stated import motion_bytes, stated
from stages.export.trajectory_files import mcap_bytes, yaml_bytes
from stages.export.waypoints import (
    csv_bytes,
    joint_csv_bytes,
    parquet_bytes,
    trajectory_of,
    waypoint_rows,
    waypoint_table,
)
from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.hashing import sha256_of_file, sha256_of_value
from stages.shared.kinematics import DH_A_M, DH_ALPHA_RAD, DH_D_M, FLANGE_M
from stages.shared.robots.robot import limits_of

WARNING = (
    "A knife cell is not a power-and-force-limited application. This export is not a risk assessment: nobody may be "
    "within reach while the robot is enabled. See CHECKLIST.md."
)


def write_package(folder: Path, demand: Demand, *, scan_id: str) -> dict[str, Any]:
    """Write all files but the certificate into the folder; returns the document."""
    cell, robot = demand.cell, demand.robot
    edge = whole_motion(demand.cut, demand.params)
    air = whole_motion(demand.cut, demand.params, lift_m=demand.params.air_cut_lift_m)
    posture = choose_posture(robot, flange_targets(cell, _middle(edge))[0])
    joints, air_joints = _follow(posture, cell, edge), _follow(posture, cell, air)
    table, air_table = waypoint_table(edge, joints, cell), waypoint_table(air, air_joints, cell)
    trajectory, air_trajectory = (trajectory_of(t, robot.joint_names) for t in (table, air_table))
    ready = robot.ready_pose_rad
    moves = {
        f"{place}{name}": joint_csv_bytes(move(a, b, demand))
        for place, q in (("", joints.position), (f"{AIR}/", air_joints.position))
        for name, a, b in ((TO_START, ready, q[0]), (TO_READY, q[-1], ready))
    }
    files = {
        **moves,
        MOTION: motion_bytes(demand.cut),
        WAYPOINTS_PARQUET: parquet_bytes(table),
        WAYPOINTS_CSV: csv_bytes(table),
        JOINTS: joint_csv_bytes(joints.position),
        TRAJECTORY_YAML: yaml_bytes(trajectory),
        TRAJECTORY_MCAP: mcap_bytes(trajectory),
        f"{AIR}/{JOINTS}": joint_csv_bytes(air_joints.position),
        f"{AIR}/{TRAJECTORY_YAML}": yaml_bytes(air_trajectory),
        f"{AIR}/{TRAJECTORY_MCAP}": mcap_bytes(air_trajectory),
        **{name: Path(__file__).with_name(name).read_bytes() for name in RUN_SCRIPTS},
        CHECKLIST: checklist(
            demand, scan_id=scan_id, start=joints.position[0], air_start=air_joints.position[0]
        ).encode(),
    }
    for name, data in files.items():
        write_bytes_atomic(folder / name, data)
    document = {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "warning": WARNING,
        "scan": scan_id,
        "robot": {
            "name": robot.name,
            "title": robot.title,
            "joint_names": list(robot.joint_names),
            "control": asdict(robot.control),
            "file_sha256": robot.file_sha256,
            "origin": robot.origin,
            "dh": {
                "convention": "Craig (modified), joints 1 to 7, then the flange along z",
                "a_m": list(DH_A_M),
                "d_m": list(DH_D_M),
                "alpha_rad": list(DH_ALPHA_RAD),
                "flange_m": FLANGE_M,
            },
        },
        "frames": {
            "convention": "A_T_B maps coordinates in B to A; row-major 4x4, metres. O robot base (z up), C cutting "
            "frame (x across the cut, y up, z along the blade, origin on the board), F flange, E centre of the edge",
            "O_T_C": cell.o_t_c.tolist(),
            "F_T_E": cell.f_t_e.tolist(),
        },
        "tool": {
            "knife": cell.knife,
            "blade_length_m": cell.blade_length_m,
            "blade_height_m": cell.blade_height_m,
            "fixture_low_m": cell.fixture_low_m.tolist(),
            "fixture_high_m": cell.fixture_high_m.tolist(),
            "mass_kg": cell.tool_mass_kg,
            "com_in_flange_m": cell.tool_com_m.tolist(),
        },
        "limits": limits_of(robot),
        "timing": {
            "period_s": PERIOD_S,
            "samples": len(edge),
            "waypoint_period_s": PERIOD_S * WAYPOINT_STRIDE,
            "phases": _phases(edge),
        },
        "ready_pose_rad": ready.tolist(),
        "start_pose_rad": joints.position[0].tolist(),
        "air_cut": {
            "lift_m": demand.params.air_cut_lift_m,
            "start_pose_rad": air_joints.position[0].tolist(),
        },
        "collision": plain(
            thresholds(cell, joints.position, edge.force @ cell.o_t_c[:3, :3].T),
            thresholds(cell, air_joints.position, np.zeros((len(air), 3))),
        ),
        "demand": stated(demand),
        "provenance": {
            "release": _release(),
            "code_sha256": code_sha256(),
            "params_sha256": sha256_of_value(demand.params.model_dump(mode="json")),
            "upstream_sha256": demand.provenance,
        },
        "siblings_sha256": {name: sha256_of_file(folder / name) for name in sorted(files)},
        "waypoints": waypoint_rows(table),
    }
    write_document(folder, document)
    return document


def _release() -> str:
    try:
        return version("scan2cut")
    except PackageNotFoundError:
        return "not installed"


def write_document(folder: Path, document: dict[str, Any]) -> None:
    """cut.json; Python's floats come back bit for bit."""
    write_bytes_atomic(folder / DOCUMENT, (json.dumps(document, indent=1, allow_nan=False) + "\n").encode())


def write_certificate(folder: Path, document: dict[str, Any], certificate: Certificate) -> None:
    """Put the certificate into the document, tied to the rest of it by a hash."""
    seal = {"content_sha256": sha256_of_value(document)}
    write_document(folder, document | {"certificate": certificate.plain() | seal})


def _follow(posture: Posture, cell: Cell, edge: EdgeMotion) -> JointMotion:
    turn = cell.o_t_c[:3, :3]
    return follow(
        posture, flange_targets(cell, edge.position), edge.velocity @ turn.T, edge.acceleration @ turn.T
    )


def _middle(edge: EdgeMotion) -> NDArray[np.float64]:
    return np.asarray(0.5 * (edge.position.min(axis=0) + edge.position.max(axis=0)))[None]


def _phases(edge: EdgeMotion) -> list[dict[str, Any]]:
    starts = [0, *(np.flatnonzero(edge.phase[1:] != edge.phase[:-1]) + 1).tolist()]
    ends = [*(s - 1 for s in starts[1:]), len(edge) - 1]
    return [
        {"phase": str(edge.phase[s]), "start_s": PERIOD_S * s, "end_s": PERIOD_S * e}
        for s, e in zip(starts, ends, strict=True)
    ]
