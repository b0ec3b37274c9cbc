"""A log file whose format is recognised by content, and its content in one form: SI units, base frame, own sign."""

import json
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stages.ingest.description import IngestParams
from stages.runtime.errors import InputError
from stages.shared.input_files import LOG_FORMATS, check_log_size, memory_bound, time_limit

# Arrays from parsed files


def number_array(values: Any, width: int | None, name: str, source: str) -> NDArray[np.float64]:
    """Return an array of shape [n, width], or [n] if width is None; null becomes NaN, which is rejected later."""
    shape = "numbers" if width is None else f"rows of {width} numbers"
    if not isinstance(values, list | np.ndarray):
        raise InputError(
            f"{source}: {name} is {str(values)[:40]!r}. It must be a list of {shape}, one per sample. Record it again."
        )
    try:
        if np.asarray(values).dtype.kind in "US":  # NumPy would read text as a number
            raise ValueError("it contains text")
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{source}: {name} is not a list of {shape} ({str(error)[:80]}). Every sample must have all of them. "
            "Record the log again."
        ) from error
    expected = array.ndim == 1 if width is None else array.ndim == 2 and array.shape[1] == width
    if array.size and not expected:
        raise InputError(
            f"{source}: {name} has the shape {array.shape}. It must be {shape}, one per sample. Record the log again."
        )
    return array if width is None else array.reshape(-1, width)


def column_array(values: Any, name: str, source: str) -> NDArray[np.float64]:
    """Return an array of shape [n] or [n, k] from a column of a table, an array of an archive or a list of a pickle."""
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2):
        raise InputError(
            f"{source}: {name} is {array.dtype} of shape {array.shape}. It must be numbers, one row per sample. "
            "Correct ingest.columns or export the log again."
        )
    return array.astype(np.float64)


def parse_json(text: str, source: str) -> Any:
    """Parse untrusted JSON; raise InputError if it is invalid or nested too deeply for the parser."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise InputError(
            f"{source} nests lists too deeply to be read. A log has at most 3 levels. "
            "Export it as one object of arrays."
        ) from error
    except ValueError as error:
        raise InputError(
            f"{source} is not valid JSON ({error}). It must be complete. Record or export it again."
        ) from error


EXERTED = -1.0
"""Factor from a force that the robot exerts to the force on the knife."""
ON_KNIFE = 1.0


@dataclass(frozen=True)
class RobotLog:
    """One recording; fields that its format lacks are None."""

    source_format: str
    time_s: NDArray[np.float64]
    """Time [s], shape [n]."""
    clock: str
    """Name of the clock in the file."""
    time_unit: str
    """Unit of the clock in the file: s, ms, us or ns."""
    position_m: NDArray[np.float64] | None = None
    """Measured position of the end effector in the base frame [m], shape [n, 3]."""
    rotation: NDArray[np.float64] | None = None
    """Orientation of the end effector in the base frame, shape [n, 3, 3]."""
    force_n: NDArray[np.float64] | None = None
    """Force at the end effector in the base frame, sign as logged [N], shape [n, 3]."""
    force_factor: float = EXERTED
    """EXERTED or ON_KNIFE: factor for the logged force and torque."""
    joints_rad: NDArray[np.float64] | None = None
    """Measured joint angles [rad], shape [n, 7]."""
    external_torque_nm: NDArray[np.float64] | None = None
    """Estimated external joint torques [N m], shape [n, 7]."""
    tool: NDArray[np.float64] | None = None
    """Pose of the end effector in the flange's frame [m], shape [4, 4]."""
    robot: str = "Franka Panda"
    zeroed: bool = False
    """True if the format's force has its zero already, so that a log may begin in contact."""


