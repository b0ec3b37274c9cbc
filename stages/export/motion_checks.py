"""Checks 2 and 3: joint limits by differences of the file, and forward kinematics against the target edge motion."""

import numpy as np
from numpy.typing import NDArray

from stages.export.cell import corners_of, pitched
from stages.export.checks import AGAIN, Check, at_least, at_most, otherwise
from stages.export.demand import Demand
from stages.export.export_files import ExportFiles, Variant
from stages.export.inverse import smallest_singular_value
from stages.export.waypoints import CUT, PERIOD_S, WAYPOINT_STRIDE, whole_motion
from stages.shared.robots.robot import flange_pose

POSITION_MARGIN_RAD = 0.1
SPEED_SHARE, ACCELERATION_SHARE, JERK_SHARE = 0.5, 0.6, 0.2
"""Fractions of the robot's limits that a cut may use."""
_KNIFE_SPEED_M_S = 0.25
_SLOWER = (
    "Select the arm in arm.robot and optimise for it, or lower optimize.max_acceleration_* or max_speed_m_s"
)
_MOVE_BOARD = "Move or turn the board (export.board_position_m, export.blade_yaw_deg)"
POSE_M, _POSE_RAD = 1e-6, 1e-6
_BRANCH_STEP_RAD = 0.01
"""Largest joint step in one cycle; a jump between two solutions of the inverse kinematics is far larger."""
SIGMA_MIN = 0.08
_WAYPOINT_RAD_S, _WAYPOINT_RAD_S2 = 1e-3, 0.1
"""Permitted difference of the waypoints' derivatives from differences of the 1 kHz file."""
_INTERPOLATION_RAD = 1e-4
"""Largest deviation of a quintic spline through the 100 Hz waypoints from the 1 kHz file."""


