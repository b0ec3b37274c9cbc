"""Parquet files, whose columns the user names."""

import polars as pl

from stages.ingest.column_map import check_unpacked_size, log_of_frame, unreadable
from stages.ingest.description import IngestParams
from stages.ingest.log_file import LogFile
from stages.ingest.robot_log import RobotLog
from stages.runtime.artifacts import read_parquet


def recognises(file: LogFile) -> bool:
    """Recognise Parquet by its first four bytes."""
    return file.start.startswith(b"PAR1")


def read(file: LogFile, params: IngestParams) -> RobotLog:
    """Return the log of a Parquet file, whose unpacked size is checked before it is read."""
    import pyarrow
    import pyarrow.parquet

    try:
        metadata = pyarrow.parquet.read_metadata(file.path)
        unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
        check_unpacked_size(file.name, max(unpacked, metadata.num_rows), params.max_bytes)
        frame = read_parquet(file.path)
    except (OSError, pyarrow.ArrowException, pl.exceptions.PolarsError) as error:
        raise unreadable(file.name, "Parquet", error) from error
    return log_of_frame(frame, "Parquet", file.name, params)
