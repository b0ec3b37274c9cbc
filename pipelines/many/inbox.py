"""Which files of an inbox belong together, and whether they have arrived whole.

A scan and its log are a pair if the log is called like the scan (apple.ply with apple.json or apple_log.csv), if both
lie in a folder of their own (apple/scan.ply, apple/cut.json, apple/air.json), or if a manifest
(apple.scan2cut.yaml: scan, log, air, id, material, settings) says so.
"""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from pipelines.scans.register import reject_from_outside
from stages.runtime.errors import InputError
from stages.runtime.files import read_mapping
from stages.shared.input_files import LOG_SUFFIXES
from stages.shared.scan_header import CLOUD_SUFFIXES, MESH_SUFFIXES

# What became of every delivery, kept across restarts: one JSON line each, appended and fsynced.


State = Literal["started", "done", "refused", "failed"]


@dataclass(frozen=True)
class Remembered:
    """One line of the memory."""

    key: str
    """sha256 over the contents: the same files under other names have the same key."""
    scan: str
    """Path of the scan when it was delivered."""
    scan_id: str | None
    state: State
    sentence: str = ""
    contents: dict[str, tuple[int, str]] | None = None
    """Path → size and sha256, to recognise a file that has grown since."""


class InboxMemory:
    """The newest line of every key wins."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._by_key: dict[str, Remembered] = {}
        self._contents: dict[str, tuple[int, str]] = {}
        for line in self._whole_lines():
            self._take(line)

    def check_place(self) -> None:
        """OSError if nothing can be remembered there: said before anything is taken in."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.open("ab").close()

    def state(self, key: str) -> Remembered | None:
        """What is known about these contents."""
        return self._by_key.get(key)

    def content(self, path: Path) -> tuple[int, str] | None:
        """Size and sha256 of what this path held when it was last taken."""
        return self._contents.get(str(path))

    def add(self, line: Remembered) -> None:
        """Remember, on disk before anything else happens."""
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

    def _whole_lines(self) -> Iterator[Remembered]:
        """A line that a power cut left half-written is passed over."""
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
"""Bytes of a file's name that disks allow."""
_LOG_ENDINGS = ("_log", "-log", ".log", " log")
"""What a log may be called beyond its scan's name. Files with other endings, such as .part, are never looked at."""


@dataclass(frozen=True)
class Delivery:
    """Files that make one scan, as far as they are there."""

    name: str
    """For messages: the scan's or the manifest's path in the inbox."""
    scan: Path | None = None
    log: Path | None = None
    air: tuple[Path, ...] = ()
    further: tuple[Path, ...] = ()
    """Logs of further cuts."""
    manifest: Path | None = None
    choices: dict[str, Any] = field(default_factory=dict)
    """id, material and settings, where something says them."""
    waits_for: str | None = None
    """What is missing, if anything is."""
    problem: str | None = None
    """Why it can't be used as it is."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that must be whole before the scan can run."""
        return tuple(
            path
            for path in (self.scan, self.log, *self.air, *self.further, self.manifest)
            if path is not None
        )


def find_deliveries(inbox: Path) -> list[Delivery]:
    """All that lies in the inbox and in its folders, complete or not; links are left alone, they may lead anywhere."""
    found = _in_folder(inbox, inbox)
    folders = [path for path in inbox.iterdir() if path.is_dir() and not path.is_symlink()]
    for folder in sorted(path for path in folders if not path.name.startswith(".")):
        try:
            found += _in_folder(inbox, folder)
        except OSError as error:
            sentence = f"{folder.name} can't be read ({error.strerror}). Change its owner or its permissions."
            found.append(Delivery(folder.name, problem=sentence))
    return found


def _in_folder(inbox: Path, folder: Path) -> list[Delivery]:
    files = sorted(
        path
        for path in folder.iterdir()
        if not path.name.startswith(".") and path.is_file() and not path.is_symlink()
    )
    named = [_by_manifest(inbox, path) for path in files if path.name.endswith(_MANIFEST_SUFFIX)]
    taken = {path for delivery in named for path in delivery.files}
    rest = [path for path in files if path not in taken]
    scans = [path for path in rest if path.suffix.lower() in _SCAN_SUFFIXES]
    logs = [path for path in rest if path.suffix.lower() in LOG_SUFFIXES]
    if folder != inbox and len(scans) == 1:
        return [*named, _alone_in_folder(inbox, scans[0], logs)]
    return named + [_by_name(inbox, scan, logs) for scan in scans]


