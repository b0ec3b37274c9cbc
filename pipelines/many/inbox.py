"""Find deliveries (a scan with its logs) in an inbox, check that they are complete, and remember their outcome.

A scan and its log belong together if they have the same name (apple.ply with apple.json or apple_log.csv), are alone in
a folder (apple/scan.ply, apple/cut.json, apple/air.json), or are listed in a manifest (apple.scan2cut.yaml: scan, log,
air, id, material, settings).
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pipelines.scans.register import reject_from_outside
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping
from stages.shared.input_files import CLOUD_SUFFIXES, LOG_SUFFIXES, MESH_SUFFIXES

# Outcomes of deliveries, kept across restarts.


State = Literal["started", "done", "refused", "failed"]


@dataclass(frozen=True)
class Remembered:
    """Record of one delivery: a line of the memory file."""

    key: str
    """sha256 of the contents, independent of file names."""
    scan: str
    """Path of the delivered scan."""
    scan_id: str | None
    state: State
    sentence: str = ""
    contents: dict[str, tuple[int, str]] | None = None
    """Path → size and sha256, to detect a file that has grown since."""


class InboxMemory:
    """Append-only JSON-lines file, fsynced; the last line of each key is valid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_key: dict[str, Remembered] = {}
        self._contents: dict[str, tuple[int, str]] = {}
        for line in self._valid_lines():
            self._take(line)

    def check_place(self) -> None:
        """Raise OSError if the memory file can't be written."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.open("ab").close()

    def state(self, key: str) -> Remembered | None:
        """Return the record of these contents, if any."""
        return self._by_key.get(key)

    def content(self, path: Path) -> tuple[int, str] | None:
        """Return size and sha256 of this path's content at its last delivery."""
        return self._contents.get(str(path))

    def add(self, line: Remembered) -> None:
        """Append a record and sync it to disk."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("ab") as file:
            if file.tell() and not self._ends_with_newline():
                file.write(b"\n")
            file.write(json.dumps(asdict(line)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._take(line)

    def _take(self, line: Remembered) -> None:
        self._by_key[line.key] = line
        self._contents |= {path: (size, digest) for path, (size, digest) in (line.contents or {}).items()}

    def _ends_with_newline(self) -> bool:
        with self._path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _valid_lines(self) -> Iterator[Remembered]:
        """Yield the valid lines; skip those left incomplete by a power cut."""
        if not self._path.exists():
            return
        for text in self._path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                line = Remembered(**json.loads(text))
                if all(len(item) == 2 for item in (line.contents or {}).values()):
                    yield line
            except (ValueError, TypeError, AttributeError, RecursionError):
                continue


_SCAN_SUFFIXES = frozenset(MESH_SUFFIXES + CLOUD_SUFFIXES)
_MANIFEST_SUFFIX = ".scan2cut.yaml"
_MANIFEST_KEYS = frozenset({"scan", "log", "air", "id", "material", "settings"})
_LONGEST_NAME = 255
"""Maximum length of a file name [bytes]."""
_LOG_ENDINGS = ("_log", "-log", ".log", " log")
"""Suffixes of a log's stem after the scan's name. Files of other types, such as .part, are ignored."""


@dataclass(frozen=True)
class Delivery:
    """Files of one scan, possibly incomplete."""

    name: str
    """Path of the scan or manifest in the inbox, for messages."""
    scan: Path | None = None
    log: Path | None = None
    air: tuple[Path, ...] = ()
    further: tuple[Path, ...] = ()
    """Logs of further cuts."""
    manifest: Path | None = None
    choices: dict[str, Any] = field(default_factory=dict)
    """id, material and settings, if given."""
    waits_for: str | None = None
    """Missing files, if any."""
    problem: str | None = None
    """Error message if it can't be used."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Return every file that must be complete before the scan can run."""
        return tuple(
            path
            for path in (self.scan, self.log, *self.air, *self.further, self.manifest)
            if path is not None
        )


def find_deliveries(inbox: Path) -> list[Delivery]:
    """Return all deliveries in the inbox and its folders, complete or not; symbolic links are ignored."""
    deliveries = _in_folder(inbox, inbox)
    folders = [path for path in inbox.iterdir() if path.is_dir() and not path.is_symlink()]
    for folder in sorted(path for path in folders if not path.name.startswith(".")):
        try:
            deliveries += _in_folder(inbox, folder)
        except OSError as error:
            message = f"Can't read {folder.name} ({error.strerror}). Change its owner or permissions."
            deliveries.append(Delivery(folder.name, problem=message))
    return deliveries


def _in_folder(inbox: Path, folder: Path) -> list[Delivery]:
    files = sorted(
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and path.is_file() and not path.is_symlink()
    )
    listed = [_by_manifest(inbox, path) for path in files if path.name.endswith(_MANIFEST_SUFFIX)]
    used = {path for delivery in listed for path in delivery.files}
    rest = [path for path in files if path not in used]
    scans = [path for path in rest if path.suffix.lower() in _SCAN_SUFFIXES]
    logs = [path for path in rest if path.suffix.lower() in LOG_SUFFIXES]
    if folder != inbox and len(scans) == 1:
        return [*listed, _alone_in_folder(inbox, scans[0], logs)]
    return listed + [_by_name(inbox, scan, logs) for scan in scans]


def find_log(scan: Path) -> Path | None:
    """Return the log of the same name in the scan's folder, if present."""
    delivery = _by_name(
        scan.parent, scan, [p for p in scan.parent.iterdir() if p.suffix.lower() in LOG_SUFFIXES]
    )
    if delivery.problem:
        raise InputError(delivery.problem)
    return delivery.log


