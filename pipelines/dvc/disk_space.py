"""Free space on the disk before DVC starts: on a full one it waits for a lock that it can't write, for ever."""

import errno
import os
import shutil
from pathlib import Path

MIN_FREE_BYTES = 20_000_000
"""Enough for DVC's locks and tables; what a stage itself needs is found out by writing it."""


def check_disk_space(folder: Path) -> None:
    """Raise ENOSPC, which becomes a sentence, if the disk is full already."""
    if shutil.disk_usage(folder).free < MIN_FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
