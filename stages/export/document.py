"""What cut.json says of robot, tool, timing and poses: written by the export, and held against the cell by check 6."""

import json
from dataclasses import asdict
from typing import Any

import numpy as np

from stages.export.cell import Cell
from stages.export.checks import Check, holds
from stages.export.demand import Demand
from stages.export.export_files import ExportFiles
from stages.export.segments import PERIOD_S, WAYPOINT_STRIDE, EdgeMotion, whole_motion
from stages.shared.robots.robot import Robot, limits_of


def robot_part(robot: Robot) -> dict[str, Any]:
    """Names, program, file and kinematics of the robot."""
    return {
        "name": robot.name,
        "title": robot.title,
        "joint_names": list(robot.joint_names),
        "control": asdict(robot.control),
        "file_sha256": robot.file_sha256,
        "origin": robot.origin,
        "dh": {
            "convention": "Craig (modified), one row per joint, then the flange along z",
            "a_m": robot.table.a_m.tolist(),
            "d_m": robot.table.d_m.tolist(),
            "alpha_rad": robot.table.alpha_rad.tolist(),
            "theta_rad": robot.table.theta_rad.tolist(),
            "flange_m": robot.table.flange_m,
        },
    }


def tool_part(cell: Cell) -> dict[str, Any]:
    """Knife, fixture and load."""
    return {
        "knife": cell.knife,
        "blade_length_m": cell.blade_length_m,
        "blade_height_m": cell.blade_height_m,
        "fixture_low_m": cell.fixture_low_m.tolist(),
        "fixture_high_m": cell.fixture_high_m.tolist(),
        "mass_kg": cell.tool_mass_kg,
        "com_in_flange_m": cell.tool_com_m.tolist(),
    }


def timing_part(edge: EdgeMotion) -> dict[str, Any]:
    """Samples and phases of the whole motion."""
    starts = [0, *(np.flatnonzero(edge.phase[1:] != edge.phase[:-1]) + 1).tolist()]
    ends = [*(s - 1 for s in starts[1:]), len(edge) - 1]
    return {
        "period_s": PERIOD_S,
        "samples": len(edge),
        "waypoint_period_s": PERIOD_S * WAYPOINT_STRIDE,
        "phases": [
            {"phase": str(edge.phase[s]), "start_s": PERIOD_S * s, "end_s": PERIOD_S * e}
            for s, e in zip(starts, ends, strict=True)
        ],
    }


def pose_parts(demand: Demand, start: np.ndarray, air_start: np.ndarray) -> dict[str, Any]:
    """Where the arm begins, and how much higher the air cut is; start poses of cut and air cut [rad]."""
    return {
        "ready_pose_rad": demand.robot.ready_pose_rad.tolist(),
        "start_pose_rad": start.tolist(),
        "air_cut": {"lift_m": demand.params.air_cut_lift_m, "start_pose_rad": air_start.tolist()},
    }


def says_what_is_so(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check 6: what the run script takes from cut.json is what cell, robot, motion and joint files give."""
    poses = [variant.joints[0] for variant in (files.cut, files.air)]
    wanted = {
        "robot": robot_part(demand.robot),
        "tool": tool_part(demand.cell),
        "limits": limits_of(demand.robot),
        "timing": timing_part(whole_motion(demand.cut, demand.params)),
        **pose_parts(demand, *poses),
    }
    said = {name: files.document.get(name) for name in wanted}
    wanted["settings"] = demand.params.model_dump(mode="json")
    said["settings"] = files.document["demand"].get("params")
    plain = json.loads(json.dumps(wanted))
    differ = [name for name, part in plain.items() if said[name] != part]
    return [
        holds(
            6,
            "cut.json says what cell, robot and motion give",
            not differ,
            f"differs: {', '.join(differ)}" if differ else ", ".join(plain),
            remedy="The file is of another cell, robot or motion, or was changed; export again",
        )
    ]
