"""One run at a time per scan. The kernel frees the lock when its holder dies, however it dies."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipelines.project import Project


@contextmanager
def scan_lock(project: Project, scan_id: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the scan's lock; `on_wait` is called once if another run has it."""
    folder = project.state_dir
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{scan_id}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
