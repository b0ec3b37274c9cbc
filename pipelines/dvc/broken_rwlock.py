"""DVC's table of path locks, .dvc/tmp/rwlock: it is rewritten in place, so a kill can leave it half-written.

All scans share this table. Where it is broken, every dvc command fails until it is gone; and one that is running then
misses its own entry when it ends. Both are distinguished from real failures here, and the command is run again.
"""

import json
import time
from pathlib import Path

from pipelines.scans.project import Project

BROKEN_SENTENCE = "Unable to read RWLock-file"
"""DVC's own words; the pin dvc>=3.67,<3.68 and a test hold them."""
WAIT_S = 0.1


def recovered_from_broken_rwlock(project: Project, text: str, since_s: float) -> bool:
    """True if the command that began then (time.time) failed because of the table; a broken table is removed."""
    if BROKEN_SENTENCE in text:
        remove_broken_rwlock(project)
        return True
    mark = _mark(project)
    return mark.exists() and mark.stat().st_mtime >= since_s


def remove_broken_rwlock(project: Project) -> bool:
    """Remove the table if it can't be read, under the lock that DVC itself takes to edit it."""
    import zc.lockfile

    table = project.root / ".dvc" / "tmp" / "rwlock"
    while True:
        try:
            lock = zc.lockfile.LockFile(str(table.with_name("rwlock.lock")))
            break
        except zc.lockfile.LockError:
            time.sleep(WAIT_S)
    try:
        if not table.exists() or _is_readable(table):
            return False
        _mark(project).parent.mkdir(parents=True, exist_ok=True)
        _mark(project).touch()
        table.unlink()
        return True
    finally:
        lock.close()


def _is_readable(table: Path) -> bool:
    try:
        json.loads(table.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def _mark(project: Project) -> Path:
    return project.state_dir / "rwlock_removed"
