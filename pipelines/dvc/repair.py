"""Protect results from crashes: keep old outputs, verify recorded hashes, repair dvc.lock and DVC's lock table."""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.dvc.commands import cache_dir, cached_file
from pipelines.project import Project
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping, write_bytes_atomic
from stages.runtime.scan_file import read_scan_file

# Old outputs of a stage. DVC deletes them before it runs the command. `persist` would prevent that but disable DVC's
# run cache, so hard links are kept instead.


KEPT_PREFIX = ".kept-"


@contextmanager
def kept_outputs(
    scan_dir: Path, stage: str, outputs: Sequence[Path], is_recorded: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Restore the stage's old outputs if the block fails.

    Requires the scan's lock: kept outputs that exist on entry were left by a killed run. `is_recorded` returns whether
    dvc.lock matches the outputs present after a failure: new outputs that DVC could not record (cache full or
    read-only) are replaced by the old ones.
    """
    shelter = scan_dir / f"{KEPT_PREFIX}{stage}"
    _restore(outputs, scan_dir, shelter)
    _rescue(outputs, scan_dir)
    _keep(outputs, scan_dir, shelter)
    try:
        yield
    except BaseException:
        if not is_recorded():
            _remove_newer(outputs, scan_dir, shelter)
        _restore(outputs, scan_dir, shelter)
        raise
    shutil.rmtree(shelter, ignore_errors=True)


def kept_stages(scan_dir: Path) -> list[str]:
    """Return the stages with kept outputs: running ones and those that were killed."""
    return [path.name.removeprefix(KEPT_PREFIX) for path in scan_dir.glob(f"{KEPT_PREFIX}*")]


def restore_outputs(scan_dir: Path, stage: str, outputs: Sequence[Path]) -> None:
    """Restore the outputs kept by a killed run of the stage. Requires the scan's lock."""
    _restore(outputs, scan_dir, scan_dir / f"{KEPT_PREFIX}{stage}")


def _rescue(outputs: Sequence[Path], scan_dir: Path) -> None:
    """Move what people put into an export to the scan's folder `measured`: DVC deletes the whole folder."""
    for folder in (output for output in outputs if output.is_dir()):
        from stages.export.export_files import rescue_others

        rescue_others(scan_dir, folder)


def _keep(outputs: Sequence[Path], scan_dir: Path, shelter: Path) -> None:
    for path in [path for output in outputs for path in _files(output)]:
        copy = shelter / path.relative_to(scan_dir)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, copy)
        except OSError:
            shutil.copy2(path, copy)


def _remove_newer(outputs: Sequence[Path], scan_dir: Path, shelter: Path) -> None:
    """Remove new outputs of which an old version was kept."""
    for output in outputs:
        if _files(shelter / output.relative_to(scan_dir)):
            for path in _files(output):
                path.unlink()


def _restore(outputs: Sequence[Path], scan_dir: Path, shelter: Path) -> None:
    for output in outputs:
        kept = {
            scan_dir / copy.relative_to(shelter): copy
            for copy in _files(shelter / output.relative_to(scan_dir))
        }
        if set(_files(output)) - kept.keys():
            continue  # new folder: don't mix an old certificate into it
        for original, copy in kept.items():
            if not original.exists():
                original.parent.mkdir(parents=True, exist_ok=True)
                os.replace(copy, original)
    shutil.rmtree(shelter, ignore_errors=True)


def _files(output: Path) -> list[Path]:
    """Return the output itself, or the files in it if it is a folder."""
    return [path for path in [output, *output.rglob("*")] if path.is_file()]


# Contents of dvc.lock.


LOCK_FILE_NAME = "dvc.lock"


def has_results(scan_dir: Path) -> bool:
    """Return whether any stage of the scan has succeeded."""
    return (scan_dir / LOCK_FILE_NAME).exists()


def recorded_stages(scan_dir: Path) -> dict[str, Any]:
    """Return recorded command, deps, params and outs by stage; empty if nothing has run."""
    stages = read_mapping(scan_dir / LOCK_FILE_NAME).get("stages") if has_results(scan_dir) else None
    return stages if isinstance(stages, dict) else {}


# Verification of recorded hashes. DVC trusts timestamps, sizes and write-protected cache entries, so it could restore a
# corrupt file as a valid result.


_DIRECTORY_MARK = ".dir"
"""DVC's suffix for the hash of a directory."""


@dataclass(frozen=True)
class _Recorded:
    """One output in dvc.lock."""

    path: Path
    md5: str


def recorded_outputs(project: Project, scan_id: str, stage: str) -> list[_Recorded]:
    """Return the stage's outputs with their recorded hashes; empty if the stage is not in dvc.lock."""
    recorded = recorded_stages(project.scan_dir(scan_id)).get(stage, {})
    return [_Recorded(project.root / output["path"], output["md5"]) for output in recorded.get("outs", [])]


def damaged(recorded: Iterable[_Recorded]) -> list[_Recorded]:
    """Return the outputs that are missing or whose hash differs from the recorded one."""
    return [item for item in recorded if md5_of_path(item.path) != item.md5]


