"""A dvc.lock that a power cut left half-written (DVC does not write it atomically): the last good one comes back."""

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

# Keeping a stage's older outputs until the new ones are there.
#
# DVC deletes a stage's outputs before it runs the command. Marking them `persist` would prevent that, but
# also switch off DVC's run cache, so the flow holds on to them with hard links instead.


KEPT_PREFIX = ".kept-"


@contextmanager
def kept_outputs(
    scan_dir: Path, stage: str, outputs: Sequence[Path], is_recorded: Callable[[], bool] = lambda: True
) -> Iterator[None]:
    """Within the block the outputs may vanish; if the block fails, those that did are put back.

    The caller holds the scan's lock, so what is found here on entry was left by a run that was killed. `is_recorded`
    says whether dvc.lock knows the outputs that lie there after a failure: new ones that DVC could not record, because
    its cache is full or read-only, give way to the older ones, which it knows.
    """
    shelter = scan_dir / f"{KEPT_PREFIX}{stage}"
    _restore(outputs, scan_dir, shelter)
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
    """Stages whose older outputs lie aside: those that run, and those that were killed."""
    return [path.name.removeprefix(KEPT_PREFIX) for path in scan_dir.glob(f"{KEPT_PREFIX}*")]


def restore_outputs(scan_dir: Path, stage: str, outputs: Sequence[Path]) -> None:
    """Put back what a killed run of the stage laid aside. The caller holds the scan's lock."""
    _restore(outputs, scan_dir, scan_dir / f"{KEPT_PREFIX}{stage}")


def _keep(outputs: Sequence[Path], scan_dir: Path, shelter: Path) -> None:
    for path in [path for output in outputs for path in _files(output)]:
        copy = shelter / path.relative_to(scan_dir)
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, copy)
        except OSError:
            shutil.copy2(path, copy)


def _remove_newer(outputs: Sequence[Path], scan_dir: Path, shelter: Path) -> None:
    """Remove what lies in the place of kept outputs; where nothing was kept, nothing is removed."""
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
            continue  # a newer folder: an older certificate must not reappear beside it
        for place, copy in kept.items():
            if not place.exists():
                place.parent.mkdir(parents=True, exist_ok=True)
                os.replace(copy, place)
    shutil.rmtree(shelter, ignore_errors=True)


def _files(output: Path) -> list[Path]:
    """The output itself, or the files in it if it is a folder."""
    return [path for path in [output, *output.rglob("*")] if path.is_file()]


# A scan's dvc.lock: what DVC recorded of the stages that have run.


LOCK_FILE_NAME = "dvc.lock"


def has_results(scan_dir: Path) -> bool:
    """True if a stage of the scan has ever succeeded."""
    return (scan_dir / LOCK_FILE_NAME).exists()


def recorded_stages(scan_dir: Path) -> dict[str, Any]:
    """Stage → its recorded command, deps, params and outs; empty if nothing has run."""
    stages = read_mapping(scan_dir / LOCK_FILE_NAME).get("stages") if has_results(scan_dir) else None
    return stages if isinstance(stages, dict) else {}


# Do files still have the content that DVC recorded? Hashed anew, because DVC trusts times, sizes and its own cache.
#
# DVC believes a write-protected cache entry without looking, so a damaged one would come back as a good result.


_DIRECTORY_MARK = ".dir"
"""DVC's ending for the hash of a directory."""


@dataclass(frozen=True)
class _Recorded:
    """One output as dvc.lock describes it."""

    path: Path
    md5: str


def recorded_outputs(project: Project, scan_id: str, stage: str) -> list[_Recorded]:
    """The stage's outputs with their recorded hashes; none if the stage is not in dvc.lock."""
    recorded = recorded_stages(project.scan_dir(scan_id)).get(stage, {})
    return [_Recorded(project.root / out["path"], out["md5"]) for out in recorded.get("outs", [])]


def damaged(recorded: Iterable[_Recorded]) -> list[_Recorded]:
    """Those whose content is another than the recorded one, or which are missing."""
    return [item for item in recorded if md5_of_path(item.path) != item.md5]


def md5_of_path(path: Path) -> str | None:
    """DVC's hash of a file or of a directory; None if there is nothing."""
    if path.is_file():
        with path.open("rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest()
    if not path.is_dir():
        return None
    entries = [
        {"md5": md5_of_path(file), "relpath": file.relative_to(path).as_posix()}
        for file in path.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    ]
    listing = json.dumps(sorted(entries, key=lambda entry: str(entry["relpath"])), sort_keys=True)
    return hashlib.md5(listing.encode()).hexdigest() + _DIRECTORY_MARK


def discard(project: Project, items: Iterable[_Recorded]) -> None:
    """Remove damaged files, and their copies in DVC's cache where those are damaged too."""
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
    """The hash in the raw file's .dvc file; None if it is not under DVC or that file is damaged."""
    note = raw.with_name(raw.name + ".dvc")
    try:
        return str(read_mapping(note)["outs"][0]["md5"])
    except (InputError, KeyError, IndexError, TypeError):
        return None


def check_raw_files(project: Project, scan_id: str) -> None:
    """Refuse a scan whose raw files are not those that were registered: nothing is computed from damaged data."""
    scan_dir = project.scan_dir(scan_id)
    scan = read_scan_file(scan_dir)
    for name in sorted({scan.scan, scan.force_log, scan.cut_surface, scan.air_runs, scan.further_logs}):
        raw = scan_dir / name
        expected = recorded_md5(raw)
        if expected is not None and md5_of_path(raw) != expected:
            shown = raw.relative_to(project.root)
            state = "has changed since it was registered" if raw.exists() else "is missing"
            raise InputError(
                f"{shown} {state}. Results must come from the registered file. Get it back with 'dvc checkout "
                f"{shown}.dvc', or register the new one with 'scan2cut run FILE --id {scan_id} --replace'."
            )


# Free space on the disk before DVC starts: on a full one it waits for a lock that it can't write, for ever.


MIN_FREE_BYTES = 20_000_000
"""Enough for DVC's locks and tables; what a stage itself needs is found out by writing it."""


def check_disk_space(folder: Path) -> None:
    """Raise ENOSPC, which becomes a sentence, if the disk is full already."""
    if shutil.disk_usage(folder).free < MIN_FREE_BYTES:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


# DVC's table of path locks, .dvc/tmp/rwlock: it is rewritten in place, so a kill can leave it half-written.
#
# All scans share this table. Where it is broken, every dvc command fails until it is gone; and one that is running then
# misses its own entry when it ends. Both are distinguished from real failures here, and the command is run again.


BROKEN_MESSAGE = "Unable to read RWLock-file"
"""DVC's own words; the pin dvc>=3.67,<3.68 and a test hold them."""
_WAIT_S = 0.1


def recovered_from_broken_rwlock(project: Project, text: str, since_s: float) -> bool:
    """True if the command that began then (time.time) failed because of the table; a broken table is removed."""
    if BROKEN_MESSAGE in text:
        _remove_broken_rwlock(project)
        return True
    mark = _mark(project)
    return mark.exists() and mark.stat().st_mtime >= since_s


def _remove_broken_rwlock(project: Project) -> bool:
    """Remove the table if it can't be read, under the lock that DVC itself takes to edit it."""
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
