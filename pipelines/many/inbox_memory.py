"""What became of every delivery, kept across restarts: one JSON line each, appended and fsynced."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

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
