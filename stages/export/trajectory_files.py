"""trajectory_msgs/JointTrajectory as YAML and MCAP, the recording motion.mcap, and reading both back."""

import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml
from numpy.typing import NDArray

from stages.export.cell import Cell
from stages.export.dynamics import joint_torques
from stages.export.inverse import JointMotion
from stages.shared.robots.robot import Robot, flange_pose, joint_poses

_MESSAGE = "trajectory_msgs/msg/JointTrajectory"
_TOPIC = "/joint_trajectory"
NANOSECONDS = 1_000_000_000
_MAX_DEPTH, _MAX_LINE = 8, 2000
"""Brackets and characters of the YAML text: parsers written in C crash on deep nesting, aliases expand without end."""


@dataclass(frozen=True)
class Trajectory:
    """Joint waypoints; arrays of shape [n, joint_count]."""

    joint_names: tuple[str, ...]
    time_ns: NDArray[np.int64]
    """Time from the start [ns], shape [n]."""
    position: NDArray[np.float64]
    velocity: NDArray[np.float64]
    acceleration: NDArray[np.float64]


def yaml_bytes(trajectory: Trajectory) -> bytes:
    """Return the message as ROS prints it."""
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
    """Read the trajectory from YAML text; raise ValueError for aliases or nesting that the message does not have."""
    depth = np.cumsum(np.isin(list(data), list(b"[{")).astype(int) - np.isin(list(data), list(b"]}")))
    if (
        depth.max(initial=0) > _MAX_DEPTH
        or max(map(len, data.split(b"\n"))) > _MAX_LINE
        or set(data) & set(b"&*")
    ):
        raise ValueError("it has aliases, lines or nesting that a JointTrajectory does not have")
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
    """Return a bag with one message at time zero; the same trajectory gives the same bytes."""
    from rosbags.rosbag2 import StoragePlugin, Writer

    store = _message_types()
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
    message = store.types[_MESSAGE](header=header, joint_names=list(trajectory.joint_names), points=points)
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "joint_trajectory"
        with Writer(bag, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
            connection = writer.add_connection(_TOPIC, _MESSAGE, typestore=store)
            writer.write(connection, 0, store.serialize_cdr(message, _MESSAGE))
        return next(bag.glob("*.mcap")).read_bytes()


def read_mcap(path: Path) -> Trajectory:
    """Read the trajectory of a bag's only message; raise ValueError if it has another number of messages."""
    from rosbags.rosbag2 import Reader

    _refuse_compressed(path)
    with Reader(path) as reader:
        raws = [raw for _, _, raw in reader.messages()]
    if len(raws) != 1:
        raise ValueError(f"it has {len(raws)} messages, not one")
    message: Any = _message_types().deserialize_cdr(raws[0], _MESSAGE)
    times = [p.time_from_start.sec * NANOSECONDS + p.time_from_start.nanosec for p in message.points]
    return Trajectory(
        tuple(message.joint_names),
        np.array(times, np.int64),
        np.array([p.positions for p in message.points]),
        np.array([p.velocities for p in message.points]),
        np.array([p.accelerations for p in message.points]),
    )


def same(first: Trajectory, second: Trajectory) -> bool:
    """Return True if both are equal bit for bit."""
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


def _message_types() -> Any:
    """Return ROS 2 message classes and their serialisation."""
    from rosbags.typesys import Stores, get_typestore

    return get_typestore(Stores.ROS2_HUMBLE)


# A bag as the export writes it: no record more, less or different, wherever a player looks for it


_HEADER, _FOOTER, _CHANNEL, _SCHEMA, _MESSAGE_RECORD, _CHUNK = 1, 2, 4, 3, 5, 6
_MAGIC_BYTES, _RECORD = 8, struct.Struct("<BQ")
_SHIFTED = (_HEADER, _FOOTER, 8, 14, 15)
"""Records with the writer's version, offsets or checksums."""
_STAMP_BYTES = 22
"""Channel, sequence number and two times before a message's content."""


def same_bag(data: bytes, expected: bytes, *, tolerance: float = 0.0) -> bool:
    """Return True if both MCAP files have the same records; numbers of a message may differ by the tolerance.

    The header with the version of rosbags may differ, and what follows from its length.
    """
    if data == expected:
        return True
    records, others = list(_records(data)), list(_records(expected))
    if [kind for kind, _ in records] != [kind for kind, _ in others]:
        return False
    kinds = _kinds(expected)
    for (kind, content), (_, other) in zip(records, others, strict=True):
        if content == other or kind in _SHIFTED:
            continue
        stamp = content[:_STAMP_BYTES]
        if kind != _MESSAGE_RECORD or not tolerance or stamp != other[:_STAMP_BYTES]:
            return False
        (channel,) = struct.unpack_from("<H", content)
        read = (
            _message_types().deserialize_cdr(raw[_STAMP_BYTES:], kinds[channel]) for raw in (content, other)
        )
        if len(content) != len(other) or not _close(_values(next(read)), _values(next(read)), tolerance):
            return False
    return True


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield kind and content of every record, chunks opened; a compressed chunk is never written by the export."""
    position = _MAGIC_BYTES
    while position < len(data) - _MAGIC_BYTES:
        kind, size = _RECORD.unpack_from(data, position)
        position += _RECORD.size
        content = data[position : position + size]
        position += size
        if kind == _CHUNK:
            name_length = struct.unpack_from("<I", content, 28)[0]
            yield kind, content[:24] + content[28 : 40 + name_length]
            yield from _records(bytes(_MAGIC_BYTES) + content[40 + name_length :] + bytes(_MAGIC_BYTES))
        else:
            yield kind, content


def _refuse_compressed(path: Path) -> None:
    """Raise ValueError for a bag whose content could be any size; struct.error for a truncated one."""
    if any(content[-12:-8] != bytes(4) for kind, content in _records(path.read_bytes()) if kind == _CHUNK):
        raise ValueError("its content is compressed, which the export never does")


def _kinds(data: bytes) -> dict[int, str]:
    """Return the message type of each channel of a bag that the export wrote."""
    schemas, kinds = {}, {}
    for kind, content in _records(data):
        if kind == _SCHEMA:
            size = struct.unpack_from("<I", content, 2)[0]
            schemas[struct.unpack_from("<H", content)[0]] = content[6 : 6 + size].decode()
        elif kind == _CHANNEL:
            channel, schema = struct.unpack_from("<HH", content)
            kinds[channel] = schemas[schema]
    return kinds


def _values(message: Any) -> list[Any]:
    """Return all texts and numbers of a message in order."""
    if is_dataclass(message):
        return [value for field in fields(message) for value in _values(getattr(message, field.name))]
    if isinstance(message, list | tuple | np.ndarray):
        return [value for item in message for value in _values(item)]
    return [message]


def _close(first: list[Any], second: list[Any], tolerance: float) -> bool:
    return len(first) == len(second) and all(
        a == b if isinstance(a, str) or isinstance(b, str) else abs(a - b) <= tolerance
        for a, b in zip(first, second, strict=True)
    )


# motion.mcap: joint states, frames and predicted force over time, for Foxglove, RViz or Rerun


_JOINT_STATES, _FRAMES, _WRENCH = "/joint_states", "/tf", "/knife_wrench"
TYPES = {
    _JOINT_STATES: "sensor_msgs/msg/JointState",
    _FRAMES: "tf2_msgs/msg/TFMessage",
    _WRENCH: "geometry_msgs/msg/WrenchStamped",
}
_UPRIGHT = 1e-12
"""Difference of the edge's axes from the cutting frame's that is rounding of a quaternion."""
_EDGE_FRAME, _BOARD_FRAME = "knife_edge", "cutting_frame"


@dataclass(frozen=True)
class Recording:
    """Content of motion.mcap, one row per waypoint."""

    joint_names: tuple[str, ...]
    time_ns: NDArray[np.int64]
    """Time [ns], shape [n]."""
    position: NDArray[np.float64]
    """Joints [rad], shape [n, joint_count]."""
    velocity: NDArray[np.float64]
    effort: NDArray[np.float64]
    """Predicted torques [Nm], shape [n, joint_count]."""
    force: NDArray[np.float64]
    """Predicted force on the knife in the edge's axes [N], shape [n, 3]."""
    edge: NDArray[np.float64]
    """Edge position in the base frame by the chain of frames [m], shape [n, 3]."""


def recording_bytes(table: pl.DataFrame, robot: Robot, cell: Cell) -> bytes:
    """Return the waypoints as a bag: one message per topic and waypoint; the same table gives the same bytes."""
    from rosbags.rosbag2 import StoragePlugin, Writer

    store = _message_types()
    motion = JointMotion(*(table[name].to_numpy() for name in ("q_rad", "dq_rad_s", "ddq_rad_s2")))
    force = table["force_n"].to_numpy()
    couple = table["torque_nm"].to_numpy() if "torque_nm" in table.columns else np.zeros_like(force)
    effort = joint_torques(robot, cell, motion, force, couple)
    axes = edge_axes(table, cell)
    times = np.rint(table["time_s"].to_numpy() * NANOSECONDS).astype(np.int64)
    frames = _frames(robot, cell, motion.position)
    with tempfile.TemporaryDirectory() as folder:
        bag = Path(folder) / "motion"
        with Writer(bag, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
            topics = {
                name: writer.add_connection(name, kind, typestore=store) for name, kind in TYPES.items()
            }
            for i, time in enumerate(times.tolist()):
                messages = {
                    _JOINT_STATES: _joint_state(store, robot, time, motion, effort, i),
                    _FRAMES: _tree(store, time, [(a, b, pose[i]) for a, b, pose in frames]),
                    _WRENCH: _wrench(store, time, force[i] @ axes[i], couple[i] @ axes[i]),
                }
                for name, message in messages.items():
                    writer.write(topics[name], time, store.serialize_cdr(message, TYPES[name]))
        return next(bag.glob("*.mcap")).read_bytes()


def edge_axes(table: pl.DataFrame, cell: Cell) -> NDArray[np.float64]:
    """Return the edge's axes in the base frame at the waypoints, shape [n, 3, 3]."""
    from scipy.spatial.transform import Rotation

    quaternions = table["edge_quaternion_xyzw"].to_numpy()
    axes, upright = np.asarray(Rotation.from_quat(quaternions).as_matrix()), cell.o_t_c[:3, :3]
    return axes if np.abs(axes - upright).max() > _UPRIGHT else np.broadcast_to(upright, axes.shape)


def read_recording(path: Path) -> Recording:
    """Read the bag; raise ValueError if a topic is missing."""
    from rosbags.rosbag2 import Reader

    store = _message_types()
    messages: dict[str, list[Any]] = {name: [] for name in TYPES}
    times = []
    _refuse_compressed(path)
    with Reader(path) as reader:
        for connection, time, raw in reader.messages():
            if connection.topic in messages:
                messages[connection.topic].append(store.deserialize_cdr(raw, TYPES[connection.topic]))
                if connection.topic == _JOINT_STATES:
                    times.append(time)
    if not all(messages.values()):
        raise ValueError(f"{path.name} lacks one of {', '.join(TYPES)}")
    states, wrenches = messages[_JOINT_STATES], [message.wrench.force for message in messages[_WRENCH]]
    return Recording(
        tuple(states[0].name),
        np.array(times, np.int64),
        np.array([s.position for s in states]),
        np.array([s.velocity for s in states]),
        np.array([s.effort for s in states]),
        np.array([[f.x, f.y, f.z] for f in wrenches]),
        np.array([_edge_of(message) for message in messages[_FRAMES]]),
    )


def _frames(robot: Robot, cell: Cell, q: NDArray[np.float64]) -> list[tuple[str, str, NDArray[np.float64]]]:
    """Return parent, child and pose of the child in its parent, shape [n, 4, 4]."""
    base, *links = robot.frame_names
    count = len(q)
    poses = [*np.moveaxis(joint_poses(robot.table, q), 1, 0), flange_pose(robot.table, q)]
    frames, before = [], np.broadcast_to(np.eye(4), (count, 4, 4))
    parent = base
    for name, pose in zip(links, poses, strict=True):
        frames.append((parent, name, np.linalg.inv(before) @ pose))
        parent, before = name, pose
    frames.append((parent, _EDGE_FRAME, np.broadcast_to(cell.f_t_e, (count, 4, 4))))
    frames.append((base, _BOARD_FRAME, np.broadcast_to(cell.o_t_c, (count, 4, 4))))
    return frames


def _edge_of(message: Any) -> NDArray[np.float64]:
    """Follow the frames from the base to the edge."""
    from scipy.spatial.transform import Rotation

    pose = np.eye(4)
    for item in message.transforms:
        if item.child_frame_id == _BOARD_FRAME:
            continue
        step, t, r = np.eye(4), item.transform.translation, item.transform.rotation
        step[:3, 3] = [t.x, t.y, t.z]
        step[:3, :3] = Rotation.from_quat([r.x, r.y, r.z, r.w]).as_matrix()
        pose = pose @ step
    return pose[:3, 3]


def _header(store: Any, time_ns: int, frame: str) -> Any:
    stamp = store.types["builtin_interfaces/msg/Time"](
        sec=time_ns // NANOSECONDS, nanosec=time_ns % NANOSECONDS
    )
    return store.types["std_msgs/msg/Header"](stamp=stamp, frame_id=frame)


def _joint_state(
    store: Any, robot: Robot, time_ns: int, motion: JointMotion, effort: NDArray[np.float64], row: int
) -> Any:
    return store.types[TYPES[_JOINT_STATES]](
        header=_header(store, time_ns, ""),
        name=list(robot.joint_names),
        position=motion.position[row],
        velocity=motion.velocity[row],
        effort=effort[row],
    )


def _tree(store: Any, time_ns: int, frames: list[tuple[str, str, NDArray[np.float64]]]) -> Any:
    from scipy.spatial.transform import Rotation

    kinds = {
        name: store.types[f"geometry_msgs/msg/{name}"]
        for name in ("TransformStamped", "Transform", "Vector3", "Quaternion")
    }
    turns = Rotation.from_matrix(np.stack([pose[:3, :3] for _, _, pose in frames])).as_quat()
    items = [
        kinds["TransformStamped"](
            header=_header(store, time_ns, parent),
            child_frame_id=child,
            transform=kinds["Transform"](
                translation=kinds["Vector3"](*pose[:3, 3].tolist()),
                rotation=kinds["Quaternion"](*turn.tolist()),
            ),
        )
        for (parent, child, pose), turn in zip(frames, turns, strict=True)
    ]
    return store.types[TYPES[_FRAMES]](transforms=items)


def _wrench(store: Any, time_ns: int, force: NDArray[np.float64], couple: NDArray[np.float64]) -> Any:
    vector = store.types["geometry_msgs/msg/Vector3"]
    wrench = store.types["geometry_msgs/msg/Wrench"](
        force=vector(*force.tolist()), torque=vector(*(couple + 0.0).tolist())
    )
    return store.types[TYPES[_WRENCH]](header=_header(store, time_ns, _EDGE_FRAME), wrench=wrench)
