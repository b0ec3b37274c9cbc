"""A bound on the memory that reading one file may take: a few kilobytes can unpack to gigabytes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stages.runtime.errors import InputError

# The formats of force logs. One is added by a line here and the file stages/ingest/formats/<name>.py.


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


# How the logs of further cuts are called in a scan's directory: 2-log.json, 2-air-air1.json, 3-log.csv, …


LOGS_NOTE = "sha256 of logs"
"""Note in ingest's tables: the digests of the logs that are in it, separated by blanks."""


@dataclass(frozen=True)
class _FurtherLog:
    """One cut beside the first."""

    number: int
    """2 for the second cut."""
    log: Path
    air: list[Path]
    """Its no-contact runs."""


def log_name(number: int, suffix: str) -> str:
    """Of a cut's log."""
    return f"{number}-log{suffix}"


def air_name(number: int, name: str) -> str:
    """Of one of its no-contact runs."""
    return f"{number}-air-{name}"


def further_logs(folder: Path) -> list[_FurtherLog]:
    """What the folder holds, in order; nothing if it is none."""
    if not folder.is_dir():
        return []
    found = []
    for log in folder.glob("*-log*"):
        number = int(log.name.partition("-")[0])
        found.append(_FurtherLog(number, log, sorted(folder.glob(air_name(number, "*")))))
    return sorted(found, key=lambda each: each.number)


# The size of a log is looked at before anything of it is read.


def check_log_size(path: Path, max_bytes: int, name: str) -> None:
    """Refuse an empty file and one that is too large."""
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{name} is empty. A log must hold the samples of one cut. Record it again.")
    if size > max_bytes:
        raise InputError(
            f"{name} has {size / 1e6:.0f} MB. At most {max_bytes / 1e6:.0f} MB are read. Cut the log to the time of "
            "one cut, or raise ingest.max_bytes."
        )


_EXPANSION = 10
"""Memory over file size that an honest recording may take while it is read: its messages become Python objects."""


@contextmanager
def memory_bound(max_bytes: int, source: str) -> Iterator[None]:
    """Within the block this process may take EXPANSION * max_bytes more than it has; InputError where it wants more.

    The bound is the kernel's, so it holds for whatever library unpacks. `max_bytes` is the largest file that is read.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    allowed = _address_space() + _EXPANSION * max_bytes
    if before[1] != resource.RLIM_INFINITY:
        allowed = min(allowed, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (allowed, before[1]))
    try:
        yield
    except MemoryError as error:
        raise InputError(
            f"{source} unpacks to more than {_EXPANSION * max_bytes / 1e6:.0f} MB. At most {_EXPANSION} times "
            f"ingest.max_bytes are unpacked. Record a shorter cut, or raise ingest.max_bytes."
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _address_space() -> int:
    """Bytes of this process's address space (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()
