"""Robots: data files with limits, masses and names, forward kinematics and Jacobian, and the arm in the viewer."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from stages.runtime.describe import SharedSection, one_of
from stages.runtime.errors import InputError
from stages.runtime.files import sha256_of_file

# Forward kinematics and Jacobian of a serial arm of revolute joints, from its Denavit–Hartenberg table


@dataclass(frozen=True)
class LinkTable:
    """Craig's (modified) Denavit–Hartenberg parameters, one number per joint, shape [joint_count] each."""

    a_m: NDArray[np.float64]
    d_m: NDArray[np.float64]
    alpha_rad: NDArray[np.float64]
    theta_rad: NDArray[np.float64]
    """Offset added to each joint's angle."""
    flange_m: float
    """Distance from the last joint's frame to the flange, along its axis."""

    def __len__(self) -> int:
        return len(self.a_m)


def joint_poses(table: LinkTable, joints: NDArray[Any]) -> NDArray[Any]:
    """Return poses of the joint frames in the base frame, shape [n, joint_count, 4, 4].

    joints [rad], [n, joint_count]; complex joints are allowed: the imaginary part is then a derivative (complex step).
    """
    pose = np.broadcast_to(np.eye(4), (len(joints), 4, 4))
    poses = []
    rows = zip(table.a_m, table.d_m, table.alpha_rad, table.theta_rad, joints.T, strict=True)
    for a, d, alpha, offset, angle in rows:
        pose = pose @ _link(a, d, alpha, angle + offset)
        poses.append(pose)
    return np.stack(poses, axis=1)


def flange_pose(table: LinkTable, joints: NDArray[Any]) -> NDArray[Any]:
    """Return the pose of the flange in the base frame [m], shape [n, 4, 4], for joints [rad], [n, joint_count]."""
    return joint_poses(table, joints)[:, -1] @ _flange(table)


def jacobian(table: LinkTable, joints: NDArray[Any], tool: NDArray[np.float64] | None = None) -> NDArray[Any]:
    """Return the base-frame Jacobian of the tool's origin, linear rows above angular ones, shape [n, 6, joint_count].

    Args:
        table: The arm.
        joints: Joint angles [rad], shape [n, joint_count].
        tool: Pose of the tool in the flange's frame [m], shape [4, 4]; None means the flange.
    """
    poses = joint_poses(table, joints)
    end = poses[:, -1] @ _flange(table) @ (np.eye(4) if tool is None else tool)
    axes = poses[:, :, :3, 2]
    arms = end[:, None, :3, 3] - poses[:, :, :3, 3]
    return np.concatenate([np.cross(axes, arms), axes], axis=2).transpose(0, 2, 1)


