"""Joint motion of a whole cut: one smooth branch of the inverse kinematics, and its derivatives.

Six or seven joints follow a pose of six numbers. With seven, the additional condition is linear in the joints and fixed
for the whole motion: no motion along the null space of one reference posture, weighted by the joints' acceleration
limits. So the joints are a smooth function of the edge's pose alone, without drift, and nearly those of least
acceleration effort. With six there is no such condition, but several postures to choose from.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stages.runtime.errors import InputError
from stages.shared.robots.robot import LinkTable, Robot, flange_pose, jacobian, jacobian_rate, joint_poses

_MAX_ITERATIONS = 60
_MAX_STEP_RAD = 0.2
_CONVERGED_RAD = 1e-14
"""Newton stops when no joint of any sample moves more: a few roundings of a radian."""
_SWEEP_STEP_RAD = 0.04
_SWEEP_STEPS = 30
"""Number of postures tried on each side of the first one, along the null space."""
_SEEDS = 64
"""Number of random postures from which the solutions of a six-joint arm are searched."""
_NEARNESS_M_RAD = 0.05
"""Height of the elbow that is equivalent to one radian of distance to the ready pose."""
_POSE_NUMBERS = 6
_WANTED_MARGIN_RAD = 0.3
_WANTED_SIGMA = 0.1
"""A reference posture this far from limits and singularities leaves room for the motion around it."""


@dataclass(frozen=True)
class Posture:
    """A reference posture and the conditions that tie the null space to it."""

    table: LinkTable
    joints: NDArray[np.float64]
    """Joint angles [rad], shape [joint_count]."""
    conditions: NDArray[np.float64]
    """Rows c of the conditions c · (q - joints) = 0, shape [joint_count - 6, joint_count]."""


@dataclass(frozen=True)
class JointMotion:
    """Joint angles [rad] and derivatives [rad/s, rad/s²], shape [n, joint_count] each."""

    position: NDArray[np.float64]
    velocity: NDArray[np.float64]
    acceleration: NDArray[np.float64]


def choose_posture(robot: Robot, target: NDArray[np.float64]) -> Posture:
    """Return the posture at the flange pose [4, 4] with the highest elbow, away from limits and singularities.

    With seven joints it walks along the null space from a first solution in both directions. A high elbow stays clear
    of board and people; the joint accelerations that a cut needs differ little along the null space. With six it
    compares the solutions found from random postures, and prefers those near the ready pose.
    """
    if len(robot.table) == _POSE_NUMBERS:
        return _free(robot, min(_solutions(robot, target), key=lambda joints: _cost(robot, joints)))
    start = solve(_free(robot, robot.ready_pose_rad), target[None])[0]
    postures = [start, *_walk(robot, start, target, 1.0), *_walk(robot, start, target, -1.0)]
    best = min(postures, key=lambda joints: _cost(robot, joints))
    return _free(robot, best)


def solve(posture: Posture, targets: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return joint angles [rad], shape [n, joint_count], for flange poses [n, 4, 4].

    Raise InputError if out of reach.
    """
    q = np.broadcast_to(posture.joints, (len(targets), len(posture.table))).copy()
    previous = np.inf
    for _ in range(_MAX_ITERATIONS):
        residual = np.concatenate(
            [_pose_error(posture.table, q, targets), -(q - posture.joints) @ posture.conditions.T], axis=1
        )
        try:
            step = np.linalg.solve(_square(q, posture), residual[..., None])[..., 0]
        except np.linalg.LinAlgError as error:
            raise _out_of_reach(targets) from error
        largest = np.abs(step).max()
        q += step * np.minimum(
            1.0, _MAX_STEP_RAD / np.maximum(np.abs(step).max(axis=1, keepdims=True), 1e-300)
        )
        if largest < _CONVERGED_RAD or (largest < 1e-12 and not largest < 0.5 * previous):
            return q
        previous = largest
    raise _out_of_reach(targets)


def follow(
    posture: Posture,
    targets: NDArray[np.float64],
    velocity: NDArray[np.float64],
    acceleration: NDArray[np.float64],
) -> JointMotion:
    """Return the joint motion for flange poses [n, 4, 4].

    Velocity [m/s, rad/s] and acceleration [m/s², rad/s²] are those of the flange in the base frame, linear numbers
    before angular ones, shape [n, 6]; [n, 3] if it does not rotate.
    """
    q = solve(posture, targets)
    square = _square(q, posture)
    rest = np.zeros((len(q), len(posture.table) - velocity.shape[1]))
    dq = np.linalg.solve(square, np.concatenate([velocity, rest], axis=1)[..., None])[..., 0]
    bias = np.zeros_like(q)
    bias[:, :_POSE_NUMBERS] = np.einsum("nij,nj->ni", jacobian_rate(posture.table, q, dq), dq)
    target_acceleration = np.concatenate([acceleration, rest], axis=1) - bias
    ddq = np.linalg.solve(square, target_acceleration[..., None])[..., 0]
    return JointMotion(q, dq, np.asarray(ddq, np.float64))


