"""The scratch directory of a running stage, locked while its process lives, so that a killed one is recognised."""

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

SCRATCH_PREFIX = ".scratch-"


class Scratch:
    """An empty directory in the scan's, held by this process until it is closed or dies."""

    def __init__(self, scan_dir: Path, stage: str) -> None:
        self.path = Path()
        while not self.path.name:
            made = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{stage}-", dir=scan_dir))
            self._handle = os.open(made, os.O_RDONLY)
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            if made.exists():  # not swept away before it was locked
                self.path = made
            else:
                os.close(self._handle)

    def close(self) -> None:
        """Remove the directory with what is still in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def remove_abandoned(scan_dir: Path, stage: str) -> None:
    """Remove the scratch directories of this stage that no living process holds."""
    for path in scan_dir.glob(f"{SCRATCH_PREFIX}{stage}-*"):
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except BlockingIOError:
            pass
        finally:
            os.close(handle)
