"""Input files are checked before they are loaded: scan headers, sizes, formats of force logs, memory while reading."""

import json
import mmap
import resource
import signal
import struct
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from stages.runtime.describe import Positive, SharedSection
from stages.runtime.errors import InputError

# Formats of force logs; to add one, add a line here and the module stages/ingest/formats/<name>.py


@dataclass(frozen=True)
class _LogFormat:
    """Properties of a format needed by the command line; its module recognises and reads it."""

    title: str
    suffixes: tuple[str, ...]
    """Usual suffixes. They determine what an inbox takes for a log, not how it is read."""


LOG_FORMATS = {
    "kth_sawing": _LogFormat("a KTH sawing run (ZIP of forces.txt and positions.txt)", (".zip",)),
    "ros_recording": _LogFormat("a ROS recording (.bag, .db3, .mcap)", (".bag", ".db3", ".mcap")),
    "paper_pickle": _LogFormat("the paper's pickle with ingest.allow_pickle", (".pkl", ".pickle")),
    "franka_json": _LogFormat("RobotState JSON lines or a JSON object of arrays", (".jsonl", ".json")),
    "libfranka_csv": _LogFormat("libfranka CSV", (".csv", ".txt")),
    "tables": _LogFormat("CSV, Parquet or NPZ with ingest.columns", (".csv", ".txt", ".parquet", ".npz")),
}
"""Formats by module name. The first one that recognises a log is used, so a table of any columns is last."""

LOG_SUFFIXES = frozenset(suffix for known in LOG_FORMATS.values() for suffix in known.suffixes)


# Names of the logs of further cuts in a scan's directory: 2-log.json, 2-air-air1.json, 3-log.csv, …


LOGS_NOTE = "sha256 of logs"
"""Note in ingest's tables: the digests of the logs in it, separated by spaces."""


@dataclass(frozen=True)
class _FurtherLog:
    """One cut in addition to the first."""

    number: int
    """2 for the second cut."""
    log: Path
    air: list[Path]
    """Its no-contact runs."""


def log_name(number: int, suffix: str) -> str:
    """Return the name of a cut's log."""
    return f"{number}-log{suffix}"


def air_name(number: int, name: str) -> str:
    """Return the name of one of its no-contact runs."""
    return f"{number}-air-{name}"


def further_logs(folder: Path) -> list[_FurtherLog]:
    """Return the logs in the folder, in order; empty if it does not exist."""
    if not folder.is_dir():
        return []
    logs = []
    for log in folder.glob("*-log*"):
        number = int(log.name.partition("-")[0])
        logs.append(_FurtherLog(number, log, sorted(folder.glob(air_name(number, "*")))))
    return sorted(logs, key=lambda each: each.number)


# Size limits, checked before reading


def check_log_size(path: Path, max_bytes: int, name: str) -> None:
    """Reject an empty file and one that is too large."""
    size = path.stat().st_size
    if size == 0:
        raise InputError(f"{name} is empty. A log must contain the samples of one cut. Record it again.")
    if size > max_bytes:
        raise InputError(
            f"{name} has {size / 1e6:.0f} MB. At most {max_bytes / 1e6:.0f} MB are read. Cut the log to the time of "
            "one cut, or raise ingest.max_bytes."
        )


_EXPANSION = 10
"""Memory relative to file size that a valid recording may take while it is read: messages become Python objects."""


def memory_bound(max_bytes: int, source: str) -> AbstractContextManager[None]:
    """Limit the process in this block to EXPANSION * max_bytes more memory; max_bytes is the largest log to read."""
    return memory_limit(
        _EXPANSION * max_bytes,
        f"{source} unpacks to more than {_EXPANSION * max_bytes / 1e6:.0f} MB. At most {_EXPANSION} times "
        f"ingest.max_bytes are unpacked. Record a shorter cut, or raise ingest.max_bytes.",
    )


