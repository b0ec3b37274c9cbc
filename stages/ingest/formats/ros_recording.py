"""ROS recordings: .bag (ROS 1), .db3 and .mcap (ROS 2), through `rosbags`, which needs no ROS.

Reads Franka's state messages, or otherwise a wrench topic together with a pose or joint topic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.ingest.description import IngestParams
from stages.ingest.log_file import EXERTED, ON_KNIFE, LogFile, RobotLog, pose_parts
from stages.runtime.errors import InputError

_FRANKA_ROS1 = "franka_msgs/msg/FrankaState"
_FRANKA_ROS2 = "franka_msgs/msg/FrankaRobotState"
_WRENCH = "geometry_msgs/msg/WrenchStamped"
_POSE = "geometry_msgs/msg/PoseStamped"
_JOINTS = "sensor_msgs/msg/JointState"
_MAX_MESSAGES = 2_000_000
"""Maximum number of messages: half an hour at 1 kHz; a cut takes seconds."""


@dataclass(frozen=True)
class _Stream:
    time_s: NDArray[np.float64]
    messages: list[Any]

    def rows(self, get: Any) -> NDArray[np.float64]:
        return np.array([get(message) for message in self.messages], np.float64)


def recognises(file: LogFile) -> bool:
    """Recognise the three kinds by their first bytes."""
    return file.start.startswith((b"#ROSBAG V2", b"SQLite format 3", b"\x89MCAP"))


def read(file: LogFile, params: IngestParams) -> RobotLog:
    """Return the log of a bag; ingest.columns may name the topics of force, pose and joints."""
    from rosbags.highlevel import AnyReader

    try:
        with AnyReader([file.path]) as bag:
            return _read(bag, file.name, params.columns)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # a broken recording can raise anything inside the reader
        reason = " ".join(str(error).split())[:160]
        raise InputError(
            f"{file.name} can't be read as a ROS recording ({reason}). It must be complete and contain its message "
            "definitions. Close or re-index it, or export the topic as CSV."
        ) from error


def _read(bag: Any, source: str, columns: Mapping[str, str | Sequence[str]]) -> RobotLog:
    types = {connection.msgtype: connection.topic for connection in bag.connections}
    if _FRANKA_ROS1 in types:
        return _franka_ros1(_stream(bag, types[_FRANKA_ROS1], source))
    if _FRANKA_ROS2 in types:
        return _franka_ros2(_stream(bag, types[_FRANKA_ROS2], source))
    return _separate_topics(bag, source, columns)


def _franka_ros1(stream: _Stream) -> RobotLog:
    position, rotation = pose_parts(stream.rows(lambda m: m.O_T_EE), "the recording")
    return RobotLog(
        source_format="ROS recording (franka_msgs/FrankaState)",
        time_s=stream.time_s,
        clock="header.stamp",
        time_unit="s",
        position_m=position,
        rotation=rotation,
        force_n=stream.rows(lambda m: m.O_F_ext_hat_K)[:, :3],
        force_factor=EXERTED,
        joints_rad=stream.rows(lambda m: m.q),
        external_torque_nm=stream.rows(lambda m: m.tau_ext_hat_filtered),
    )


def _franka_ros2(stream: _Stream) -> RobotLog:
    position, rotation = _poses(stream.rows(lambda m: _pose_numbers(m.o_t_ee.pose)))
    return RobotLog(
        source_format="ROS recording (franka_msgs/FrankaRobotState)",
        time_s=stream.time_s,
        clock="header.stamp",
        time_unit="s",
        position_m=position,
        rotation=rotation,
        force_n=stream.rows(lambda m: _force(m.o_f_ext_hat_k.wrench)),
        force_factor=EXERTED,
        joints_rad=stream.rows(lambda m: m.measured_joint_state.position[:7]),
        external_torque_nm=stream.rows(lambda m: m.tau_ext_hat_filtered.effort[:7]),
    )


def _separate_topics(bag: Any, source: str, columns: Mapping[str, str | Sequence[str]]) -> RobotLog:
    force_topic = _topic(bag, _WRENCH, columns.get("force"), source)
    if force_topic is None:
        raise InputError(
            f"{source} has no force: its topics are {_topics(bag)}. A {_FRANKA_ROS1}, {_FRANKA_ROS2} or {_WRENCH} "
            "topic is needed. Record one of them."
        )
    pose_topic = _topic(bag, _POSE, columns.get("pose"), source)
    joint_topic = _topic(bag, _JOINTS, columns.get("joints"), source)
    if pose_topic is None and joint_topic is None:
        raise InputError(
            f"{source} has a force ({force_topic}) but no motion: its topics are {_topics(bag)}. The height of the "
            f"knife is needed at every sample. Record a {_POSE} or {_JOINTS} topic as well."
        )
    wrench = _stream(bag, force_topic, source)
    position = rotation = joints = None
    if pose_topic is not None:
        pose = _stream(bag, pose_topic, source)
        numbers = _at(wrench.time_s, pose, pose.rows(lambda m: _pose_numbers(m.pose)), pose_topic, source)
        position, rotation = _poses(numbers)
    elif joint_topic is not None:
        states = _stream(bag, joint_topic, source)
        joints = _at(wrench.time_s, states, states.rows(lambda m: m.position[:7]), joint_topic, source)
    return RobotLog(
        source_format="ROS recording (wrench topic)",
        time_s=wrench.time_s,
        clock="header.stamp",
        time_unit="s",
        position_m=position,
        rotation=rotation,
        force_n=wrench.rows(lambda m: _force(m.wrench)),
        force_factor=ON_KNIFE,
        joints_rad=joints,
        robot="not stated",
    )


def _stream(bag: Any, topic: str, source: str) -> _Stream:
    connections = [c for c in bag.connections if c.topic == topic]
    count = sum(c.msgcount for c in connections)
    if count > _MAX_MESSAGES:
        raise InputError(
            f"{source}: {topic} has {count} messages. At most {_MAX_MESSAGES} are read. Cut the recording to one cut."
        )
    messages = [bag.deserialize(raw, c.msgtype) for c, _, raw in bag.messages(connections=connections)]
    first = messages[0].header.stamp.sec if messages else 0
    stamps = [(m.header.stamp.sec - first) + 1e-9 * m.header.stamp.nanosec for m in messages]
    return _Stream(float(first) + np.array(stamps, np.float64), messages)


def _topic(bag: Any, kind: str, requested: str | Sequence[str] | None, source: str) -> str | None:
    topics = sorted({c.topic for c in bag.connections if c.msgtype == kind})
    if requested is not None:
        if requested not in topics:
            raise InputError(
                f"{source} has no {kind} topic {requested!r}. It has {', '.join(topics) or 'none'}. Correct "
                "ingest.columns."
            )
        return str(requested)
    if len(topics) > 1:
        raise InputError(
            f"{source} has {len(topics)} topics of {kind}: {', '.join(topics)}. One must be chosen. Name it, e.g. "
            f"--set 'ingest.columns={{force: {topics[0]}}}'."
        )
    return topics[0] if topics else None


def _at(
    time_s: NDArray[np.float64], stream: _Stream, rows: NDArray[np.float64], topic: str, source: str
) -> NDArray[np.float64]:
    """Interpolate rows of another topic at the force's times."""
    if len(rows) < 2 or stream.time_s[0] > time_s[0] or stream.time_s[-1] < time_s[-1]:
        raise InputError(
            f"{source}: {topic} does not span the time of the force. Force and motion must be recorded together. "
            "Record them again."
        )
    return np.stack([np.interp(time_s, stream.time_s, column) for column in rows.T], axis=1)


def _topics(bag: Any) -> str:
    return ", ".join(sorted({f"{c.topic} ({c.msgtype})" for c in bag.connections})) or "none"


def _force(wrench: Any) -> tuple[float, float, float]:
    return (wrench.force.x, wrench.force.y, wrench.force.z)


def _pose_numbers(pose: Any) -> tuple[float, ...]:
    p, o = pose.position, pose.orientation
    return (p.x, p.y, p.z, o.x, o.y, o.z, o.w)


def _poses(numbers: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    from scipy.spatial.transform import Rotation

    return numbers[:, :3], Rotation.from_quat(numbers[:, 3:]).as_matrix()
