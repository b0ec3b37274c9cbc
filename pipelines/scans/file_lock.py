"""One run at a time per scan. The kernel frees the lock when its holder dies, however it dies."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.scans.project import Project


@contextmanager
def scan_lock(project: Project, scan_id: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the scan's lock; `on_wait` is called once if another run has it."""
    project.state_dir.mkdir(parents=True, exist_ok=True)
    with file_lock(project.state_dir / f"{scan_id}.lock", on_wait):
        yield


@contextmanager
def file_lock(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock on this file."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
