"""Checks 1, 6 and 7: complete files on an exact grid, valid frames, matching hashes."""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.export.checks import AGAIN, Check, at_most, holds, otherwise
from stages.export.demand import Demand
from stages.export.export_files import SIBLINGS, ExportFiles, Variant, foreign_entries
from stages.export.trajectory_files import Trajectory, edge_axes, same
from stages.export.waypoints import PERIOD_S, EdgeMotion, trajectory_of, whole_trajectory
from stages.runtime.files import sha256_of_file

_GRID_S = 1e-12
_REST_RAD_S, _REST_RAD_S2 = 1e-6, 1e-3
_REST_M_S, _REST_M_S2 = 1e-6, 1e-3
"""Speed and acceleration that count as rest: far below what the controller rejects in its first cycle."""
_REST_TURN_RAD_S = 1e-3
"""The same for the knife's angle, of which the motion states no rates: a smooth start moves less in its first cycle."""
_CONSISTENT_M_S, _CONSISTENT_M_S2 = 1e-3, 0.2
"""Permitted difference of the motion's velocity and acceleration from finite differences over 1 ms."""
_ORTHONORMAL = 1e-9
_READY_RAD = 1e-9
_SHOWN = 1e-9
"""Permitted difference between motion.mcap and the waypoints, in m and N: rounding of a chain of quaternions."""


