"""The robots: limits, link masses and names, read from one data file each."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.runtime.hashing import sha256_of_file
from stages.shared.kinematics import LinkTable
from stages.shared.robots.names import FOLDER, ROBOTS

VECTORS = (
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
class Control:
    """How the robot is made to move."""

    run_script: str | None
    """Package of the library with which the exported run_cut.py moves it; None if it can't."""
    clients: dict[str, str]
    """Where run_cut.py can't: exported file → a program that can play it on this robot."""


@dataclass(frozen=True)
class Capsule:
    """A rounded cylinder around a part of the arm, in the frame of its joint."""

    link: int
    """Number of the joint whose frame it moves with; 0 is the base."""
    from_m: NDArray[np.float64]
    to_m: NDArray[np.float64]
    radius_m: float


@dataclass(frozen=True)
class Robot:
    """One arm; arrays over its joints have shape [joint_count] unless said otherwise."""

    name: str
    title: str
    joint_names: tuple[str, ...]
    frame_names: tuple[str, ...]
    """As ROS names them: the base, the joints' frames, the flange."""
    table: LinkTable
    control: Control
    origin: dict[str, str]
    """Where the numbers come from."""
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
    """Number of the joint whose height is the elbow's."""
    wrist: int
    """Number of the first link of the wrist, from which on the arm must stay away from its own base."""
    base: Capsule
    capsules: tuple[Capsule, ...]
    """Around the links that can come near the board."""
    flange_radius_m: float
    file_sha256: str


def load_robot(name: str) -> Robot:
    """The robot of the file stages/shared/robots/<name>.json."""
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
            f"{path.name} in stages/shared/robots has no {error}. A robot has everything that panda.json has. Add it."
        ) from error
    _check_counts(robot, path.name)
    return robot


def _check_counts(robot: Robot, file: str) -> None:
    """Refuse a file whose lists are of different lengths, or an arm that can't bring its flange to any pose."""
    count = len(robot.table)
    per_joint = {name: len(getattr(robot, name)) for name in ("joint_names", *VECTORS, "link_mass_kg")} | {
        name: len(getattr(robot.table, name)) for name in ("d_m", "alpha_rad", "theta_rad")
    }
    wrong = [f"{name} has {found}" for name, found in per_joint.items() if found != count]
    if len(robot.frame_names) != count + 2:
        wrong.append(f"frame_names has {len(robot.frame_names)}, not base, joints and flange")
    if wrong or not 6 <= count <= 7:
        raise InputError(
            f"{file} in stages/shared/robots: {', '.join([f'a_m has {count}', *wrong])}. An arm has 6 or 7 turning "
            "joints and one entry per joint in every list. Correct it."
        )


def _robot_of(content: dict[str, Any], file_sha256: str) -> Robot:
    vector = {key: np.array(content[key]) for key in VECTORS}
    control = content["control"]
    return Robot(
        name=content["name"],
        title=content["title"],
        joint_names=tuple(content["joint_names"]),
        frame_names=tuple(content["frame_names"]),
        table=_table(content["kinematics"]),
        control=Control(control["run_script"], control["clients"]),
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
    """The limits as plain values, for files."""
    names = ("position_low_rad", "position_high_rad", "velocity_rad_s", "acceleration_rad_s2", "jerk_rad_s3")
    plain: dict[str, Any] = {name: getattr(robot, name).tolist() for name in (*names, "torque_nm")}
    plain["edge_acceleration_m_s2"] = robot.edge_acceleration_m_s2
    plain["edge_jerk_m_s3"] = robot.edge_jerk_m_s3
    plain["origin"] = robot.origin["limits"]
    return plain


def _capsule(content: dict[str, Any]) -> Capsule:
    return Capsule(
        content["link"],
        np.array(content["from_m"], float),
        np.array(content["to_m"], float),
        content["radius_m"],
    )


def _inertia(i: dict[str, float]) -> NDArray[np.float64]:
    return np.array([[i["xx"], i["xy"], i["xz"]], [i["xy"], i["yy"], i["yz"]], [i["xz"], i["yz"], i["zz"]]])
