"""CSV, Parquet and NPZ files with columns that the user names."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.ingest.column_map import read_columns
from stages.ingest.fields import column_array
from stages.ingest.robot_log import RobotLog

Columns = Mapping[str, str | Sequence[str]]


def read_csv(path: Path, columns: Columns, sample_rate_hz: float | None) -> RobotLog:
    """The log of a comma-separated table with a header."""
    try:
        frame = pl.read_csv(path, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, "CSV", error) from error
    return _of_frame(frame, "CSV", path, columns, sample_rate_hz)


def read_parquet(path: Path, columns: Columns, sample_rate_hz: float | None, max_bytes: int) -> RobotLog:
    """The log of a Parquet file, whose unpacked size is checked before it is read."""
    import pyarrow
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_metadata(path)
        unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        check_unpacked_size(path, max(unpacked, metadata.num_rows), max_bytes)
        frame = pl.read_parquet(path)
    except (OSError, pyarrow.ArrowException, pl.exceptions.PolarsError) as error:
        raise _unreadable(path, "Parquet", error) from error
    return _of_frame(frame, "Parquet", path, columns, sample_rate_hz)


def read_npz(path: Path, columns: Columns, sample_rate_hz: float | None, max_bytes: int) -> RobotLog:
    """The log of a NumPy archive; pickled objects in it are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_unpacked_size(path, sum(entry.file_size for entry in archive.infolist()), max_bytes)
        with np.load(path, allow_pickle=False) as arrays:
            content = {name: np.asarray(arrays[name]) for name in arrays.files}
    except InputError:
        raise
    except Exception as error:  # a damaged archive can raise anything, from zlib.error to NotImplementedError
        raise _unreadable(path, "NPZ without pickled objects", error) from error

    def get(name: str) -> NDArray[np.float64]:
        return column_array(content[name], name, path.name)

    return read_columns(
        get, list(content), columns, sample_rate_hz=sample_rate_hz, source_format="NPZ", source=path.name
    )


def check_unpacked_size(path: Path, size: int, max_bytes: int) -> None:
    """Refuse a compressed file that would fill the memory."""
    if size > max_bytes:
        raise InputError(
            f"{path.name} holds {size / 1e6:.0f} MB when unpacked. At most {max_bytes / 1e6:.0f} MB are read. Cut the "
            "log to the time of one cut, or raise ingest.max_bytes."
        )


def _of_frame(
    frame: pl.DataFrame, kind: str, path: Path, columns: Columns, sample_rate_hz: float | None
) -> RobotLog:
    def get(name: str) -> NDArray[np.float64]:
        series = frame[name]
        if isinstance(series.dtype, pl.List) and len(series):
            lengths = series.list.len().unique().to_list()
            series = series.list.to_array(lengths[0]) if len(lengths) == 1 and lengths[0] else series
        inner = series.dtype.inner if isinstance(series.dtype, pl.Array) else series.dtype
        if inner is None or not inner.is_numeric():
            raise InputError(
                f"{path.name}: column {name} is {series.dtype}. It must be numbers. Correct ingest.columns."
            )
        return np.asarray(series.to_numpy(), np.float64)

    return read_columns(
        get, frame.columns, columns, sample_rate_hz=sample_rate_hz, source_format=kind, source=path.name
    )


def _unreadable(path: Path, kind: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())[:160]
    return InputError(f"{path.name} can't be read as {kind} ({reason}). It must be whole. Export it again.")