def _by_name(inbox: Path, scan: Path, logs: Sequence[Path]) -> Delivery:
    names = {scan.stem.lower(), *(scan.stem.lower() + ending for ending in _LOG_ENDINGS)}
    return _delivery(inbox, scan, [log for log in logs if log.stem.lower() in names], ())


def _alone_in_folder(inbox: Path, scan: Path, logs: Sequence[Path]) -> Delivery:
    air = tuple(log for log in logs if log.name.lower().startswith("air"))
    return _delivery(inbox, scan, [log for log in logs if log not in air], air, id=scan.parent.name)


def _delivery(
    inbox: Path, scan: Path, logs: Sequence[Path], air: tuple[Path, ...], **choices: Any
) -> Delivery:
    name = str(scan.relative_to(inbox))
    if len(logs) > 1:
        problem = (
            f"{name} has {len(logs)} logs ({', '.join(log.name for log in logs)}). Their order must be given. Write "
            f"{scan.stem}{_MANIFEST_SUFFIX} with log: [first, second], or remove the others."
        )
        return Delivery(name, scan, problem=problem)
    if not logs:
        return Delivery(name, scan, waits_for="its log")
    return Delivery(name, scan, logs[0], air, choices=choices)


def _by_manifest(inbox: Path, manifest: Path) -> Delivery:
    name = str(manifest.relative_to(inbox))
    try:
        content = _read_manifest(manifest, signature(manifest))
        if isinstance(content, InputError):
            raise content
        unknown = sorted(set(map(str, content)) - _MANIFEST_KEYS)
        if unknown or "scan" not in content:
            raise InputError(
                f"{name} has {'the unknown key ' + repr(unknown[0]) if unknown else 'no scan'}. Allowed keys: "
                f"{', '.join(sorted(_MANIFEST_KEYS))}; scan is required. Correct it."
            )
        scan = _neighbour(manifest, content["scan"])
        log_names = content.get("log") or []
        logs = [
            _neighbour(manifest, item) for item in (log_names if isinstance(log_names, list) else [log_names])
        ]
        air = tuple(_neighbour(manifest, item) for item in _list_of(content.get("air") or [], f"{name}: air"))
        _check_settings(content.get("settings") or {}, name)
        reject_from_outside(content.get("settings") or {}, name)
        for key in ("id", "material"):
            if content.get(key) and not isinstance(content[key], str | int):
                raise InputError(f"{name}: {key} is {str(content[key])[:80]!r}. It must be text. Correct it.")
    except InputError as error:
        return Delivery(name, manifest=manifest, problem=str(error))
    missing = [path.name for path in (scan, *logs, *air) if not path.is_file()]
    choices = {key: content[key] for key in ("id", "material", "settings") if content.get(key)}
    waits_for = ", ".join(missing) or None
    log, further = (logs[0], tuple(logs[1:])) if logs else (None, ())
    return Delivery(name, scan, log, air, further, manifest, choices, waits_for)


_MAX_MANIFEST_BYTES = 100_000
"""A manifest has a few lines."""


@lru_cache(maxsize=2000)
def _read_manifest(manifest: Path, seen: tuple[int, int, int] | None) -> dict[str, Any] | InputError:
    """Return its content or why it has none; remembered for this size, time and inode, since an inbox is polled."""
    if seen is not None and seen[0] > _MAX_MANIFEST_BYTES:
        return InputError(
            f"{manifest.name} has {seen[0] / 1e3:.0f} kB. A manifest has a few lines, at most "
            f"{_MAX_MANIFEST_BYTES / 1e3:.0f} kB. Correct it."
        )
    try:
        return read_mapping(manifest)
    except InputError as error:
        return error


def _list_of(value: Any, source: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{source} is {str(value)[:80]!r}. It must be a list of file names. Correct it.")
    return value


def _check_settings(settings: Any, name: str) -> None:
    is_mapping = isinstance(settings, dict) and all(isinstance(key, str) for key in settings)
    if not is_mapping or not all(isinstance(value, dict) for value in settings.values()):
        raise InputError(
            f"{name}: settings is {str(settings)[:80]!r}. It must be a mapping stage: {{parameter: value}}. Correct it."
        )


def _neighbour(manifest: Path, name: Any) -> Path:
    """Return the path of a file in the manifest's folder; reject any other path."""
    path = manifest.parent / str(name)
    is_name = isinstance(name, str) and "\0" not in name and Path(name).name == name
    is_name = is_name and len(os.fsencode(path.name)) <= _LONGEST_NAME
    if not is_name or name.startswith(".") or path.is_symlink():
        raise InputError(
            f"{manifest.name} lists {str(name)[:80]!r}. It may only list files in its own folder, with names of at "
            f"most {_LONGEST_NAME} bytes. Move the file there."
        )
    return path


class Settling:
    """Track since when each file is unchanged."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._seen: dict[Path, tuple[tuple[int, int, int], float]] = {}

    def is_whole(self, paths: Iterable[Path], now_s: float) -> bool:
        """Return whether no file is empty and none has changed for the settling time."""
        complete = [
            self._is_whole(path, now_s) for path in paths
        ]  # no short-circuit: each must begin to settle
        return all(complete)

    def _is_whole(self, path: Path, now_s: float) -> bool:
        current = signature(path)
        if current is None or current[0] == 0:
            self._seen.pop(path, None)
            return False
        before, since_s = self._seen.get(path, (None, now_s))
        if current != before:
            since_s = now_s
        self._seen[path] = (current, since_s)
        return now_s - since_s >= self._settle_s


def signature(path: Path) -> tuple[int, int, int] | None:
    """Return size, modification time and inode; None if the file is gone."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino
