"""trajectory_msgs/JointTrajectory as YAML text and as an MCAP bag, and both read back."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

MESSAGE = "trajectory_msgs/msg/JointTrajectory"
TOPIC = "/joint_trajectory"
NANOSECONDS = 1_000_000_000


@dataclass(frozen=True)
class Trajectory:
    """Joint waypoints; arrays of shape [n, joint_count]."""

    joint_names: tuple[str, ...]
    time_ns: NDArray[np.int64]
    """From the start, shape [n]."""
    position: NDArray[np.float64]
    velocity: NDArray[np.float64]
    acceleration: NDArray[np.float64]


def yaml_bytes(trajectory: Trajectory) -> bytes:
    """The message as ROS prints it."""
    points = [
        {
            "positions": q.tolist(),
            "velocities": dq.tolist(),
            "accelerations": ddq.tolist(),
            "time_from_start": {"sec": int(t // NANOSECONDS), "nanosec": int(t % NANOSECONDS)},
        }
        for t, q, dq, ddq in _rows(trajectory)
    ]
    message = {
        "header": {"stamp": {"sec": 0, "nanosec": 0}, "frame_id": ""},
        "joint_names": list(trajectory.joint_names),
        "points": points,
    }
    dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    return yaml.dump(message, Dumper=dumper, sort_keys=False, default_flow_style=None, width=400).encode()


def read_yaml(data: bytes) -> Trajectory:
    """The trajectory of YAML text."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    message = yaml.load(data, Loader=loader)
    points = message["points"]
    times = [p["time_from_start"]["sec"] * NANOSECONDS + p["time_from_start"]["nanosec"] for p in points]
    return Trajectory(
        tuple(message["joint_names"]),
        np.array(times, np.int64),
        np.array([p["positions"] for p in points], float),
        np.array([p["velocities"] for p in points], float),
        np.array([p["accelerations"] for p in points], float),
    )


def mcap_bytes(trajectory: Trajectory) -> bytes:
    """A bag with the one message at time zero; the same trajectory gives the same bytes."""
    from rosbags.rosbag2 import StoragePlugin, Writer

    store = message_types()
    point, duration = (
        store.types[name]
        for name in ("trajectory_msgs/msg/JointTrajectoryPoint", "builtin_interfaces/msg/Duration")
    )
    points = [
        point(
            positions=q,
            velocities=dq,
            accelerations=ddq,
            effort=np.zeros(0),
            time_from_start=duration(sec=int(t // NANOSECONDS), nanosec=int(t % NANOSECONDS)),
        )
        for t, q, dq, ddq in _rows(trajectory)
    ]
    stamp = store.types["builtin_interfaces/msg/Time"](sec=0, nanosec=0)
    header = store.types["std_msgs/msg/Header"](stamp=stamp, frame_id="")
    message = store.types[MESSAGE](header=header, joint_names=list(trajectory.joint_names), points=points)
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "joint_trajectory"
        with Writer(bag, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
            connection = writer.add_connection(TOPIC, MESSAGE, typestore=store)
            writer.write(connection, 0, store.serialize_cdr(message, MESSAGE))
        return next(bag.glob("*.mcap")).read_bytes()


def read_mcap(path: Path) -> Trajectory:
    """The trajectory of the first message in a bag."""
    from rosbags.rosbag2 import Reader

    with Reader(path) as reader:
        _, _, raw = next(iter(reader.messages()))
    message: Any = message_types().deserialize_cdr(raw, MESSAGE)
    times = [p.time_from_start.sec * NANOSECONDS + p.time_from_start.nanosec for p in message.points]
    return Trajectory(
        tuple(message.joint_names),
        np.array(times, np.int64),
        np.array([p.positions for p in message.points]),
        np.array([p.velocities for p in message.points]),
        np.array([p.accelerations for p in message.points]),
    )


def same(first: Trajectory, second: Trajectory) -> bool:
    """Bit for bit."""
    return first.joint_names == second.joint_names and all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("time_ns", "position", "velocity", "acceleration")
    )


def _rows(trajectory: Trajectory) -> Any:
    return zip(
        trajectory.time_ns.tolist(),
        trajectory.position,
        trajectory.velocity,
        trajectory.acceleration,
        strict=True,
    )


def message_types() -> Any:
    """ROS 2 message classes and their serialisation."""
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)
