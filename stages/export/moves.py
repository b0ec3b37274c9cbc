"""Moves from the robot's ready pose to the start of the motion and from its end back, and their checks.

A move is straight in joint space, from rest to rest. The run script joins it to the motion, so the arm needs no
hand guiding.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import base_distance, link_heights, tool_corners
from stages.export.checks import AGAIN, Check, at_least, at_most
from stages.export.demand import Demand
from stages.export.export_files import TO_READY, TO_START, ExportFiles
from stages.export.motion_checks import ACCELERATION_SHARE, JERK_SHARE, SPEED_SHARE, edge_poses, limits, rates
from stages.export.place_checks import BASE_CLEARANCE_M, LINK_CLEARANCE_M
from stages.export.waypoints import PERIOD_S, WAYPOINT_STRIDE
from stages.shared.robots.robot import Robot

_USED = 0.5
"""Fraction of a cut's limits that a move uses."""
_KNIFE_SPEED_M_S = 0.15
_LEAST_S = 1.0
_JOIN_RAD = 1e-9
_MOVES = "moves to and from the ready pose"
_STRIDE = 10


def move(first: NDArray[np.float64], last: NDArray[np.float64], demand: Demand) -> NDArray[np.float64]:
    """Return joints [rad], shape [n, joint_count], one row per millisecond, from the first to the last pose."""
    return _quintic(first, last, _duration(first, last, demand))


def move_checks(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check the four moves against the limits of check 2 and the space of check 4; the worst of each is shown."""
    robot, cell = demand.robot, demand.cell
    moves = [q for _, q, _, _ in _moves(files, demand)]
    detours = [_detour(q, move(a, b, demand)) for _, q, a, b in _moves(files, demand)]
    joins = [max(np.abs(q[0] - a).max(), np.abs(q[-1] - b).max()) for _, q, a, b in _moves(files, demand)]
    board = float(cell.o_t_c[2, 3])
    tool = min(float(tool_corners(robot, cell, q[::_STRIDE])[..., 2].min()) for q in moves) - board
    links = min(float(link_heights(robot, q[::_STRIDE]).min()) for q in moves) - board
    base = min(base_distance(robot, cell, q[::_STRIDE]) for q in moves)
    top = float(demand.fruit.high_m[1])
    aside = "Raise export.approach_height_m, or move the board (export.board_position_m)"
    return [
        at_most(3, f"{_MOVES}: gap where they join", float(max(joins)), _JOIN_RAD, "rad", remedy=AGAIN),
        at_most(3, f"{_MOVES}: distance from the direct move", max(detours), _JOIN_RAD, "rad", remedy=AGAIN),
        *worst_of([limits(_MOVES, q, demand) for q in moves]),
        at_least(
            4,
            f"{_MOVES}: knife and fixture above the fruit",
            tool - top,
            demand.params.fixture_clearance_m,
            "m",
            remedy=aside,
        ),
        at_least(4, f"{_MOVES}: links above the board", links, LINK_CLEARANCE_M, "m", remedy=aside),
        at_least(4, f"{_MOVES}: distance from the base", base, BASE_CLEARANCE_M, "m", remedy=aside),
    ]


def _detour(joints: NDArray[np.float64], direct: NDArray[np.float64]) -> float:
    """Return the largest difference from the move that the export writes [rad]; infinite if it takes another time."""
    return float(np.abs(joints - direct).max()) if joints.shape == direct.shape else np.inf


def _moves(
    files: ExportFiles, demand: Demand
) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]]:
    """Return name, joints, and the poses where each move must begin and end."""
    ready = demand.robot.ready_pose_rad
    for variant in (files.cut, files.air):
        q = variant.joints
        yield f"{variant.name}, {TO_START}", variant.to_start, ready, q[0]
        yield f"{variant.name}, {TO_READY}", variant.to_ready, q[-1], ready


def worst_of(groups: list[list[Check]]) -> list[Check]:
    """Return, for the same check on several moves, the one with the smallest margin."""
    return [
        min(same, key=lambda check: -np.inf if check.margin is None else check.margin)
        for same in zip(*groups, strict=True)
    ]


def _duration(first: NDArray[np.float64], last: NDArray[np.float64], demand: Demand) -> float:
    """Return the shortest duration within the limits [s].

    A quintic step peaks at 1.875, 5.774 and 60 of its mean rates.
    """
    robot: Robot = demand.robot
    far = np.abs(last - first)
    needs = [
        _LEAST_S,
        (1.875 * far / (_USED * SPEED_SHARE * robot.velocity_rad_s)).max(),
        np.sqrt((5.774 * far / (_USED * ACCELERATION_SHARE * robot.acceleration_rad_s2)).max()),
        np.cbrt((60.0 * far / (_USED * JERK_SHARE * robot.jerk_rad_s3)).max()),
    ]
    trial = edge_poses(_quintic(first, last, 1.0), demand)
    half = 0.5 * demand.cell.blade_length_m
    for offset in (-half, 0.0, half):
        track = trial[:, :3, 3] + offset * trial[:, :3, 2]
        needs.append(float(np.linalg.norm(rates(track)[0], axis=1).max()) / _KNIFE_SPEED_M_S)
    return float(max(needs))


def _quintic(first: NDArray[np.float64], last: NDArray[np.float64], duration_s: float) -> NDArray[np.float64]:
    # A whole number of waypoints, so that the 100 Hz trajectory has one where move and motion join.
    steps = WAYPOINT_STRIDE * int(np.ceil(duration_s / PERIOD_S / WAYPOINT_STRIDE))
    s = np.linspace(0.0, 1.0, steps + 1)[:, None]
    joints = first + s**3 * (10.0 + s * (6.0 * s - 15.0)) * (last - first)
    joints[-1] = last
    return np.asarray(joints)
