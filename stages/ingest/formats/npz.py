"""NumPy archives, whose arrays the user names like columns."""

import zipfile

import numpy as np
from numpy.typing import NDArray

from stages.ingest.column_map import check_unpacked_size, read_columns, unreadable
from stages.ingest.description import IngestParams
from stages.ingest.log_file import LogFile
from stages.ingest.robot_log import RobotLog, column_array
from stages.runtime.errors import InputError


def recognises(file: LogFile) -> bool:
    """Recognise a zip archive by its first four bytes."""
    return file.start.startswith(b"PK\x03\x04")


def read(file: LogFile, params: IngestParams) -> RobotLog:
    """Return the log of a NumPy archive; pickled objects in it are rejected."""
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
