"""A dvc.lock that a power cut left half-written (DVC does not write it atomically): the last good one comes back."""

import os
from pathlib import Path

from disect_sim.errors import InputError
from pipelines.dvc.lock_file import LOCK_FILE_NAME
from pipelines.scans.project import Project
from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.yaml_file import read_mapping


def restore_broken_lock_file(project: Project, scan_id: str) -> str | None:
    """Put the last good dvc.lock in the place of a broken one; returns what was done, as a sentence.

    What the older file does not know is computed again or comes from DVC's run cache, so nothing becomes wrong.
    """
    lock = project.scan_dir(scan_id) / LOCK_FILE_NAME
    if not lock.exists() or _is_whole(lock):
        return None
    spare = _spare(project, scan_id)
    if spare.exists() and _is_whole(spare):
        write_bytes_atomic(lock, spare.read_bytes())
        return f"{LOCK_FILE_NAME} of {scan_id} was broken; the last good one is back in place."
    os.replace(lock, lock.with_name(f"{LOCK_FILE_NAME}.broken"))
    return f"{LOCK_FILE_NAME} of {scan_id} was broken and is now called {LOCK_FILE_NAME}.broken; its stages run again."


def keep_spare_lock_file(project: Project, scan_id: str) -> None:
    """Keep a copy of a dvc.lock that is whole."""
    lock = project.scan_dir(scan_id) / LOCK_FILE_NAME
    if lock.exists():
        write_bytes_atomic(_spare(project, scan_id), lock.read_bytes())


def _spare(project: Project, scan_id: str) -> Path:
    return project.state_dir / f"{scan_id}.{LOCK_FILE_NAME}"


def _is_whole(lock: Path) -> bool:
    try:
        stages = read_mapping(lock)["stages"]
        entries = [entry for body in stages.values() for entry in [*body.get("deps", []), *body["outs"]]]
        return all(isinstance(entry["path"], str) and len(entry["md5"]) >= 32 for entry in entries)
    except (InputError, KeyError, TypeError, AttributeError):
        return False
