"""Files: untrusted YAML, hashes, atomic writes, scratch directories of running stages."""

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
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import yaml

from disect_sim.processes import STDERR, native_output_silenced
from stages.runtime.errors import InputError

quiet_stderr = partial(native_output_silenced, STDERR)
"""Discard what native libraries write to stderr inside the `with` block."""


# Untrusted YAML: plain values, limited size, no aliases.


_MAX_BYTES = 10_000_000
"""A dvc.lock with a hundred outputs has 20 kB."""

_CACHE_SIZE = 8
"""Number of parsed texts kept: a run reads the same template, parameters and dvc.lock for every stage, and parsing each
takes tens of milliseconds. The cache is keyed by text, so a changed file is always parsed again."""


class _UniqueKeys:
    """Part of a YAML loader that rejects duplicate keys."""

    def flatten_mapping(self, node: Any) -> None:
        seen = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if (key.tag, key.value) in seen:
                raise yaml.YAMLError(
                    f"line {key.start_mark.line + 1} has the duplicate key {key.value[:80]!r}"
                )
            seen.add((key.tag, key.value))
        super().flatten_mapping(node)  # type: ignore[misc]


class _PlainLoader(_UniqueKeys, yaml.SafeLoader):
    """YAML loader that also rejects aliases: a few lines can expand to billions of values."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.YAMLError(f"line {mark.line + 1} has an alias ('*'), which is not allowed")
        return super().compose_node(parent, index)


class _FastLoader(_UniqueKeys, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """The same by libyaml, eight times as fast; only for text without aliases and deep nesting, on which it crashes."""


_DEEPEST = 500
"""Bound of the nesting for _FastLoader."""


def _is_shallow(text: str) -> bool:
    """Return whether the text has no alias and can't be nested deeply: a level needs a bracket or an indentation."""
    brackets = text.count("[") + text.count("{")
    return "*" not in text and brackets <= _DEEPEST and max(map(len, text.split("\n"))) <= _DEEPEST


for _loader in (
    _PlainLoader,
    _FastLoader,
):  # 1e-3 is a number, as in YAML 1.2; PyYAML follows 1.1, where it is text
    _loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
    )


class PlainDumper(yaml.SafeDumper):
    """YAML dumper that writes every value in full, so that _PlainLoader can read it."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 -- PyYAML's signature
        """Never write an alias."""
        return True


def parse_yaml(text: str) -> Any:
    """Parse YAML; raise yaml.YAMLError if it is invalid, has aliases, or is nested too deeply."""
    try:
        return deepcopy(_parsed(text))
    except RecursionError as error:
        raise yaml.YAMLError("values are nested too deeply") from error


@lru_cache(maxsize=_CACHE_SIZE)
def _parsed(text: str) -> Any:
    try:
        return yaml.load(text, Loader=_FastLoader if _is_shallow(text) else _PlainLoader)
    except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError) as error:
        # PyYAML raises these for invalid values: a 13th month, a number of 5,000 digits, a tag on the wrong type
        raise yaml.YAMLError(f"invalid value: {str(error)[:120]}") from error


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a YAML file; raise InputError if it can't be read or is not a mapping."""
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
        raise InputError(
            f"{path} contains a {kind}, not a mapping. It must have 'key: value' lines. Restore it."
        )
    return content


def _bounded_text(path: Path) -> str:
    """Read a regular file of limited size; a named pipe would block, and a device such as /dev/zero never ends."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)
        raise InputError(f"{path} is not a regular file. It must be a YAML text file. Restore it.")
    with open(handle, encoding="utf-8") as file:
        if status.st_size > _MAX_BYTES:
            raise InputError(
                f"{path} has {status.st_size / 1e6:.0f} MB. YAML files must have at most {_MAX_BYTES / 1e6:.0f} MB. "
                "Restore it."
            )
        return file.read(_MAX_BYTES)


# Hashes.


_SETTLED_S = 0.1
"""Age from which a file's times tell whether it has changed [s]; several ticks of the kernel's clock, about 10 ms."""
_DIGESTS: dict[tuple[int, ...], str] = {}
"""sha256 of the files hashed by this process, by device, inode, size and times: a raw scan may have gigabytes."""


def sha256_of_file(path: Path) -> str:
    """Return the sha256 of a file, which is read once per process; raise InputError if it can't be read."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
            if key not in _DIGESTS:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if time.time() - max(status.st_mtime, status.st_ctime) < _SETTLED_S:
                    return digest
                _DIGESTS[key] = digest
            return _DIGESTS[key]
    except OSError as error:
        raise InputError(
            f"{path} can't be read ({error.strerror or error}). Give a readable file."
        ) from error