def find_log(scan: Path) -> Path | None:
    """The log beside the scan that is called like it, if there is one."""
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
            f"{name} has {len(logs)} logs ({', '.join(log.name for log in logs)}). Which cut is the first must be "
            f"said. Write {scan.stem}{_MANIFEST_SUFFIX} with log: [first, second], or remove the others."
        )
        return Delivery(name, scan, problem=problem)
    if not logs:
        return Delivery(name, scan, waits_for="its log")
    return Delivery(name, scan, logs[0], air, choices=choices)


def _by_manifest(inbox: Path, manifest: Path) -> Delivery:
    name = str(manifest.relative_to(inbox))
    try:
        content = read_mapping(manifest)
        unknown = sorted(set(map(str, content)) - _MANIFEST_KEYS)
        if unknown or "scan" not in content:
            raise InputError(
                f"{name} has {'the unknown key ' + repr(unknown[0]) if unknown else 'no scan'}. Its keys are "
                f"{', '.join(sorted(_MANIFEST_KEYS))}; scan is needed. Correct it."
            )
        scan = _neighbour(manifest, content["scan"])
        given = content.get("log") or []
        logs = [_neighbour(manifest, item) for item in (given if isinstance(given, list) else [given])]
        air = tuple(_neighbour(manifest, item) for item in _list_of(content.get("air") or [], f"{name}: air"))
        _check_settings(content.get("settings") or {}, name)
        reject_from_outside(content.get("settings") or {}, name)
        for key in ("id", "material"):
            if content.get(key) and not isinstance(content[key], str | int):
                raise InputError(
                    f"{name}: {key} is {str(content[key])[:80]!r}. It must be a word. Correct it."
                )
    except InputError as error:
        return Delivery(name, manifest=manifest, problem=str(error))
    missing = [path.name for path in (scan, *logs, *air) if not path.is_file()]
    choices = {key: content[key] for key in ("id", "material", "settings") if content.get(key)}
    waits_for = ", ".join(missing) or None
    log, further = (logs[0], tuple(logs[1:])) if logs else (None, ())
    return Delivery(name, scan, log, air, further, manifest, choices, waits_for)


def _list_of(value: Any, source: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{source} is {str(value)[:80]!r}. It must be a list of file names. Correct it.")
    return value


def _check_settings(settings: Any, name: str) -> None:
    is_mapping = isinstance(settings, dict) and all(isinstance(key, str) for key in settings)
    if not is_mapping or not all(isinstance(value, dict) for value in settings.values()):
        raise InputError(
            f"{name}: settings is {str(settings)[:80]!r}. It must be stage: {{parameter: value}}. Correct it."
        )


def _neighbour(manifest: Path, name: Any) -> Path:
    """A file beside the manifest; nothing outside its folder can be named."""
    path = manifest.parent / str(name)
    is_name = isinstance(name, str) and "\0" not in name and Path(name).name == name
    is_name = is_name and len(os.fsencode(path.name)) <= _LONGEST_NAME
    if not is_name or name.startswith(".") or path.is_symlink():
        raise InputError(
            f"{manifest.name} names {str(name)[:80]!r}. It may only name files beside it, with names of at most "
            f"{_LONGEST_NAME} bytes. Put the file there."
        )
    return path


class Settling:
    """Remembers since when each file looks the same."""

    def __init__(self, settle_s: float) -> None:
        self._settle_s = settle_s
        self._seen: dict[Path, tuple[tuple[int, int, int], float]] = {}

    def is_whole(self, paths: Iterable[Path], now_s: float) -> bool:
        """True if none is empty and none has changed for the settling time."""
        whole = [self._is_whole(path, now_s) for path in paths]  # all of them: each must begin to settle
        return all(whole)

    def _is_whole(self, path: Path, now_s: float) -> bool:
        look = signature(path)
        if look is None or look[0] == 0:
            self._seen.pop(path, None)
            return False
        before, since_s = self._seen.get(path, (None, now_s))
        if look != before:
            since_s = now_s
        self._seen[path] = (look, since_s)
        return now_s - since_s >= self._settle_s


def signature(path: Path) -> tuple[int, int, int] | None:
    """Size, time of change and inode; None if the file is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino
