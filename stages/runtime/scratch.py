"""The scratch directory of a running stage, locked while its process lives, so that a killed one is recognised."""

import fcntl
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stages.runtime.atomic_file import remove_half_written

SCRATCH_PREFIX = ".scratch-"
TEMPORARY_LINK, TEMPORARY_PREFIX = "temporary", "scan2cut-"
"""Name of the link to the folder of temporary files, and how that folder's name begins."""
PF_EXITING = 0x4
"""From linux/sched.h: among the flags in /proc/<process>/stat."""
LIVE_FILE_NAME = "live.png"
"""In the scan's directory while a stage runs that has something to see."""


class Scratch:
    """An empty directory in the scan's, held by this process until it is closed or dies."""

    def __init__(self, scan_dir: Path, stage: str) -> None:
        self.path = Path()
        while not self.path.name:
            made = Path(tempfile.mkdtemp(prefix=f"{SCRATCH_PREFIX}{stage}-{os.getpid()}-", dir=scan_dir))
            self._handle = os.open(made, os.O_RDONLY)
            fcntl.flock(self._handle, fcntl.LOCK_EX)
            if made.exists():  # not swept away before it was locked
                self.path = made
            else:
                os.close(self._handle)

    @contextmanager
    def temporary_files(self) -> Iterator[None]:
        """Within this, Python's temporary files lie in a folder that is removed with this one, also after a kill.

        It lies among the system's temporary files, since names of sockets must be short; a link here points to it.
        """
        before = tempfile.tempdir
        place = Path(tempfile.gettempdir()) / f"{TEMPORARY_PREFIX}{uuid.uuid4().hex[:12]}"
        (self.path / TEMPORARY_LINK).symlink_to(place.absolute())
        place.mkdir(mode=0o700)
        tempfile.tempdir = str(place)
        try:
            yield
        finally:
            tempfile.tempdir = before
            _remove_temporary_files(self.path)

    def close(self) -> None:
        """Remove the directory with what is still in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def remove_abandoned(scan_dir: Path) -> None:
    """Remove what killed processes left: scratch directories of any stage, the picture it was showing, half files."""
    remove_half_written(scan_dir)
    for path in scan_dir.glob(f"{SCRATCH_PREFIX}*"):
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            if not _is_free(handle) and not _is_dying(path):
                continue
            for picture in (scan_dir / LIVE_FILE_NAME, *scan_dir.glob(f".{LIVE_FILE_NAME}.*")):
                picture.unlink(missing_ok=True)
            _remove_temporary_files(path)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(handle)


def _is_free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def _is_dying(scratch: Path) -> bool:
    """True if its process was killed and the kernel still takes it apart (Linux): it keeps the lock for that long.

    That takes seconds where a stage had gigabytes and the machine is busy; it runs no line of code any more.
    """
    try:
        process = scratch.name.split("-")[-2]
        flags = Path(f"/proc/{int(process)}/stat").read_text().rpartition(")")[2].split()[6]
        return bool(int(flags) & PF_EXITING)
    except (OSError, ValueError, IndexError):
        return False


def _remove_temporary_files(scratch: Path) -> None:
    """Remove the folder that the scratch directory's link names, if it is one that was made here."""
    link = scratch / TEMPORARY_LINK
    if not link.is_symlink():
        return
    place = link.readlink()
    if place.name.startswith(TEMPORARY_PREFIX) and place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    link.unlink()
