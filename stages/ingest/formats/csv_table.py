"""Comma-separated tables with a header, whose columns the user names."""

import polars as pl

from stages.ingest.column_map import log_of_frame, unreadable
from stages.ingest.description import IngestParams
from stages.ingest.log_file import LogFile
from stages.ingest.robot_log import RobotLog


def recognises(file: LogFile) -> bool:
    """Return True if the first line has a comma and only printable characters."""
    return "," in file.first_line and file.first_line.isprintable() and not file.is_json


def read(file: LogFile, params: IngestParams) -> RobotLog:
    """Return the log of a comma-separated table with a header."""
    try:
        frame = pl.read_csv(file.path, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise unreadable(file.name, "CSV", error) from error
    return log_of_frame(frame, "CSV", file.name, params)
