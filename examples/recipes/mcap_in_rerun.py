"""The exported motion (MCAP) in Rerun: joint angles over time, without ROS.

pip install rerun-sdk mcap
python examples/recipes/mcap_in_rerun.py data/scans/SCAN/export/cut/certified/joint_trajectory.mcap OUT.rrd
rerun OUT.rrd
"""

import sys
from pathlib import Path
from typing import Any

from rosbags.highlevel import AnyReader


def write(bag: Path, out: Path) -> int:
    """Log every point of the trajectory and return their number."""
    import rerun as rr

    stream = rr.RecordingStream("scan2cut")
    stream.save(out)
    count = 0
    with AnyReader([bag]) as reader:
        for connection, _, raw in reader.messages():
            message: Any = reader.deserialize(raw, connection.msgtype)
            for point in getattr(message, "points", ()):
                stream.set_time(
                    "motion", duration=point.time_from_start.sec + 1e-9 * point.time_from_start.nanosec
                )
                for name, angle in zip(message.joint_names, point.positions, strict=True):
                    stream.log(f"joints/{name}", rr.Scalars(float(angle)))
                count += 1
    stream.flush()
    return count


if __name__ == "__main__":
    print(f"{write(Path(sys.argv[1]), Path(sys.argv[2]))} points in {sys.argv[2]}")