def rates(joints: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
    """Return velocity, acceleration and jerk as the robot sees them, cycle by cycle, at rest before and after.

    Shapes [n + 3 - k, joint_count] for the k-th derivative, in rad and s.
    """
    padded = np.concatenate([joints[:1]] * 3 + [joints] + [joints[-1:]] * 3)
    first = np.diff(padded, axis=0) / PERIOD_S
    second = np.diff(first, axis=0) / PERIOD_S
    return first, second, np.diff(second, axis=0) / PERIOD_S


def edge_poses(joints: NDArray[np.float64], demand: Demand) -> NDArray[np.float64]:
    """Return poses of the edge in the base frame, shape [n, 4, 4]."""
    return flange_pose(demand.robot.table, joints) @ demand.cell.f_t_e


def in_cutting_frame(poses: NDArray[np.float64], demand: Demand) -> NDArray[np.float64]:
    """Return positions [m] in the cutting frame, shape [n, 3], of poses in the base frame."""
    turn, origin = demand.cell.o_t_c[:3, :3], demand.cell.o_t_c[:3, 3]
    return (poses[:, :3, 3] - origin) @ turn


def edge_track(poses: NDArray[np.float64], demand: Demand) -> NDArray[np.float64]:
    """Return the points of the edge in the cutting frame [m], shape [n, point_count, 3], of poses in the base frame."""
    turn = demand.cell.o_t_c[:3, :3].T @ poses[:, :3, :3]
    return np.asarray(in_cutting_frame(poses, demand)[:, None] + demand.cell.edge_m @ turn.transpose(0, 2, 1))


def lowest_heights(poses: NDArray[np.float64], demand: Demand) -> NDArray[np.float64]:
    """Return the height of the edge's lowest point above the board [m], shape [n]."""
    if demand.level:
        return in_cutting_frame(poses, demand)[:, 1]
    return np.asarray(edge_track(poses, demand)[..., 1].min(axis=1))


def heights_over(
    poses: NDArray[np.float64], demand: Demand, places: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the height of the edge above places along the blade's plane [m], shape [n, place_count].

    Infinite where the blade does not reach.
    """
    track = edge_track(poses, demand)
    return np.stack([np.interp(places, row[:, 2], row[:, 1], np.inf, np.inf) for row in track])


def fixture_boxes(
    poses: NDArray[np.float64], demand: Demand
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return low and high corners of boxes around the fixture in the cutting frame [m], shape [n, 3] each."""
    cell, edge = demand.cell, in_cutting_frame(poses, demand)
    if demand.level:
        return edge + cell.fixture_low_m, edge + cell.fixture_high_m
    turn = cell.o_t_c[:3, :3].T @ poses[:, :3, :3]
    corners = edge[:, None] + corners_of(cell.fixture_low_m, cell.fixture_high_m) @ turn.transpose(0, 2, 1)
    return corners.min(axis=1), corners.max(axis=1)


def limits(who: str, q: NDArray[np.float64], demand: Demand) -> list[Check]:
    """Check 2 for joints [rad], shape [n, joint_count]: the cut, the air cut or a move."""
    robot = demand.robot
    margin = np.minimum(q - robot.position_low_rad, robot.position_high_rad - q).min(axis=0)
    checks = [
        at_least(
            2,
            f"{who}: distance to joint limits",
            margin.min(),
            POSITION_MARGIN_RAD,
            "rad",
            f"joint {margin.argmin() + 1}",
            remedy=_MOVE_BOARD,
        )
    ]
    allowed = (robot.velocity_rad_s, robot.acceleration_rad_s2, robot.jerk_rad_s3)
    words = ("joint speed", "joint acceleration", "joint jerk")
    shares = (SPEED_SHARE, ACCELERATION_SHARE, JERK_SHARE)
    for word, rate, limit, share in zip(words, rates(q), allowed, shares, strict=True):
        used = np.abs(rate).max(axis=0) / limit
        checks.append(
            at_most(
                2,
                f"{who}: {word}",
                used.max(),
                share,
                "of the limit",
                f"joint {used.argmax() + 1} of a {robot.title}",
                remedy=_SLOWER,
            )
        )
    track = edge_poses(q, demand)[:, :3, 3]
    speed, push, jerk = (np.linalg.norm(rate, axis=1).max() for rate in rates(track))
    checks += [
        at_most(2, f"{who}: knife speed", speed, _KNIFE_SPEED_M_S, "m/s", remedy=_SLOWER),
        at_most(2, f"{who}: edge acceleration", push, robot.edge_acceleration_m_s2, "m/s²", remedy=_SLOWER),
        at_most(2, f"{who}: edge jerk", jerk, robot.edge_jerk_m_s3, "m/s³", remedy=_SLOWER),
    ]
    if demand.level:
        return checks
    poses = edge_poses(q, demand)
    ends = [rates(poses[:, :3, 3] + along * poses[:, :3, 2]) for along in demand.looked_at_m]
    speed, push, jerk = (max(np.linalg.norm(end[i], axis=1).max() for end in ends) for i in range(3))
    return [
        *checks,
        at_most(2, f"{who}: speed of tip and heel", speed, _KNIFE_SPEED_M_S, "m/s", remedy=_SLOWER),
        at_most(
            2,
            f"{who}: acceleration of tip and heel",
            push,
            robot.edge_acceleration_m_s2,
            "m/s²",
            remedy=_SLOWER,
        ),
        at_most(2, f"{who}: jerk of tip and heel", jerk, robot.edge_jerk_m_s3, "m/s³", remedy=_SLOWER),
    ]


def kinematics(files: ExportFiles, demand: Demand) -> list[Check]:
    """Check 3: the joints place the edge on the waypoints and the optimised motion, approach included."""
    checks = []
    table = files.waypoints
    poses = edge_poses(files.cut.joints[::WAYPOINT_STRIDE], demand)
    stated = table["edge_position_m"].to_numpy()
    if len(stated) != len(poses):
        missing = abs(len(stated) - len(poses))
        return [at_most(3, "waypoints missing", missing, 0, "rows", remedy=AGAIN)]
    checks.append(
        at_most(3, "edge of the joints against the waypoints", _far(poses[:, :3, 3], stated), POSE_M, "m")
    )
    turn = _matrix(table["edge_quaternion_xyzw"].to_numpy())
    tilt = np.abs(poses[:, :3, :3] - turn).max()
    checks.append(at_most(3, "direction of the blade against the waypoints", tilt, _POSE_RAD, "rad"))
    for variant, up in ((files.cut, 0.0), (files.air, demand.params.air_cut_lift_m)):
        poses = edge_poses(variant.joints, demand)
        edge = in_cutting_frame(poses, demand)
        wanted = whole_motion(demand.cut, demand.params, lift_m=up)
        target, gap, tilt = wanted.position, np.inf, np.inf
        if len(edge) == len(target):
            gap = _far(edge, target)
            tilt = np.abs(poses[:, :3, :3] - demand.cell.o_t_c[:3, :3] @ pitched(wanted.pitch)).max()
        step = np.abs(np.diff(variant.joints, axis=0)).max()
        checks += [
            at_most(3, f"{variant.name}: edge against the optimised motion", gap, POSE_M, "m"),
            at_most(3, f"{variant.name}: knife against the cell's directions", tilt, _POSE_RAD, "rad"),
            at_most(3, f"{variant.name}: largest step of a joint", step, _BRANCH_STEP_RAD, "rad"),
            at_least(
                3,
                f"{variant.name}: smallest singular value",
                smallest_singular_value(demand.robot.table, variant.joints).min(),
                SIGMA_MIN,
                "-",
                remedy=_MOVE_BOARD,
            ),
            *_waypoint_rates(variant),
        ]
        if not demand.level and len(edge) == len(target):
            ends = np.array([[0.0, 0.0, along] for along in demand.looked_at_m])
            turned = target[:, None] + ends @ pitched(wanted.pitch).transpose(0, 2, 1)
            turn = demand.cell.o_t_c[:3, :3].T @ poses[:, :3, :3]
            off = np.linalg.norm(edge[:, None] + ends @ turn.transpose(0, 2, 1) - turned, axis=2).max()
            checks.append(
                at_most(3, f"{variant.name}: tip and heel against the optimised motion", off, POSE_M, "m")
            )
    return otherwise(AGAIN, checks)


def cut_phase(files: ExportFiles) -> tuple[int, int]:
    """Return the first and one past the last sample of the cut."""
    phase = next(p for p in files.document["timing"]["phases"] if p["phase"] == CUT)
    return round(phase["start_s"] / PERIOD_S), round(phase["end_s"] / PERIOD_S) + 1


def _waypoint_rates(variant: Variant) -> list[Check]:
    """Compare the 100 Hz trajectory with the 1 kHz files: positions, derivatives, and interpolation between points.

    Both as played: from the ready pose through the motion and back to it.
    """
    from scipy.interpolate import BPoly

    q, points = variant.whole, variant.from_mcap
    time = PERIOD_S * np.arange(len(q))
    if len(points.position) != len(q[::WAYPOINT_STRIDE]):
        return [at_most(3, f"{variant.name}: trajectory points missing", np.inf, 0, "rows")]
    inner = np.arange(WAYPOINT_STRIDE, len(q) - 1, WAYPOINT_STRIDE)
    middle = (q[inner + 1] - q[inner - 1]) / (2.0 * PERIOD_S)
    bend = (q[inner + 1] - 2.0 * q[inner] + q[inner - 1]) / PERIOD_S**2
    derivatives = np.stack([points.position, points.velocity, points.acceleration], axis=1)
    between = BPoly.from_derivatives(time[::WAYPOINT_STRIDE], derivatives)(time)
    rows = slice(1, 1 + len(inner))
    return [
        at_most(
            3,
            f"{variant.name}: waypoint speeds",
            np.abs(points.velocity[rows] - middle).max(),
            _WAYPOINT_RAD_S,
            "rad/s",
        ),
        at_most(
            3,
            f"{variant.name}: waypoint accelerations",
            np.abs(points.acceleration[rows] - bend).max(),
            _WAYPOINT_RAD_S2,
            "rad/s²",
        ),
        at_most(
            3, f"{variant.name}: between the waypoints", np.abs(between - q).max(), _INTERPOLATION_RAD, "rad"
        ),
    ]


def _far(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    return float(np.linalg.norm(first - second, axis=1).max())


def _matrix(quaternion: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.spatial.transform import Rotation

    return np.asarray(Rotation.from_quat(quaternion).as_matrix())
