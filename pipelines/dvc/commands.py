"""Running `dvc` and `git` in a project, each as a process of its own: DVC is neither thread-safe nor interruptible."""

import subprocess
import sys
from pathlib import Path

from pipelines.dvc.redact import redact
from pipelines.scans.project import Project

BUSY_SENTENCE = "is busy, it is being blocked by"
"""DVC's own words where another dvc command works on the same files; the pin dvc>=3.67,<3.68 and a test hold them."""
SHOWN_CHARACTERS = 600
"""Of what a failed command said, from its end."""


class CommandError(RuntimeError):
    """A dvc or git command failed."""

    def __init__(self, sentence: str, said: str) -> None:
        super().__init__(sentence)
        self.reason = redact((said.strip().splitlines() or ["no reason given"])[-1])
        """The last line that the command said."""
        self.is_busy = BUSY_SENTENCE in said
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
        shown = redact(said.strip()[-SHOWN_CHARACTERS:])
        raise CommandError(f"'{name} {words}' failed in {folder}: {shown}", said)
    return result.stdout
