"""What tables with columns that the user names have in common, whatever file they are in."""

import numpy as np
import polars as pl
from numpy.typing import NDArray

from disect_sim.errors import InputError
from stages.ingest.column_map import read_columns
from stages.ingest.params import IngestParams
from stages.ingest.robot_log import RobotLog


def log_of_frame(frame: pl.DataFrame, source_format: str, source: str, params: IngestParams) -> RobotLog:
    """The log in the columns of a table that ingest.columns names."""

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
    """Refuse a compressed file that would fill the memory."""
    if size > max_bytes:
        raise InputError(
            f"{source} holds {size / 1e6:.0f} MB when unpacked. At most {max_bytes / 1e6:.0f} MB are read. Cut the "
            "log to the time of one cut, or raise ingest.max_bytes."
        )


def unreadable(source: str, kind: str, error: Exception) -> InputError:
    """The error of a file that its library can't read."""
    reason = " ".join(str(error).split())[:160]
    return InputError(f"{source} can't be read as {kind} ({reason}). It must be whole. Export it again.")