@contextmanager
def memory_limit(allowed_bytes: int, message: str) -> Iterator[None]:
    """Limit the process in this block to so much more memory; raise InputError with the message beyond that.

    The limit is enforced by the kernel, so it holds for any library.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    allowed = _address_space() + allowed_bytes
    if before[1] != resource.RLIM_INFINITY:
        allowed = min(allowed, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (allowed, before[1]))
    try:
        yield
    except MemoryError as error:
        raise InputError(message) from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


_MAX_READING_S = 60.0
"""CPU time for reading a file: two million faces as text take 6 s."""


@contextmanager
def time_limit(name: str, seconds: float = _MAX_READING_S) -> Iterator[None]:
    """Limit the CPU time of reading an input file in this block; raise InputError beyond it.

    In the main thread only, in which stages and commands read. A native library is interrupted when it returns; what
    does not return is ended by the stage's timeout.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: Any) -> None:
        raise InputError(
            f"{name} takes more than {seconds:g} s of CPU time to read. A valid file takes seconds. "
            "Export it again; a scan in binary form, a log as CSV or Parquet."
        )

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _address_space() -> int:
    """Return the size of this process's address space [bytes] (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()


# Headers of scan files: size of a scan, read without loading it

MAX_FILE_BYTES = 2**28
"""Default of clean.max_bytes, the largest file that is opened [bytes]; two million faces as text are 200 MB."""
_MAX_HEADER_BYTES = 65536
"""Maximum length of a PLY or PCD header, which has a few hundred bytes."""
_STL_HEADER_BYTES, _STL_FACE_BYTES = 84, 50
_GLTF_TRIANGLES = 4

MESH_SUFFIXES = (".ply", ".obj", ".stl", ".off", ".gltf", ".glb")
CLOUD_SUFFIXES = (".pcd", ".xyz")


@dataclass(frozen=True)
class ScanHeader:
    """Counts declared by a file."""

    kind: str
    """Format: the suffix without its dot, lower case."""
    faces: int
    """Number of faces declared (0 for a point cloud)."""
    points: int
    """Number of vertices or points declared (0 if the format does not declare it)."""


def read_header(path: Path, *, max_faces: int, max_bytes: int = MAX_FILE_BYTES) -> ScanHeader:
    """Check that the file can be opened and is no larger than allowed; return its declared counts."""
    name = path.name
    try:
        size = path.stat().st_size
        is_file = path.is_file()
    except OSError as error:
        raise InputError(
            f"{name} cannot be opened ({error.strerror}). A scan must be a readable file. "
            "Check the path, its permissions and that no symlink points back to itself."
        ) from error
    if not is_file:
        raise InputError(f"{name} is not a file. A scan must be a regular file. Give the file itself.")
    check_scan_size(name, size, max_bytes)
    suffix = check_scan_suffix(path, name)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        header = _COUNTERS[suffix](name, data)
    for count, what in ((header.faces, "faces"), (header.points, "points")):
        if count > max_faces:
            raise InputError(
                f"{name} declares {count:,} {what}. At most {max_faces:,} are read (clean.max_faces). "
                "Decimate the scan first: a few ten thousand faces are plenty for a fruit."
            )
    return header


def check_scan_suffix(path: Path, name: str) -> str:
    """Reject a file with an unknown suffix; return the suffix in lower case."""
    suffix = path.suffix.lower()
    if suffix not in MESH_SUFFIXES + CLOUD_SUFFIXES:
        raise InputError(
            f"{name} has the suffix '{suffix}'. It must be one of "
            f"{', '.join(MESH_SUFFIXES + CLOUD_SUFFIXES)}. "
            "Convert the scan to one of them."
        )
    return suffix


def check_scan_size(name: str, size: int, max_bytes: int) -> None:
    """Reject an empty file and one that is too large, before it is read or copied."""
    if size == 0:
        raise InputError(
            f"{name} is empty (0 bytes). A scan must contain a mesh or a point cloud. Export it again."
        )
    if size > max_bytes:
        raise InputError(
            f"{name} has {size / 1e6:.0f} MB. At most {max_bytes / 1e6:.0f} MB are read (clean.max_bytes). "
            "Decimate the scan first."
        )


def malformed(name: str, why: str) -> InputError:
    """Return the error for a file that does not match its suffix."""
    return InputError(
        f"{name} is malformed: {why}. A scan must be a complete {Path(name).suffix.lstrip('.').upper()} "
        "file. "
        "Export it again or convert it with another program."
    )


def _header_lines(name: str, data: mmap.mmap, last: bytes) -> list[list[str]]:
    head = data[:_MAX_HEADER_BYTES]
    end = head.find(last)
    if end < 0:
        raise malformed(name, f"its header has no '{last.decode().strip()}' line")
    text = head[:end].decode("ascii", "replace")
    return [line.split() for line in text.splitlines() if line.split()]


def _integer(name: str, words: list[str], index: int) -> int:
    try:
        value = int(words[index])
    except (IndexError, ValueError) as error:
        raise malformed(name, f"the header line '{' '.join(words)}' has no whole number") from error
    if value < 0:
        raise malformed(name, f"the header declares {value} entries")
    return value


def _ply(name: str, data: mmap.mmap) -> ScanHeader:
    if data[:3] != b"ply":
        raise malformed(name, "it does not begin with 'ply'")
    counts = {
        words[1]: _integer(name, words, 2)
        for words in _header_lines(name, data, b"end_header")
        if words[0] == "element" and len(words) > 1
    }
    if counts.get("vertex", 0) == 0:
        raise malformed(name, "its header declares no vertices")
    return ScanHeader("ply", counts.get("face", 0), counts["vertex"])


def _pcd(name: str, data: mmap.mmap) -> ScanHeader:
    lines = {words[0].upper(): words for words in _header_lines(name, data, b"DATA ")}
    if not {"FIELDS", "SIZE", "TYPE", "POINTS"} <= lines.keys():
        raise malformed(name, "its header lacks one of FIELDS, SIZE, TYPE and POINTS")
    if not {"x", "y", "z"} <= set(lines["FIELDS"]):
        raise malformed(name, f"its fields are {' '.join(lines['FIELDS'][1:])} instead of x y z")
    points = _integer(name, lines["POINTS"], 1)
    start = data.find(b"\n", data.find(b"DATA ")) + 1
    encoding = data[data.find(b"DATA ") + 5 : start].strip()
    columns = len(lines["FIELDS"]) - 1
    sizes = [_integer(name, lines["SIZE"], k + 1) for k in range(columns)]
    repeats = [_integer(name, lines["COUNT"], k + 1) if "COUNT" in lines else 1 for k in range(columns)]
    for axis in ("x", "y", "z") if encoding != b"ascii" else ():
        index = lines["FIELDS"].index(axis)
        if lines["TYPE"][index : index + 1] != ["F"] or sizes[index - 1] != 4:
            raise InputError(
                f"{name} is a binary PCD whose {axis} is not TYPE F of SIZE 4. Only 32-bit numbers are read. Save "
                "it with such numbers, or with DATA ascii."
            )
    needed = {
        b"ascii": 2 * points,
        b"binary": points * sum(s * c for s, c in zip(sizes, repeats, strict=True)),
    }
    if points == 0 or start == 0 or len(data) - start < needed.get(encoding, 8):
        raise malformed(name, f"{points} points are declared but {len(data) - max(start, 0)} bytes follow")
    return ScanHeader("pcd", 0, points)


def _stl(name: str, data: mmap.mmap) -> ScanHeader:
    if len(data) >= _STL_HEADER_BYTES:
        faces = struct.unpack("<I", data[80:84])[0]
        if len(data) == _STL_HEADER_BYTES + _STL_FACE_BYTES * faces and faces > 0:
            return ScanHeader("stl", faces, 0)
    if data[:5].lower() == b"solid" and _count(data, b"endfacet") > 0:
        return ScanHeader("stl", _count(data, b"endfacet"), 0)
    raise malformed(name, "it is neither a binary STL of the declared length nor a text STL with facets")


def _obj(name: str, data: mmap.mmap) -> ScanHeader:
    faces = _count(data, b"\nf ") + (data[:2] == b"f ")
    points = _count(data, b"\nv ") + (data[:2] == b"v ")
    if points == 0:
        raise malformed(name, "it has no vertex lines ('v x y z')")
    return ScanHeader("obj", faces, points)


def _off(name: str, data: mmap.mmap) -> ScanHeader:
    lines = [line.split(b"#")[0].split() for line in data[:_MAX_HEADER_BYTES].splitlines()]
    words = [word.decode("ascii", "replace") for line in lines for word in line][:4]
    if not words or not words[0].upper().endswith("OFF"):
        raise malformed(name, "it does not begin with 'OFF'")
    return ScanHeader("off", _integer(name, words, 2), _integer(name, words, 1))


def _xyz(_name: str, data: mmap.mmap) -> ScanHeader:
    return ScanHeader("xyz", 0, _count(data, b"\n"))


def _glb(name: str, data: mmap.mmap) -> ScanHeader:
    if len(data) < 20 or data[:4] != b"glTF":
        raise malformed(name, "it does not begin with 'glTF'")
    total, length = struct.unpack("<I", data[8:12])[0], struct.unpack("<I", data[12:16])[0]
    if total > len(data) or 20 + length > len(data):
        raise malformed(name, f"{total} bytes are declared but the file has {len(data)}")
    return _gltf_counts(name, "glb", data[20 : 20 + length])


def _gltf(name: str, data: mmap.mmap) -> ScanHeader:
    return _gltf_counts(name, "gltf", data[:])


def _gltf_counts(name: str, kind: str, text: bytes) -> ScanHeader:
    try:
        tree: dict[str, Any] = json.loads(text)
        accessors = tree.get("accessors", [])
        primitives = [part for mesh in tree.get("meshes", []) for part in mesh["primitives"]]
        uris = [buffer["uri"] for buffer in tree.get("buffers", []) if "uri" in buffer]
        points = sum(int(accessors[part["attributes"]["POSITION"]]["count"]) for part in primitives)
        faces = sum(
            int(accessors[part.get("indices", part["attributes"]["POSITION"])]["count"]) // 3
            for part in primitives
            if part.get("mode", _GLTF_TRIANGLES) == _GLTF_TRIANGLES
        )
    except (LookupError, ArithmeticError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise malformed(name, f"its JSON part is inconsistent ({type(error).__name__})") from error
    if any(not isinstance(uri, str) for uri in uris):
        raise malformed(name, "a uri of its JSON part is not text")
    if any(not uri.startswith("data:") for uri in uris):
        raise InputError(
            f"{name} keeps its geometry in another file ({uris[0][:80]}). A scan must be one file. "
            "Export it as .glb, or as .gltf with embedded buffers."
        )
    return ScanHeader(kind, faces, points)


def _count(data: mmap.mmap, word: bytes) -> int:
    total, start = 0, 0
    chunk = 1 << 24
    while start < len(data):
        # The overlap of len(word) - 1 bytes catches words that straddle two chunks and counts none twice.
        total += data[start : start + chunk + len(word) - 1].count(word)
        start += chunk
    return total


_COUNTERS = {
    ".ply": _ply,
    ".pcd": _pcd,
    ".stl": _stl,
    ".obj": _obj,
    ".off": _off,
    ".xyz": _xyz,
    ".gltf": _gltf,
    ".glb": _glb,
}


class ReadingParams(SharedSection):
    """reading: accuracy of a force reading, for the measured and for the simulated force alike."""

    filter_cutoff_hz: Positive
    """Cut-off of the zero-phase low-pass."""
    repeatability_n: Annotated[float, Field(ge=0)]
    """Repeatability of the measured force."""
