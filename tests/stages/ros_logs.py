"""Synthetic ROS recordings, written with rosbags."""

from pathlib import Path

from tests.stages.force_logs import SyntheticCut


def write_bag(path: Path, cut: SyntheticCut, *, with_pose: bool = True) -> None:
    """A wrench topic and, by default, a pose topic with the same stamps, from 1.7e9 s on."""
    from rosbags.rosbag1 import Writer as Writer1
    from rosbags.rosbag2 import StoragePlugin
    from rosbags.rosbag2 import Writer as Writer2
    from rosbags.typesys import Stores, get_typestore

    ros1 = path.suffix == ".bag"
    store = get_typestore(Stores.ROS1_NOETIC if ros1 else Stores.ROS2_HUMBLE)
    types = store.types
    plugin = StoragePlugin.SQLITE3 if path.suffix == ".db3" else StoragePlugin.MCAP
    folder = path.with_suffix("")
    writer = Writer1(path) if ros1 else Writer2(folder, version=9, storage_plugin=plugin)
    vector, header = types["geometry_msgs/msg/Vector3"], types["std_msgs/msg/Header"]

    def make_header(nanoseconds):
        stamp = types["builtin_interfaces/msg/Time"](nanoseconds // 10**9, nanoseconds % 10**9)
        return header(seq=0, stamp=stamp, frame_id="base") if ros1 else header(stamp=stamp, frame_id="base")

    with writer:
        serialize = store.serialize_ros1 if ros1 else store.serialize_cdr
        kinds = ["geometry_msgs/msg/WrenchStamped", "geometry_msgs/msg/PoseStamped"][: 1 + with_pose]
        connections = [
            writer.add_connection(f"/topic{i}", kind, typestore=store) for i, kind in enumerate(kinds)
        ]
        for t, p, f in zip(cut.time_s, cut.position_m, cut.reading_n, strict=True):
            ns = round((1700000000 + float(t)) * 1e9)
            wrench = types["geometry_msgs/msg/Wrench"](vector(*map(float, f)), vector(0.0, 0.0, 0.0))
            point = types["geometry_msgs/msg/Point"](*map(float, p))
            pose = types["geometry_msgs/msg/Pose"](
                point, types["geometry_msgs/msg/Quaternion"](1.0, 0.0, 0.0, 0.0)
            )
            bodies = [
                types[kinds[0]](make_header(ns), wrench),
                *([types[kinds[1]](make_header(ns), pose)] if with_pose else []),
            ]
            for connection, kind, body in zip(connections, kinds, bodies, strict=True):
                writer.write(connection, ns, serialize(body, kind))
    if not ros1:
        next(folder.glob(f"*{path.suffix}")).rename(path)
