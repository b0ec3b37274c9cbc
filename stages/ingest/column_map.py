"""Build a log from a table of any format, with the columns named by ingest.columns."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.ingest.description import IngestParams
from stages.ingest.log_file import ON_KNIFE, RobotLog, pose_parts
from stages.runtime.errors import InputError

_WIDTHS = {
    "time": 1,
    "position": 3,
    "quaternion_xyzw": 4,
    "pose": 16,
    "force": 3,
    "joints": 7,
    "external_torque": 7,
}
"""Keys of ingest.columns and the number of values each has per sample; pose is a column-major 4×4."""

_GetColumn = Callable[[str], NDArray[np.float64]]
"""Values of one column of the file, shape [n] or [n, k]."""


def read_columns(
    get: _GetColumn,
    names: Sequence[str],
    columns: Mapping[str, str | Sequence[str]],
    *,
    sample_rate_hz: float | None,
    source_format: str,
    source: str,
) -> RobotLog:
    """Return the log of a table whose columns the user has named.

    Args:
        get: Returns the values of a column.
        names: All columns of the file, for error messages.
        columns: Key of WIDTHS → one column (of vectors), or one column per number.
        sample_rate_hz: Even sampling of a table without a time column; None if it has one.
        source_format: Format of the file.
        source: Name of the file for messages.
    """
    unknown = sorted(set(columns) - _WIDTHS.keys())
    if unknown:
        raise InputError(
            f"ingest.columns names {unknown[0]!r}. Known: {', '.join(_WIDTHS)}. Correct or remove it."
        )
    has_motion = {"position", "pose", "joints"} & columns.keys()
    has_force = "force" in columns or {"joints", "external_torque"} <= columns.keys()
    if not has_motion or not has_force:
        raise InputError(
            f"{source} is a table with the columns {_some(names)}, and ingest.columns names "
            f"{', '.join(sorted(columns)) or 'nothing'}. It must name the motion (position, pose or joints) and the "
            "force (force, or joints and external_torque). For example: "
            "--set 'ingest.columns={time: t, position: [x, y, z], force: [fx, fy, fz]}'."
        )
    fields = {key: _field(get, names, key, value, source) for key, value in columns.items()}
    count = len(next(iter(fields.values())))
    position, rotation = fields.get("position"), None
    if "pose" in fields:
        position, rotation = pose_parts(fields["pose"], source)
    elif "quaternion_xyzw" in fields:
        rotation = _rotations(fields["quaternion_xyzw"], source)
    return RobotLog(
        source_format=source_format,
        time_s=_time(fields, count, sample_rate_hz, source),
        clock=str(columns.get("time", "sample_rate_hz")),
        time_unit="s",
        position_m=position,
        rotation=rotation,
        force_n=fields.get("force"),
        force_factor=ON_KNIFE,
        joints_rad=fields.get("joints"),
        external_torque_nm=fields.get("external_torque"),
        robot="not stated",
    )


def _field(
    get: _GetColumn, names: Sequence[str], key: str, value: str | Sequence[str], source: str
) -> NDArray[np.float64]:
    parts = [value] if isinstance(value, str) else list(value)
    for part in parts:
        if part not in names:
            raise InputError(
                f"{source} has no column {part!r}, which ingest.columns gives for {key}. It has {_some(names)}. "
                "Correct ingest.columns."
            )
    arrays = [get(part) for part in parts]
    if len({len(array) for array in arrays}) > 1:
        raise InputError(
            f"{source}: the columns of {key} differ in length. They must be equally long. Export it again."
        )
    table = np.column_stack([array.reshape(len(array), -1) for array in arrays])
    if key == "force" and table.shape[1] == 6:
        table = table[:, :3]
    if table.shape[1] != _WIDTHS[key]:
        raise InputError(
            f"{source}: the columns of {key} have {table.shape[1]} numbers per sample. There must be {_WIDTHS[key]}. "
            "Correct ingest.columns."
        )
    return table[:, 0] if _WIDTHS[key] == 1 else table


def _time(
    fields: dict[str, NDArray[np.float64]], count: int, sample_rate_hz: float | None, source: str
) -> NDArray[np.float64]:
    if any(len(field) != count for field in fields.values()):
        raise InputError(
            f"{source}: the named columns differ in length. They must be equally long. Export the log again."
        )
    if "time" in fields:
        return fields["time"]
    if sample_rate_hz is None:
        raise InputError(
            f"{source} has no time column in ingest.columns. Every sample needs its time. Name the column, or if the "
            "samples are evenly spaced give their rate: --set ingest.sample_rate_hz=1000."
        )
    return np.arange(count) / sample_rate_hz


def _rotations(quaternions: NDArray[np.float64], source: str) -> NDArray[np.float64]:
    from scipy.spatial.transform import Rotation

    norms = np.linalg.norm(quaternions, axis=1)
    if len(norms) and not np.all(np.abs(norms - 1.0) < 0.01):
        raise InputError(
            f"{source}: a quaternion has the norm {norms[np.argmax(np.abs(norms - 1.0))]:.3g}. It must be 1. "
            "Correct ingest.columns."
        )
    return Rotation.from_quat(quaternions).as_matrix()


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(list(names)[:12])
    return f"{shown}, … ({len(names)} in total)" if len(names) > 12 else shown or "(none)"


# Table formats


def log_of_frame(frame: pl.DataFrame, source_format: str, source: str, params: IngestParams) -> RobotLog:
    """Return the log in the columns of a table named by ingest.columns."""

    def get(name: str) -> NDArray[np.float64]:
        series = frame[name]
        if isinstance(series.dtype, pl.List) and len(series):
            lengths = series.list.len().unique().to_list()
            series = series.list.to_array(lengths[0]) if len(lengths) == 1 and lengths[0] else series
        inner = series.dtype.inner if isinstance(series.dtype, pl.Array) else series.dtype
        if inner is None or not inner.is_numeric():
            raise InputError(
                f"{source}: column {name} is {series.dtype}. It must be numbers. Correct ingest.columns."
            )
        return np.asarray(series.to_numpy(), np.float64)

    return read_columns(
        get,
        frame.columns,
        params.columns,
        sample_rate_hz=params.sample_rate_hz,
        source_format=source_format,
        source=source,
    )


def check_unpacked_size(source: str, size: int, max_bytes: int) -> None:
    """Reject a compressed file that would fill the memory."""
    if size > max_bytes:
        raise InputError(
            f"{source} has {size / 1e6:.0f} MB when unpacked. At most {max_bytes / 1e6:.0f} MB are read. Cut the "
            "log to the time of one cut, or raise ingest.max_bytes."
        )


def unreadable(source: str, kind: str, error: Exception) -> InputError:
    """Return the error for a file that its library can't read."""
    reason = " ".join(str(error).split())[:160]
    return InputError(f"{source} can't be read as {kind} ({reason}). It must be complete. Export it again.")