def md5_of_file(path: Path) -> str:
    """Return the hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()


def md5_of_path(path: Path, of_file: Callable[[Path], str] = md5_of_file) -> str | None:
    """Return DVC's hash of a file or directory; None if it does not exist."""
    if path.is_file():
        return of_file(path)
    if not path.is_dir():
        return None
    entries = [
        {"md5": of_file(file), "relpath": file.relative_to(path).as_posix()}
        for file in path.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    listing = json.dumps(sorted(entries, key=lambda entry: str(entry["relpath"])), sort_keys=True)
    return hashlib.md5(listing.encode()).hexdigest() + _DIRECTORY_MARK


def discard(project: Project, items: Iterable[_Recorded]) -> None:
    """Remove corrupt files, and their copies in DVC's cache if those are corrupt too."""
    cache = cache_dir(project)
    for item in items:
        if item.path.is_dir():
            for file in sorted(item.path.rglob("*"), reverse=True):
                file.rmdir() if file.is_dir() else file.unlink()
        else:
            item.path.unlink(missing_ok=True)
        _discard_cached(cache, item.md5)


def _discard_cached(cache: Path, md5: str) -> None:
    copy = cached_file(cache, md5)
    if not copy.is_file():
        return
    if md5_of_path(copy) != md5.removesuffix(_DIRECTORY_MARK):
        copy.unlink()
    elif md5.endswith(_DIRECTORY_MARK):
        for entry in json.loads(copy.read_text(encoding="utf-8")):
            _discard_cached(cache, entry["md5"])


def recorded_md5(raw: Path) -> str | None:
    """Return the hash in the raw file's .dvc file; None if that file is missing or corrupt."""
    note = raw.with_name(raw.name + ".dvc")
    try:
        return str(read_mapping(note)["outs"][0]["md5"])
    except (InputError, KeyError, IndexError, TypeError):
        return None


def check_raw_files(project: Project, scan_id: str) -> None:
    """Reject a scan whose raw files differ from the registered ones."""
    scan_dir = project.scan_dir(scan_id)
    scan = read_scan_file(scan_dir)
    if scan.fruit is not None:
        check_raw_files(project, scan.fruit)
        return
    for name in sorted({scan.scan, scan.force_log, scan.cut_surface, scan.air_runs, scan.further_logs}):
        raw = scan_dir / name
        expected = recorded_md5(raw)
        if expected is not None and md5_of_path(raw) != expected:
            shown = raw.relative_to(project.root)
            state = "has changed since it was registered" if raw.exists() else "is missing"
            raise InputError(
                f"{shown} {state}. Results must come from the registered file. Restore it with 'dvc checkout "
                f"{shown}.dvc', or register the new file with 'scan2cut run FILE --id {scan_id} --replace'."
            )


# Disk space. On a full disk DVC waits forever for a lock it can't write.


_MIN_FREE_BYTES = 20_000_000
"""Enough for DVC's locks and tables, not for a stage's outputs."""


def check_disk_space(folder: Path) -> None:
    """Raise OSError (ENOSPC) if the disk is full."""
    if shutil.disk_usage(folder).free < _MIN_FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


# DVC's lock table, .dvc/tmp/rwlock, shared by all scans. DVC rewrites it in place, so a kill can corrupt it. Then every
# dvc command fails until it is removed, and a running one misses its entry when it ends. Both are detected and retried.


_BROKEN_MESSAGE = "Unable to read RWLock-file"
"""Part of DVC's message; checked by a test."""
_WAIT_S = 0.1


def recovered_from_broken_rwlock(project: Project, text: str, since_s: float) -> bool:
    """Return whether a command started at `since_s` failed because of the lock table; remove a corrupt table."""
    if _BROKEN_MESSAGE in text:
        _remove_broken_rwlock(project)
        return True
    mark = _mark(project)
    return mark.exists() and mark.stat().st_mtime >= since_s


def _remove_broken_rwlock(project: Project) -> bool:
    """Remove the table if it is corrupt, holding the lock that DVC takes to edit it."""
    import zc.lockfile

    table = project.root / ".dvc" / "tmp" / "rwlock"
    while True:
        try:
            lock = zc.lockfile.LockFile(str(table.with_name("rwlock.lock")))
            break
        except zc.lockfile.LockError:
            time.sleep(_WAIT_S)
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


# Repair of dvc.lock, which DVC does not write atomically.


def restore_broken_lock_file(project: Project, scan_id: str) -> str | None:
    """Replace a corrupt dvc.lock by its last valid copy and return a message; None if it is valid.

    Stages missing from that copy are recomputed or restored from DVC's run cache.
    """
    lock = project.scan_dir(scan_id) / LOCK_FILE_NAME
    if not lock.exists() or _is_valid(lock):
        return None
    spare = _spare(project, scan_id)
    if spare.exists() and _is_valid(spare):
        write_bytes_atomic(lock, spare.read_bytes())
        return f"{LOCK_FILE_NAME} of {scan_id} was corrupt; restored its last valid copy."
    os.replace(lock, lock.with_name(f"{LOCK_FILE_NAME}.broken"))
    return f"{LOCK_FILE_NAME} of {scan_id} was corrupt; renamed it to {LOCK_FILE_NAME}.broken. Its stages run again."


def keep_spare_lock_file(project: Project, scan_id: str) -> None:
    """Keep a copy of a valid dvc.lock."""
    lock = project.scan_dir(scan_id) / LOCK_FILE_NAME
    if lock.exists():
        write_bytes_atomic(_spare(project, scan_id), lock.read_bytes())


def _spare(project: Project, scan_id: str) -> Path:
    return project.state_dir / f"{scan_id}.{LOCK_FILE_NAME}"


def _is_valid(lock: Path) -> bool:
    try:
        stages = read_mapping(lock)["stages"]
        entries = [entry for body in stages.values() for entry in [*body.get("deps", []), *body["outs"]]]
        return all(isinstance(entry["path"], str) and len(entry["md5"]) >= 32 for entry in entries)
    except (InputError, KeyError, TypeError, AttributeError):
        return False