def smallest_singular_value(table: LinkTable, q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the smallest singular value of the flange's Jacobian (metres and radians mixed), shape [n]."""
    return np.asarray(np.linalg.svd(jacobian(table, q), compute_uv=False)[:, -1])


def _free(robot: Robot, q: NDArray[np.float64]) -> Posture:
    """Return the posture with the condition of least motion, in units of the joints' acceleration limits."""
    null = np.linalg.svd(jacobian(robot.table, q[None])[0] * robot.acceleration_rad_s2)[2][_POSE_NUMBERS:]
    conditions = null / robot.acceleration_rad_s2
    return Posture(robot.table, q, conditions / np.linalg.norm(conditions, axis=1, keepdims=True))


def _solutions(robot: Robot, target: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Return the postures within limits that Newton's method finds at the pose, from ready and random postures."""
    generator = np.random.default_rng(0)
    low, high = robot.position_low_rad, robot.position_high_rad
    ready = robot.ready_pose_rad
    spread = np.minimum(np.pi, np.minimum(ready - low, high - ready))
    drawn = ready + spread * generator.uniform(-1.0, 1.0, (_SEEDS, len(ready)))
    solutions = []
    for seed in (ready, *drawn):
        try:
            q = solve(_free(robot, seed), target[None])[0]
        except InputError:
            continue
        q = ready + np.mod(q - ready + np.pi, 2.0 * np.pi) - np.pi
        if _margin(robot, q) > 0.0:
            solutions.append(q)
    if not solutions:
        raise _out_of_reach(target[None])
    return solutions


def _walk(
    robot: Robot, start: NDArray[np.float64], target: NDArray[np.float64], sign: float
) -> list[NDArray[np.float64]]:
    postures: list[NDArray[np.float64]] = []
    q, heading = start, None
    for _ in range(_SWEEP_STEPS):
        null = np.linalg.svd(jacobian(robot.table, q[None])[0])[2][-1]
        if heading is not None and null @ heading < 0.0:
            null = -null
        elif heading is None:
            null = sign * null
        heading = null
        try:
            q = solve(_free(robot, q + _SWEEP_STEP_RAD * null), target[None])[0]
        except InputError:
            break
        if _margin(robot, q) < 0.0:
            break
        postures.append(q)
    return postures


def _cost(robot: Robot, q: NDArray[np.float64]) -> float:
    """Return the cost of a posture: depth of the elbow [m], plus penalties near limits and singularities."""
    shortfall = max(0.0, _WANTED_MARGIN_RAD - _margin(robot, q)) / _WANTED_MARGIN_RAD
    shortfall += (
        max(0.0, _WANTED_SIGMA - float(smallest_singular_value(robot.table, q[None])[0])) / _WANTED_SIGMA
    )
    far = _NEARNESS_M_RAD * float(np.abs(q - robot.ready_pose_rad).max()) if len(q) == _POSE_NUMBERS else 0.0
    return 10.0 * shortfall + far - float(joint_poses(robot.table, q[None])[0, robot.elbow - 1, 2, 3])


def _margin(robot: Robot, q: NDArray[np.float64]) -> float:
    return float(np.minimum(q - robot.position_low_rad, robot.position_high_rad - q).min())


def _square(q: NDArray[np.float64], posture: Posture) -> NDArray[np.float64]:
    rows = np.broadcast_to(posture.conditions, (len(q), *posture.conditions.shape))
    return np.concatenate([jacobian(posture.table, q), rows], axis=1)


def _pose_error(
    table: LinkTable, q: NDArray[np.float64], targets: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return translation [m] and small rotation [rad] from the pose at q to the target, shape [n, 6]."""
    pose = flange_pose(table, q)
    turn = targets[:, :3, :3] @ pose[:, :3, :3].transpose(0, 2, 1)
    axis = 0.5 * np.stack(
        [turn[:, 2, 1] - turn[:, 1, 2], turn[:, 0, 2] - turn[:, 2, 0], turn[:, 1, 0] - turn[:, 0, 1]], axis=1
    )
    return np.concatenate([targets[:, :3, 3] - pose[:, :3, 3], axis], axis=1)


def _out_of_reach(targets: NDArray[np.float64]) -> InputError:
    low, high = targets[:, :3, 3].min(axis=0), targets[:, :3, 3].max(axis=0)
    return InputError(
        f"The robot can't bring its flange to x {low[0]:.3f}..{high[0]:.3f}, y {low[1]:.3f}..{high[1]:.3f}, "
        f"z {low[2]:.3f}..{high[2]:.3f} m with this tool. The whole motion must be within reach. Change "
        "export.board_position_m, export.blade_yaw_deg or the tool (export.edge_offset_m, export.blade_angle_deg)."
    )
