"""The paper's pickled logs: {time, force [n, 6], position, velocity}.

A pickle can run code. This unpickler accepts NumPy arrays and plain Python values and rejects every other name.
"""

import io
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.ingest.column_map import read_columns
from stages.ingest.description import IngestParams
from stages.ingest.log_file import LogFile
from stages.ingest.robot_log import RobotLog, column_array
from stages.runtime.errors import InputError
from stages.shared.input_files import memory_bound

_ALLOWED = {
    (module, name)
    for package in ("numpy.core", "numpy._core")
    for module, name in (
        (f"{package}.multiarray", "_reconstruct"),
        (f"{package}.multiarray", "scalar"),
        (f"{package}.numeric", "_frombuffer"),
    )
} | {("numpy", "ndarray"), ("numpy", "dtype"), ("_codecs", "encode")}
"""Names used by NumPy's own pickles; _codecs.encode makes bytes of a string in protocol 2."""


class _ArraysOnly(pickle.Unpickler):
    """Unpickler that resolves only the names that NumPy's arrays need."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise InputError(
                f"The pickle asks for {module}.{name}. Only NumPy arrays and plain values are allowed, since a pickle "
                "can run any code. Export the log as NPZ, CSV or Parquet."
            )
        return super().find_class(module, name)


_MAX_DEPTH = 16
"""Maximum nesting of lists; one that contains itself has no end."""


def _values(value: Any, limit: int, depth: int = 0) -> int:
    """Count the values in nested lists, up to just beyond the limit."""
    if not isinstance(value, list | tuple):
        return 1
    if depth > _MAX_DEPTH:
        return limit + 1
    total = 0
    for item in value:
        total += _values(item, limit - total, depth + 1)
        if total > limit:
            break
    return total


def recognises(file: LogFile) -> bool:
    """Recognise a pickle by its name, since old pickles begin with anything, or by the first byte of newer ones."""
    return file.path.suffix in (".pkl", ".pickle") or file.start[:1] == b"\x80"


def read(file: LogFile, params: IngestParams) -> RobotLog:
    """Return the log of a pickle in the paper's layout, if pickles are allowed."""
    if not params.allow_pickle:
        raise InputError(
            f"{file.name} is a pickle, which can run any code when it is opened. Pickles are not read by default. "
            "Export the log as NPZ, CSV or Parquet; if you trust its origin: --set ingest.allow_pickle=true."
        )
    data, source = file.path.read_bytes(), file.name
    try:
        with memory_bound(params.max_bytes, source):
            content = _ArraysOnly(io.BytesIO(data)).load()
    except InputError:
        raise
    except Exception as error:  # a broken pickle can raise anything
        raise InputError(
            f"{source} can't be unpickled ({type(error).__name__}: {str(error)[:80]}). It must be a complete pickle of "
            "arrays. Export the log as NPZ, CSV or Parquet."
        ) from error
    if not isinstance(content, dict) or not {"time", "force", "position"} <= content.keys():
        raise InputError(
            f"{source} contains a {type(content).__name__} without time, force and position. The paper's layout is a "
            "dictionary with these three. Export the log as NPZ with ingest.columns."
        )
    columns = {key: key for key in ("time", "force", "position")}
    for key in columns:
        if _values(content[key], len(data)) > len(data):
            raise InputError(
                f"{source}: {key} repeats its lists until they hold more values than the file has bytes. A log holds "
                "each sample once. Export it as NPZ, CSV or Parquet."
            )

    def get(name: str) -> NDArray[np.float64]:
        return column_array(content[name], name, source)

    return read_columns(
        get, list(columns), columns, sample_rate_hz=None, source_format="paper pickle", source=source
    )
