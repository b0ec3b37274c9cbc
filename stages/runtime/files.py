"""Files that are either whole or not there."""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from stages.runtime.errors import InputError

# Silence for native libraries that write to the console's file descriptors themselves.


@contextlib.contextmanager
def quiet_stderr() -> Iterator[None]:
    """Drop everything written to file descriptor 2 inside the block."""
    saved = os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(null)


# Reading untrusted YAML: plain values only, bounded in size, no aliases.


_MAX_BYTES = 10_000_000
"""A dvc.lock with a hundred outputs has 20 kB."""

_REMEMBERED = 8
"""Texts whose value is kept: a run reads the same template, parameters and dvc.lock for every stage, and PyYAML needs a
third of a second for each. Only the same text gives the same value, so a changed file is never missed."""


class _PlainLoader(yaml.SafeLoader):
    """Refuses aliases, a few lines of which can stand for billions of values, and keys that are given twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(
                f"line {mark.line + 1} refers to another place with '*', which is not read here"
            )
        return super().compose_node(parent, index)

    def compose_mapping_node(self, anchor: Any) -> Any:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.YAMLError(
                    f"line {key.start_mark.line + 1} gives {key.value[:80]!r} a second time, and one of both would be "
                    "ignored"
                )
            seen.add((key.tag, key.value))
        return node


_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)
"""1e-3 is a number, as in YAML 1.2; PyYAML follows 1.1, where it is text."""


class PlainDumper(yaml.SafeDumper):
    """Writes every value in full, so that what is written can be read back."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 -- PyYAML's signature
        """Never write an alias."""
        return True


def parse_yaml(text: str) -> Any:
    """The text's value; yaml.YAMLError if it is no YAML, has aliases, or is nested too deeply."""
    return deepcopy(_parsed(text))


@lru_cache(maxsize=_REMEMBERED)
def _parsed(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_PlainLoader)
    except RecursionError as error:
        raise yaml.YAMLError("it nests values too deeply") from error
    except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError) as error:
        # PyYAML lets errors of the values through: a 13th month, a number of 5,000 digits, a tag on the wrong value
        raise yaml.YAMLError(f"a value in it can't be read: {str(error)[:120]}") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """The file's top-level mapping; InputError if it can't be read or is something else."""
    try:
        content = parse_yaml(_bounded_text(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} can't be read ({error}). It must be a YAML text file. Restore it."
        ) from error
    except yaml.YAMLError as error:
        where = " ".join(str(error).split())
        raise InputError(f"{path} is not valid YAML ({where}). Correct that line.") from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise InputError(f"{path} holds a {kind}, not a mapping. It must be 'key: value' lines. Restore it.")
    return content


def _bounded_text(path: Path) -> str:
    """The text of a regular file: a pipe would be waited for, and a device such as /dev/zero has no end."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        raise InputError(f"{path} is not a regular file. It must be a YAML text file. Restore it.")
    with open(handle, encoding="utf-8") as file:
        if found.st_size > _MAX_BYTES:
            raise InputError(
                f"{path} has {found.st_size / 1e6:.0f} MB. At most {_MAX_BYTES / 1e6:.0f} MB of YAML are read. "
                "Restore it."
            )
        return file.read(_MAX_BYTES)


# sha256 of files, directories and values.


def sha256_of_file(path: Path) -> str:
    """Hex digest of the file's content; InputError if it can't be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(
            f"{path} can't be read ({error.strerror or error}). Give a readable file."
        ) from error


def sha256_of_start(path: Path, size: int) -> str:
    """Hex digest of the file's first `size` bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, 1 << 20))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.hexdigest()


def sha256_of_path(path: Path) -> str:
    """Hex digest of a file, or of the names and contents of a directory's files (bytecode left out)."""
    if not path.is_dir():
        return sha256_of_file(path)
    files = (p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return sha256_of_value({str(p.relative_to(path)): sha256_of_file(p) for p in files})


def sha256_of_value(value: Any) -> str:
    """Hex digest of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


_WRITING_S = 60.0
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


def _remove_half_written(folder: Path) -> None:
    """Remove the temporary files of killed processes in this folder."""
    for path in folder.glob(".*.????????"):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file() and time.time() - path.stat().st_mtime > _WRITING_S:
                path.unlink()


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# The scratch directory of a running stage, locked while its process lives, so that a killed one is recognised.


_SCRATCH_PREFIX = ".scratch-"
TEMPORARY_LINK, _TEMPORARY_PREFIX = "temporary", "scan2cut-"
"""Name of the link to the folder of temporary files, and how that folder's name begins."""
_PF_EXITING = 0x4
"""From linux/sched.h: among the flags in /proc/<process>/stat."""
LIVE_FILE_NAME = "live.png"
"""In the scan's directory while a stage runs that has something to see."""


class Scratch:
    """An empty directory in the scan's, held by this process until it is closed or dies."""

    def __init__(self, scan_dir: Path, stage: str) -> None:
        self.path = Path()
        while not self.path.name:
            made = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{stage}-{os.getpid()}-", dir=scan_dir))
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
        place = Path(tempfile.gettempdir()) / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex[:12]}"
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
    _remove_half_written(scan_dir)
    for path in scan_dir.glob(f"{_SCRATCH_PREFIX}*"):
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
        return bool(int(flags) & _PF_EXITING)
    except (OSError, ValueError, IndexError):
        return False


def _remove_temporary_files(scratch: Path) -> None:
    """Remove the folder that the scratch directory's link names, if it is one that was made here."""
    link = scratch / TEMPORARY_LINK
    if not link.is_symlink():
        return
    place = link.readlink()
    if place.name.startswith(_TEMPORARY_PREFIX) and place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    link.unlink()