def jacobian_rate(
    table: LinkTable,
    joints: NDArray[np.float64],
    rates: NDArray[np.float64],
    tool: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Return the time derivative of the Jacobian at joint rates [rad/s], shape [n, 6, joint_count].

    By complex step, which has no cancellation: exact to rounding.
    """
    step = 1e-30
    return np.asarray(jacobian(table, joints + 1j * step * rates, tool).imag / step)


def _flange(table: LinkTable) -> NDArray[np.float64]:
    offset = np.eye(4)
    offset[2, 3] = table.flange_m
    return offset


def _link(a: float, d: float, alpha: float, angle: NDArray[Any]) -> NDArray[Any]:
    """Return the pose of a joint's frame in the previous one, shape [n, 4, 4]."""
    c, s = np.cos(angle), np.sin(angle)
    ca, sa = np.cos(alpha), np.sin(alpha)
    pose = np.zeros((len(angle), 4, 4), c.dtype)
    pose[:, 0, 0], pose[:, 0, 1], pose[:, 0, 3] = c, -s, a
    pose[:, 1, 0], pose[:, 1, 1], pose[:, 1, 2], pose[:, 1, 3] = s * ca, c * ca, -sa, -d * sa
    pose[:, 2, 0], pose[:, 2, 1], pose[:, 2, 2], pose[:, 2, 3] = s * sa, c * sa, ca, d * ca
    pose[:, 3, 3] = 1.0
    return pose


# Available robots: one data file each, <name>.json in this folder


FOLDER = Path(__file__).parent

ROBOTS = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""Values that `robot` in params.yaml may have."""


def edge_limits(name: str) -> dict[str, float]:
    """Return speed [m/s], accelerations [m/s²] and rise time [s] of the edge that a search uses with this robot."""
    content = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    limits: dict[str, float] = content["edge_limits"]
    return limits


# Section `arm` of params.yaml: the robot for search, certificate and files


class ArmParams(SharedSection):
    """arm: the robot that cuts."""

    robot: Annotated[str, one_of(ROBOTS)]
    """Name of a file in stages/shared/robots."""


def fill_edge_limits(values: Any) -> Any:
    """Fill null values of a section with the robot's own limits of the edge."""
    arm = values.get("arm") if isinstance(values, dict) else None
    if not isinstance(arm, ArmParams):
        return values
    return values | {
        key: limit for key, limit in edge_limits(arm.robot).items() if values.get(key, 0) is None
    }


_VECTORS = (
    "position_low_rad",
    "position_high_rad",
    "velocity_rad_s",
    "acceleration_rad_s2",
    "jerk_rad_s3",
    "torque_nm",
    "ready_pose_rad",
)
"""Lists of a robot's file with one number per joint."""


@dataclass(frozen=True)
class _Control:
    """Control interface of the robot."""

    run_script: str | None
    """Package of the library with which the exported run_cut.py moves it; None if not supported."""
    clients: dict[str, str]
    """If run_cut.py is not supported: exported file → a program that can play it on this robot."""


@dataclass(frozen=True)
class _Capsule:
    """A capsule around a part of the arm, in the frame of its joint."""

    link: int
    """Index of the joint whose frame it moves with; 0 is the base."""
    from_m: NDArray[np.float64]
    to_m: NDArray[np.float64]
    radius_m: float


@dataclass(frozen=True)
class Robot:
    """One arm; arrays over its joints have shape [joint_count] unless stated otherwise."""

    name: str
    title: str
    joint_names: tuple[str, ...]
    frame_names: tuple[str, ...]
    """ROS names of the base, the joints' frames and the flange."""
    table: LinkTable
    control: _Control
    origin: dict[str, str]
    """Sources of the numbers."""
    position_low_rad: NDArray[np.float64]
    position_high_rad: NDArray[np.float64]
    velocity_rad_s: NDArray[np.float64]
    acceleration_rad_s2: NDArray[np.float64]
    jerk_rad_s3: NDArray[np.float64]
    torque_nm: NDArray[np.float64]
    edge_acceleration_m_s2: float
    edge_jerk_m_s3: float
    ready_pose_rad: NDArray[np.float64]
    link_mass_kg: NDArray[np.float64]
    link_com_m: NDArray[np.float64]
    """Centres of mass in the joint frames [m], shape [joint_count, 3]."""
    link_inertia_kg_m2: NDArray[np.float64]
    """Inertia about the centres of mass, in the joint frames, shape [joint_count, 3, 3]."""
    elbow: int
    """Index of the joint whose height is the elbow's."""
    wrist: int
    """Index of the first link of the wrist; from there on the arm must stay away from its own base."""
    base: _Capsule
    capsules: tuple[_Capsule, ...]
    """Capsules around the links that can come near the board."""
    flange_radius_m: float
    file_sha256: str


def load_robot(name: str) -> Robot:
    """Load the robot of the file stages/shared/robots/<name>.json."""
    if name not in ROBOTS:
        raise InputError(
            f"The robot is {name!r}. It must be one of {', '.join(ROBOTS)}. Choose one, or add "
            f"stages/shared/robots/{name}.json."
        )
    path = FOLDER / f"{name}.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    try:
        robot = _robot_of(content, sha256_of_file(path))
    except KeyError as error:
        raise InputError(
            f"{path.name} in stages/shared/robots has no {error}. It must have every key of panda.json. Add it."
        ) from error
    _check_counts(robot, path.name)
    return robot


def _check_counts(robot: Robot, file: str) -> None:
    """Reject a file with lists of different lengths, or an arm that can't bring its flange to any pose."""
    count = len(robot.table)
    per_joint = {name: len(getattr(robot, name)) for name in ("joint_names", *_VECTORS, "link_mass_kg")} | {
        name: len(getattr(robot.table, name)) for name in ("d_m", "alpha_rad", "theta_rad")
    }
    wrong = [f"{name} has {length}" for name, length in per_joint.items() if length != count]
    if len(robot.frame_names) != count + 2:
        wrong.append(f"frame_names has {len(robot.frame_names)}, not base, joints and flange")
    if wrong or not 6 <= count <= 7:
        raise InputError(
            f"{file} in stages/shared/robots: {', '.join([f'a_m has {count}', *wrong])}. An arm must have 6 or 7 "
            "revolute joints and one entry per joint in every list. Correct it."
        )


def _robot_of(content: dict[str, Any], file_sha256: str) -> Robot:
    vector = {key: np.array(content[key]) for key in _VECTORS}
    control = content["control"]
    return Robot(
        name=content["name"],
        title=content["title"],
        joint_names=tuple(content["joint_names"]),
        frame_names=tuple(content["frame_names"]),
        table=_table(content["kinematics"]),
        control=_Control(control["run_script"], control["clients"]),
        origin=content["origin"],
        edge_acceleration_m_s2=content["edge_acceleration_m_s2"],
        edge_jerk_m_s3=content["edge_jerk_m_s3"],
        link_mass_kg=np.array([link["mass_kg"] for link in content["links"]]),
        link_com_m=np.array([link["com_m"] for link in content["links"]]),
        link_inertia_kg_m2=np.stack([_inertia(link["inertia_kg_m2"]) for link in content["links"]]),
        elbow=content["elbow_joint"],
        wrist=content["wrist_link"],
        base=_capsule({"link": 0, **content["base"]}),
        capsules=tuple(_capsule(capsule) for capsule in content["capsules"]),
        flange_radius_m=content["flange_radius_m"],
        file_sha256=file_sha256,
        **vector,
    )


def _table(content: dict[str, Any]) -> LinkTable:
    a, d, alpha, theta = (np.array(content[key], float) for key in ("a_m", "d_m", "alpha_rad", "theta_rad"))
    return LinkTable(a, d, alpha, theta, float(content["flange_m"]))


def limits_of(robot: Robot) -> dict[str, Any]:
    """Return the limits as plain values, for files."""
    names = ("position_low_rad", "position_high_rad", "velocity_rad_s", "acceleration_rad_s2", "jerk_rad_s3")
    plain: dict[str, Any] = {name: getattr(robot, name).tolist() for name in (*names, "torque_nm")}
    plain["edge_acceleration_m_s2"] = robot.edge_acceleration_m_s2
    plain["edge_jerk_m_s3"] = robot.edge_jerk_m_s3
    plain["origin"] = robot.origin["limits"]
    return plain


def _capsule(content: dict[str, Any]) -> _Capsule:
    return _Capsule(
        content["link"],
        np.array(content["from_m"], float),
        np.array(content["to_m"], float),
        content["radius_m"],
    )


def _inertia(i: dict[str, float]) -> NDArray[np.float64]:
    return np.array([[i["xx"], i["xy"], i["xz"]], [i["xy"], i["yy"], i["yz"]], [i["xz"], i["yz"], i["zz"]]])


# The arm in the viewer: its links as capsules and the knife's fixture, in the cutting frame, frame by frame


_CUT = "cut"
_DIGITS = 4
"""Digits of the positions: tenths of a millimetre."""


def arm_of(document: dict[str, Any], times_s: list[float]) -> dict[str, Any] | None:
    """Return what the page draws of the arm at times of the cut [s]; None if the document has no motion of a known
    robot.

    `ends` has shape [frames, capsules, 2, 3] and `box` is the fixture's, relative to the knife's edge; all in metres in
    the cutting frame. The first capsule is the base.
    """
    try:
        robot = load_robot(document["robot"]["name"])
        start = next(p["start_s"] for p in document["timing"]["phases"] if p["phase"] == _CUT)
        rows = document["waypoints"]
        row_times = np.array([row["time_s"] for row in rows], float)
        joints = np.array([row["q_rad"] for row in rows], float)
        o_t_c = np.array(document["frames"]["O_T_C"], float)
        box = [document["tool"][key] for key in ("fixture_low_m", "fixture_high_m")]
        at = np.array(times_s) + start
        q = np.stack([np.interp(at, row_times, column) for column in joints.T], axis=1)
        poses = joint_poses(robot.table, q)
    except (KeyError, TypeError, ValueError, IndexError, StopIteration, InputError):
        return None
    still = np.broadcast_to(np.eye(4), (len(q), 4, 4))
    capsules = (robot.base, *robot.capsules)
    ends = [
        [_moved(still if c.link == 0 else poses[:, c.link - 1], end) for end in (c.from_m, c.to_m)]
        for c in capsules
    ]
    placed = (np.moveaxis(np.array(ends), 2, 0) - o_t_c[:3, 3]) @ o_t_c[:3, :3]
    return {
        "title": robot.title,
        "ends": np.round(placed, _DIGITS).tolist(),
        "radius": [c.radius_m for c in capsules],
        "box": box,
    }


def _moved(poses: NDArray[np.float64], point: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(poses[:, :3, :3] @ point + poses[:, :3, 3])
