"""The formats of force logs. One is added by a line here and the file stages/ingest/formats/<name>.py."""

from dataclasses import dataclass


@dataclass(frozen=True)
class LogFormat:
    """What the command line must know of a format; how it is recognised and read is in its file."""

    title: str
    suffixes: tuple[str, ...]
    """Endings that such files have. They decide what an inbox takes for a log, not how it is read."""


LOG_FORMATS = {
    "parquet": LogFormat("Parquet with ingest.columns", (".parquet",)),
    "npz": LogFormat("NPZ with ingest.columns", (".npz",)),
    "ros_recording": LogFormat("a ROS recording (.bag, .db3, .mcap)", (".bag", ".db3", ".mcap")),
    "paper_pickle": LogFormat("the paper's pickle with ingest.allow_pickle", (".pkl", ".pickle")),
    "robot_state_lines": LogFormat("RobotState JSON lines", (".jsonl", ".json")),
    "control_server_json": LogFormat("a JSON object of arrays", (".json",)),
    "libfranka_csv": LogFormat("libfranka CSV", (".csv", ".txt")),
    "csv_table": LogFormat("CSV with ingest.columns", (".csv", ".txt")),
}
"""By the name of its file. A log is of the first of these that recognises it, so a table of any columns is last."""

LOG_SUFFIXES = frozenset(suffix for known in LOG_FORMATS.values() for suffix in known.suffixes)
