"""Run `dvc` and `git` as subprocesses (DVC is neither thread-safe nor interruptible), redact secrets, tail events."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipelines.project import Project


class EventsTail:
    """Read a growing JSON-lines file, such as the events of a running stage."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_events(self) -> list[dict[str, Any]]:
        """Return the events written since the last call; a partial last line is read next time."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [json.loads(line) for line in complete.splitlines()]


# Secrets.


_SECRET_NAME = re.compile(
    r"SECRET|TOKEN|PASSW|AUTH_STRING|ACCESS_KEY|API_KEY|CONNECTION_URL|CONNECTION_STRING", re.I
)
IN_ADDRESS = re.compile(r"(\w[\w+.-]*://)[^\s/@]+@")
"""user:password@ in an address."""
_MIN_LENGTH = 6
"""Shorter values would redact ordinary words."""
_BLANK = "***"


def redact(text: str) -> str:
    """Remove passwords in addresses and the values of secret environment variables from the text."""
    for name, value in os.environ.items():
        if _SECRET_NAME.search(name) and len(value) >= _MIN_LENGTH:
            for part in {value, value.partition(":")[2]}:
                if len(part) >= _MIN_LENGTH:
                    text = text.replace(part, _BLANK)
    return IN_ADDRESS.sub(rf"\1{_BLANK}@", text)


BUSY_MESSAGE = "is busy, it is being blocked by"
"""Part of DVC's message when another dvc command has locked the files; checked by a test."""
_SHOWN_CHARACTERS = 600
"""Length of the end of a failed command's output that is shown."""


class CommandError(RuntimeError):
    """A dvc or git command failed."""

    def __init__(self, message: str, output: str) -> None:
        super().__init__(message)
        self.reason = redact((output.strip().splitlines() or ["no reason given"])[-1])
        """Last line of the command's output."""
        self.is_busy = BUSY_MESSAGE in output
        """True if another dvc command has locked the files."""


def run_dvc(project: Project, *arguments: str) -> str:
    """Run dvc, waiting for its lock, and return its output; raise CommandError if it fails."""
    return _run(project.root, "dvc", [sys.executable, "-m", "dvc", "--wait-for-lock"], arguments).decode()


def run_git(folder: Path, *arguments: str, stdin: bytes | None = None) -> bytes:
    """Run git without optional locks and return its output; raise CommandError if it fails."""
    return _run(folder, "git", ["git", "--no-optional-locks"], arguments, stdin)


def _run(
    folder: Path, name: str, command: list[str], arguments: tuple[str, ...], stdin: bytes | None = None
) -> bytes:
    result = subprocess.run([*command, *arguments], cwd=folder, input=stdin, capture_output=True, check=False)
    if result.returncode:
        words = " ".join(word for word in arguments if "://" not in word)
        output = result.stderr.decode(errors="replace")
        shown = redact(output.strip()[-_SHOWN_CHARACTERS:])
        raise CommandError(f"'{name} {words}' failed in {folder}: {shown}", output)
    return result.stdout


def cache_dir(project: Project) -> Path:
    """Return DVC's cache directory for this project."""
    return project.root / run_dvc(project, "cache", "dir").strip()


def cached_file(cache: Path, md5: str) -> Path:
    """Return the path in the cache of content with this hash."""
    return cache / "files" / "md5" / md5[:2] / md5[2:]