def pose_parts(
    column_major: NDArray[np.float64], source: str
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return positions [n, 3] and rotations [n, 3, 3] of column-major 4×4 poses, shape [n, 16]."""
    poses = column_major.reshape(-1, 4, 4).transpose(0, 2, 1)
    with np.errstate(all="ignore"):  # numbers beyond any pose are rejected later
        mirrored = np.flatnonzero(np.linalg.det(poses[:, :3, :3]) < 0)
    if len(mirrored):
        raise InputError(
            f"{source}: O_T_EE of sample {mirrored[0]} is left-handed (its determinant is negative). A pose is a "
            "rotation and a position. Check the order of the axes, or record the log again."
        )
    return poses[:, :3, 3], poses[:, :3, :3]


# Conversion to SI units


_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_METRES = {"m": 1.0, "cm": 1e-2, "mm": 1e-3}
_NEWTONS = {"N": 1.0, "mN": 1e-3, "kN": 1e3}
_FACTORS = {"exerted": EXERTED, "on_knife": ON_KNIFE}


def in_si(log: RobotLog, params: IngestParams) -> RobotLog:
    """Return the log in SI units; units and sign of the params override those of its format."""
    time_unit = log.time_unit if params.time_unit == "auto" else params.time_unit
    return replace(
        log,
        time_s=log.time_s * (_SECONDS[time_unit] / _SECONDS[log.time_unit]),
        time_unit=time_unit,
        position_m=None if log.position_m is None else log.position_m * _METRES[params.length_unit],
        force_n=None if log.force_n is None else log.force_n * _NEWTONS[params.force_unit],
        force_factor=log.force_factor if params.force_is == "auto" else _FACTORS[params.force_is],
    )


# Log files and their formats

_START_BYTES = 64


@dataclass(frozen=True)
class LogFile:
    """A log file of unknown format; content is read only when a format needs it."""

    path: Path
    start: bytes
    """The first START_BYTES bytes."""

    @property
    def name(self) -> str:
        """File name for messages."""
        return self.path.name

    @cached_property
    def text(self) -> str | None:
        """The whole file, or None if it is not UTF-8."""
        try:
            return self.path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError:
            return None

    @cached_property
    def first_line(self) -> str:
        """The first non-empty line, stripped; empty if the file is not text."""
        return (self.text or "").lstrip().partition("\n")[0].strip()

    @property
    def is_json(self) -> bool:
        """True if the file begins like JSON."""
        return self.first_line.startswith(("{", "["))

    @cached_property
    def json(self) -> Any:
        """The whole file, parsed; raises InputError if it is not JSON."""
        return parse_json(self.text or "", self.name)


class _Format(Protocol):
    """Interface of a module in stages/ingest/formats."""

    def recognises(self, file: LogFile) -> bool:
        """Return True if the file is of this format."""

    def read(self, file: LogFile, params: IngestParams) -> RobotLog:
        """Return the log; raise InputError with the reason if it can't be read."""


def read_log(path: Path, params: IngestParams) -> RobotLog:
    """Read a log of any known format."""
    file = open_log(path, params)
    return read_as(format_of(file, params), file, params)


def format_of(file: LogFile, params: IngestParams) -> str:
    """Return the name of the log's format; raise InputError if it has none. JSON is parsed within a memory bound."""
    bound = memory_bound(params.max_bytes, file.name) if file.is_json else nullcontext()
    with time_limit(file.name), bound:
        for name in LOG_FORMATS:
            if _module(name).recognises(file):
                return name
        raise _unknown(file)


def read_as(name: str, file: LogFile, params: IngestParams) -> RobotLog:
    """Read a log of a known format within a memory bound; tables check their size before they are read."""
    bound = nullcontext() if name == "tables" else memory_bound(params.max_bytes, file.name)
    with time_limit(file.name), bound:
        return _module(name).read(file, params)


def open_log(path: Path, params: IngestParams) -> LogFile:
    """Return a log whose format is not known yet; its size is checked."""
    if not path.is_file():
        raise InputError(f"{path} does not exist. The log must be a file. Give it again with --log.")
    check_log_size(path, params.max_bytes, path.name)
    with path.open("rb") as opened:
        return LogFile(path, opened.read(_START_BYTES))


def _module(name: str) -> _Format:
    module: Any = import_module(f"stages.ingest.formats.{name}")
    return module


def _unknown(file: LogFile) -> InputError:
    if file.is_json:
        content = file.json
        keys = ", ".join(list(content)[:8]) if isinstance(content, dict) else type(content).__name__
        return InputError(
            f"{file.name} is JSON but not a log of a known layout (it contains {keys or 'nothing'}). It must have time "
            "and O_T_EE or q, and O_F_ext_hat_K or tau_ext_hat_filtered. Export it as CSV and name its columns in "
            "ingest.columns."
        )
    titles = "; ".join(entry.title for entry in LOG_FORMATS.values())
    return InputError(
        f"{file.name} has an unknown format. It must be one of: {titles}. Export it as one of these."
    )
