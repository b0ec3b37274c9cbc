"""Running `dvc` and `git` in a project, each as a process of its own: DVC is neither thread-safe nor interruptible."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipelines.project import Project

# Reading the events that a running stage appends to its file.


class EventsTail:
    """Hands out each complete line of a growing JSON-lines file once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_events(self) -> list[dict[str, Any]]:
        """Events written since the last call; a half-written last line waits for the next."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [json.loads(line) for line in whole.splitlines()]


# Keeping secrets out of logs: values of secret-looking variables, and passwords in addresses.


_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|AUTH_STRING|ACCESS_KEY|API_KEY|CONNECTION_URL|CONNECTION_STRING", re.I
)
IN_ADDRESS = re.compile(r"(\w[\w+.-]*://)[^\s/@]+@")
"""user:password@ in front of a host."""
_MIN_LENGTH = 6
"""Shorter values would blank out ordinary words."""
_BLANK = "***"


def redact(text: str) -> str:
    """The text without passwords in addresses and without the values of this process's secrets."""
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _MIN_LENGTH:
            for part in {value, value.partition(":")[2]}:
                if len(part) >= _MIN_LENGTH:
                    text = text.replace(part, _BLANK)
    return IN_ADDRESS.sub(rf"\1{_BLANK}@", text)


BUSY_MESSAGE = "is busy, it is being blocked by"
"""DVC's own words where another dvc command works on the same files; the pin dvc>=3.67,<3.68 and a test hold them."""
_SHOWN_CHARACTERS = 600
"""Of what a failed command said, from its end."""


class CommandError(RuntimeError):
    """A dvc or git command failed."""

    def __init__(self, sentence: str, said: str) -> None:
        super().__init__(sentence)
        self.reason = redact((said.strip().splitlines() or ["no reason given"])[-1])
        """The last line that the command said."""
        self.is_busy = BUSY_MESSAGE in said
        """True if another dvc command works on the same files."""


def run_dvc(project: Project, *arguments: str) -> str:
    """What dvc printed; it waits for DVC's own lock. CommandError if it failed."""
    return _run(project.root, "dvc", [sys.executable, "-m", "dvc", "--wait-for-lock"], arguments).decode()


def run_git(folder: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    """What git printed; it takes no lock that it does not need. CommandError if it failed."""
    return _run(folder, "git", ["git", "--no-optional-locks"], arguments, stdin)


def _run(
    folder: Path, name: str, command: list[str], arguments: tuple[str, ...], stdin: bytes | None = None
) -> bytes:
    result = subprocess.run([*command, *arguments], cwd=folder, input=stdin, capture_output=True, check=False)
    if result.returncode:
        words = " ".join(word for word in arguments if "://" not in word)
        said = result.stderr.decode(errors="replace")
        shown = redact(said.strip()[-_SHOWN_CHARACTERS:])
        raise CommandError(f"'{name} {words}' failed in {folder}: {shown}", said)
    return result.stdout


# DVC's cache of this project, wherever its configuration puts it.


def cache_dir(project: Project) -> Path:
    """Where DVC keeps this project's data (`cache.dir` of its configuration, or its default)."""
    return project.root / run_dvc(project, "cache", "dir").strip()


def cached_file(cache: Path, md5: str) -> Path:
    """Where the cache has the content with this hash, if it has it."""
    return cache / "files" / "md5" / md5[:2] / md5[2:]
