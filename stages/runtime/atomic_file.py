"""Files that are either whole or not there."""

import contextlib
import os
import tempfile
import time
from pathlib import Path

WRITING_S = 60.0
"""No write of a file takes longer: an older temporary file belongs to a process that was killed."""


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Write through a temporary file, fsync and rename, so that no reader ever sees half a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def remove_half_written(folder: Path) -> None:
    """Remove the temporary files of killed processes in this folder."""
    for path in folder.glob(".*.????????"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and time.time() - path.stat().st_mtime > WRITING_S:
                path.unlink()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