def structure(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check 1, first half: conditions without which nothing else can be computed."""
    numbers = [files.cut.rows, files.air.rows, *(_numbers(files.waypoints))]
    numbers += [move for v in (files.cut, files.air) for move in (v.to_start, v.to_ready)]
    checks = [
        holds(1, "all numbers finite", all(np.isfinite(a).all() for a in numbers), "joints and waypoints")
    ]
    count = len(demand.robot.table)
    arrays = [
        a for v in (files.cut, files.air) for a in (v.joints, v.to_start, v.to_ready, v.from_mcap.position)
    ]
    checks.append(
        holds(
            1,
            "joints are those of the robot",
            all(a.shape[1:] == (count,) for a in [*arrays, files.waypoints["q_rad"].to_numpy()]),
            f"{count} of a {demand.robot.title}",
            remedy="Export again for this robot",
        )
    )
    for variant in (files.cut, files.air):
        time = variant.rows[:, 0]
        grid = PERIOD_S * np.arange(len(time))
        expected = files.document["timing"]["samples"]
        checks += [
            at_most(
                1, f"{variant.name}: distance from the 1 ms grid", np.abs(time - grid).max(), _GRID_S, "s"
            ),
            holds(
                1,
                f"{variant.name}: all samples there",
                len(time) == expected,
                f"{len(time)} of {expected}",
            ),
        ]
    return otherwise(AGAIN, checks)


def rest_and_copies(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check 1, second half: rest at both ends and equal copies."""
    checks = []
    for variant in (files.cut, files.air):
        speed, push = _end_rates(variant)
        checks.append(at_most(1, f"{variant.name}: joint speed at both ends", speed, _REST_RAD_S, "rad/s"))
        checks.append(
            at_most(1, f"{variant.name}: joint acceleration at both ends", push, _REST_RAD_S2, "rad/s²")
        )
    cut = demand.cut
    ends = [0, -1]
    checks += otherwise(
        "The optimised motion must begin and end at rest and be consistent; run optimize again",
        [
            at_most(
                1, "edge speed where the cut starts and ends", _largest(cut.velocity[ends]), _REST_M_S, "m/s"
            ),
            at_most(
                1,
                "edge acceleration where the cut starts and ends",
                _largest(cut.acceleration[ends]),
                _REST_M_S2,
                "m/s²",
            ),
            at_most(1, "motion: velocity against positions", _velocity_gap(cut), _CONSISTENT_M_S, "m/s"),
            at_most(
                1, "motion: acceleration against velocity", _acceleration_gap(cut), _CONSISTENT_M_S2, "m/s²"
            ),
            *_turning_at_ends(cut),
        ],
    )
    tables = [files.waypoints, files.csv_waypoints, files.json_waypoints]
    checks.append(
        holds(
            1,
            "waypoints equal in Parquet, CSV and JSON",
            all(_equal(tables[0], t) for t in tables),
            "bit for bit",
        )
    )
    names = demand.robot.joint_names
    expected = trajectory_of(files.waypoints, names)
    played = whole_trajectory(files.waypoints, files.cut.to_start, files.cut.to_ready, names)
    bags = [files.cut.from_yaml, files.cut.from_mcap]
    checks.append(
        holds(
            1,
            "trajectory equal in moves, waypoints, YAML and MCAP",
            all(same(played, t) for t in bags),
            "bit for bit, from the ready pose to the ready pose",
        )
    )
    checks.append(
        holds(
            1,
            "recording (motion.mcap) is that of the waypoints",
            _recorded(files, expected, demand),
            "joints and speeds bit for bit, the edge's position by its frames to 1e-9 m, force to 1e-9 N",
        )
    )
    ready = demand.robot.ready_pose_rad
    last_poses = [t.position[[0, -1]] for v in (files.cut, files.air) for t in (v.from_yaml, v.from_mcap)]
    checks.append(
        at_most(
            1,
            "trajectories begin and end at the ready pose",
            max(float(np.abs(pose - ready).max()) for pose in last_poses),
            _READY_RAD,
            "rad",
        )
    )
    checks.append(
        holds(
            1,
            "air cut: trajectory equal in YAML and MCAP",
            same(files.air.from_yaml, files.air.from_mcap),
            "bit for bit",
        )
    )
    return otherwise(AGAIN, checks)


def _turning_at_ends(cut: EdgeMotion) -> list[Check]:
    """Check that a knife that turns begins and ends the cut at rest: before and after it the angle is constant."""
    if not cut.turns:
        return []
    speed = float(np.abs(np.diff(cut.pitch))[[0, -1]].max()) / PERIOD_S
    return [
        at_most(1, "turning of the knife where the cut starts and ends", speed, _REST_TURN_RAD_S, "rad/s")
    ]


def _recorded(files: ExportFiles, expected: Trajectory, demand: Demand) -> bool:
    """Return True if motion.mcap agrees with the waypoints."""
    seen, table = files.recording, files.waypoints
    edge, force = table["edge_position_m"].to_numpy(), table["force_n"].to_numpy()
    if seen.edge.shape != edge.shape or seen.force.shape != force.shape:
        return False
    return bool(
        seen.joint_names == expected.joint_names
        and np.array_equal(seen.time_ns, expected.time_ns)
        and np.array_equal(seen.position, expected.position)
        and np.array_equal(seen.velocity, expected.velocity)
        and np.isfinite(seen.effort).all()
        and np.abs(seen.edge - edge).max() <= _SHOWN
        and np.abs(np.einsum("nij,nj->ni", edge_axes(table, demand.cell), seen.force) - force).max() <= _SHOWN
    )


def frames(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check 6: the stated frames are rotations with det +1, and those of this cell, robot and tool."""
    stated = files.document["frames"]
    checks = []
    for name, expected in (("O_T_C", demand.cell.o_t_c), ("F_T_E", demand.cell.f_t_e)):
        pose = np.array(stated[name], float)
        rotation = pose[:3, :3]
        error = max(
            float(np.abs(rotation @ rotation.T - np.eye(3)).max()),
            abs(float(np.linalg.det(rotation)) - 1.0),
            float(np.abs(pose[3] - [0, 0, 0, 1]).max()),
        )
        checks.append(at_most(6, f"{name}: distance from a rotation with det +1", error, _ORTHONORMAL, "-"))
        checks.append(
            at_most(
                6,
                f"{name}: distance from the cell's",
                float(np.abs(pose - expected).max()),
                _ORTHONORMAL,
                "-",
            )
        )
    robot, tool = files.document["robot"], files.document["tool"]
    checks.append(
        holds(
            6,
            "made for this robot",
            robot["name"] == demand.robot.name and tuple(robot["joint_names"]) == demand.robot.joint_names,
            f"file {robot['name']}, cell {demand.robot.name}",
        )
    )
    knives = (tool["knife"], demand.cell.knife, demand.knife_of_motion)
    checks.append(
        holds(
            6,
            "knife is the one of the optimised motion",
            len(set(knives)) == 1,
            f"file {knives[0]}, cell {knives[1]}, motion {knives[2]}",
            remedy="Run optimize again with the knife of cut.knife, or choose the knife it was optimised for",
        )
    )
    return otherwise("The file belongs to another cell or robot; export again for this one", checks)


def hashes(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check 7: hashes of siblings, upstream files, code and robot file are those in the document."""
    wrong = [
        name
        for name, digest in files.document["siblings_sha256"].items()
        if _sha(files.folder / name) != digest
    ]
    provenance = files.document["provenance"]
    listed = set(files.document["siblings_sha256"])
    foreign = [*sorted(listed ^ SIBLINGS), *foreign_entries(files.folder)]
    checks = [
        holds(7, "sha256 of the sibling files", not wrong, ", ".join(wrong) or f"{len(listed)} files"),
        holds(
            7,
            "every file is listed and regular",
            not foreign,
            "; ".join(foreign) or f"{len(listed)} files",
        ),
        holds(
            7,
            "sha256 of the upstream files",
            provenance["upstream_sha256"] == demand.provenance and not demand.broken_links,
            ", ".join(demand.broken_links) or f"{len(demand.provenance)} files",
            remedy="Files upstream were changed after they were used; run the stages again",
        ),
        holds(
            7,
            "sha256 of the robot file",
            files.document["robot"]["file_sha256"] == demand.robot.file_sha256,
            demand.robot.name,
        ),
    ]
    return otherwise(AGAIN, checks)


def _sha(path: Path) -> str:
    return sha256_of_file(path) if path.is_file() else "missing"


def _numbers(table: pl.DataFrame) -> list[NDArray[np.float64]]:
    return [table[name].to_numpy() for name in table.columns if name != "phase"]


def _equal(first: pl.DataFrame, second: pl.DataFrame) -> bool:
    return first.columns == second.columns and first.equals(second)


def _end_rates(variant: Variant) -> tuple[float, float]:
    """Return the largest joint speed and acceleration in the first and last two cycles."""
    q = variant.joints
    first, last = np.diff(q[:3], axis=0) / PERIOD_S, np.diff(q[-3:], axis=0) / PERIOD_S
    speed = max(np.abs(first).max(), np.abs(last).max())
    push = max(np.abs(np.diff(first, axis=0)).max(), np.abs(np.diff(last, axis=0)).max()) / PERIOD_S
    return float(speed), float(push)


def _largest(vectors: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(vectors, axis=1).max())


def _velocity_gap(cut: EdgeMotion) -> float:
    mean = 0.5 * (cut.velocity[1:] + cut.velocity[:-1])
    return _largest(np.diff(cut.position, axis=0) / PERIOD_S - mean)


def _acceleration_gap(cut: EdgeMotion) -> float:
    mean = 0.5 * (cut.acceleration[1:] + cut.acceleration[:-1])
    return _largest(np.diff(cut.velocity, axis=0) / PERIOD_S - mean)