def sha256_of_start(path: Path, size: int) -> str:
    """Return the sha256 of the file's first `size` bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, 1 << 20))):
            digest.update(chunk)
            size -= len(chunk)
    return digest.hexdigest()


def sha256_of_path(path: Path) -> str:
    """Return the sha256 of a file, or of the names and contents of a directory's files (without bytecode)."""
    if not path.is_dir():
        return sha256_of_file(path)
    files = (p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)
    return sha256_of_value({str(p.relative_to(path)): sha256_of_file(p) for p in files})


def sha256_of_value(value: Any) -> str:
    """Return the sha256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, allow_nan=False).encode()).hexdigest()


# Atomic writes.


_WRITING_S = 60.0
"""Maximum duration of a write; older temporary files belong to killed processes."""


def write_bytes_atomic(path: Path, data: bytes) -> None:
    """Write through a temporary file, fsync and rename, so that readers never see a partial file."""
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
    """Remove temporary files left in the folder by killed processes."""
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


# Scratch directories, locked while their process is alive, so that those of killed processes can be detected.


_SCRATCH_PREFIX = ".scratch-"
TEMPORARY_LINK, _TEMPORARY_PREFIX = "temporary", "scan2cut-"
"""Name of the link to the folder of temporary files, and prefix of that folder's name."""
_PF_EXITING = 0x4
"""Process flag in /proc/<process>/stat, from linux/sched.h."""
LIVE_FILE_NAME = "live.png"
"""Live picture in the scan's directory while a stage runs."""


class Scratch:
    """Empty directory in the scan's directory, locked by this process until it is closed or the process ends."""

    def __init__(self, scan_dir: Path, stage: str) -> None:
        self.path = Path()
        while not self.path.name:
            made = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{stage}-{os.getpid()}-", dir=scan_dir))
            self._handle = os.open(made, os.O_RDONLY)
            lock(self._handle)
            if made.exists():  # not removed by another process before it was locked
                self.path = made
            else:
                os.close(self._handle)

    @contextmanager
    def temporary_files(self) -> Iterator[None]:
        """Put Python's temporary files into a folder that is removed with this one, also after a kill.

        It is in the system's temporary directory, because socket names must be short; a link here points to it.
        """
        before = tempfile.tempdir
        folder = Path(tempfile.gettempdir()) / f"{_TEMPORARY_PREFIX}{uuid.uuid4().hex[:12]}"
        (self.path / TEMPORARY_LINK).symlink_to(folder.absolute())
        folder.mkdir(mode=0o700)
        tempfile.tempdir = str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = before
            _remove_temporary_files(self.path)

    def close(self) -> None:
        """Remove the directory and its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._handle)


def remove_abandoned(scan_dir: Path) -> None:
    """Remove files left by killed processes: scratch directories, live pictures, partial files."""
    _remove_half_written(scan_dir)
    for path in scan_dir.glob(f"{_SCRATCH_PREFIX}*"):
        try:
            handle = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        try:
            if not lock(handle, wait=False) and not _is_dying(path):
                continue
            for picture in (scan_dir / LIVE_FILE_NAME, *scan_dir.glob(f".{LIVE_FILE_NAME}.*")):
                picture.unlink(missing_ok=True)
            _remove_temporary_files(path)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(handle)


LIBRARY_VARIABLE = "SCAN2CUT_LIBRARY"
"""Environment variable: folder of a workspace's own library, set by commands; its stages find it by a link."""


def lock(handle: int, *, wait: bool = True) -> bool:
    """Lock the open file or directory; return False if another process has it and `wait` is False.

    The kernel releases the lock when the handle is closed or its process dies.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        return True
    except BlockingIOError:
        return False


def _is_dying(scratch: Path) -> bool:
    """Return whether its process was killed but the kernel has not yet released its lock (Linux).

    That takes seconds if a stage used gigabytes and the machine is busy; the process runs no more code.
    """
    try:
        process = scratch.name.split("-")[-2]
        flags = Path(f"/proc/{int(process)}/stat").read_text().rpartition(")")[2].split()[6]
        return bool(int(flags) & _PF_EXITING)
    except (OSError, ValueError, IndexError):
        return False


def _remove_temporary_files(scratch: Path) -> None:
    """Remove the folder that the scratch directory's link points to, if it was created by Scratch."""
    link = scratch / TEMPORARY_LINK
    if not link.is_symlink():
        return
    folder = link.readlink()
    if folder.name.startswith(_TEMPORARY_PREFIX) and folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
    link.unlink()
