"""Tables whose columns the user names: comma-separated values with a header, Parquet, NumPy archives."""

import zipfile

import numpy as np
import polars as pl
from numpy.typing import NDArray

from stages.ingest.column_map import check_unpacked_size, log_of_frame, read_columns, unreadable
from stages.ingest.description import IngestParams
from stages.ingest.log_file import LogFile, RobotLog, column_array
from stages.runtime.artifacts import read_parquet
from stages.runtime.errors import InputError
from stages.runtime.files import quiet_stderr

_PARQUET, _ZIP = b"PAR1", b"PK\x03\x04"

_MAX_COLUMNS, _MAX_ROWS = 10_000, 2_000_000
"""Half an hour at 1 kHz; polars needs 40 bytes for an empty line."""


def recognises(file: LogFile) -> bool:
    """Recognise Parquet and zip archives by their first bytes, CSV by a first line with a comma that can be printed."""
    if file.start.startswith((_PARQUET, _ZIP)):
        return True
    return "," in file.first_line and file.first_line.isprintable() and not file.is_json


def read(file: LogFile, params: IngestParams) -> RobotLog:
    """Return the log of the table."""
    if file.start.startswith(_ZIP):
        return _read_npz(file, params)
    if file.start.startswith(_PARQUET):
        return log_of_frame(_read_parquet(file, params), "Parquet", file.name, params)
    return log_of_frame(_read_csv(file), "CSV", file.name, params)


def numeric_columns(file: LogFile, params: IngestParams) -> dict[str, NDArray[np.float64]]:
    """Return the columns of single numbers of a CSV or Parquet file by name, for guesses at their meaning."""
    frame = _read_parquet(file, params) if file.start.startswith(_PARQUET) else _read_csv(file)
    return {
        name: frame[name].cast(pl.Float64).to_numpy()
        for name in frame.columns
        if frame[name].dtype.is_numeric()
    }


def _read_csv(file: LogFile) -> pl.DataFrame:
    columns = file.first_line.count(",") + 1
    if columns > _MAX_COLUMNS:
        raise InputError(
            f"{file.name} has {columns} columns. At most {_MAX_COLUMNS} are read. Export one line per sample."
        )
    with file.path.open("rb") as opened:
        rows = sum(part.count(b"\n") for part in iter(lambda: opened.read(1 << 20), b""))
    if rows > _MAX_ROWS:
        raise InputError(
            f"{file.name} has {rows:,} lines. At most {_MAX_ROWS:,} are read. Cut the log to the time of one cut."
        )
    try:
        return pl.read_csv(file.path, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(file.name, "CSV", error) from error


def _read_parquet(file: LogFile, params: IngestParams) -> pl.DataFrame:
    """Check the unpacked size, then read."""
    import pyarrow
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_metadata(file.path)
        unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        check_unpacked_size(file.name, max(unpacked, metadata.num_rows), params.max_bytes)
        with quiet_stderr():  # a panic of polars on a damaged file prints a trace of its own
            return read_parquet(file.path)
    except (OSError, UnicodeDecodeError, pyarrow.ArrowException, pl.exceptions.PolarsError) as error:
        raise unreadable(file.name, "Parquet", error) from error


def _read_npz(file: LogFile, params: IngestParams) -> RobotLog:
    """Read a NumPy archive, whose arrays the user names like columns; pickled objects in it are rejected."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            check_unpacked_size(file.name, unpacked, params.max_bytes)
        with np.load(file.path, allow_pickle=False) as arrays:
            content = {name: np.asarray(arrays[name]) for name in arrays.files}
    except InputError:
        raise
    except Exception as error:  # a damaged archive can raise anything, from zlib.error to NotImplementedError
        raise unreadable(file.name, "NPZ without pickled objects", error) from error

    def get(name: str) -> NDArray[np.float64]:
        return column_array(content[name], name, file.name)

    return read_columns(
        get,
        list(content),
        params.columns,
        sample_rate_hz=params.sample_rate_hz,
        source_format="NPZ",
        source=file.name,
    )
