"""Where things are in a project, and the environment its tools run in."""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stages.runtime.errors import InputError

TEMPLATE = Path("pipelines/dvc/scan.dvc.yaml")
"""The list of stages, relative to the project."""


@dataclass(frozen=True)
class Project:
    """A checkout of scan2cut with its data."""

    root: Path

    @property
    def template(self) -> Path:
        """The pipeline that every scan shares."""
        return self.root / TEMPLATE

    @property
    def scans_dir(self) -> Path:
        """One directory per scan."""
        return self.root / "data" / "scans"

    @property
    def sample_dir(self) -> Path:
        """The bundled sample."""
        return self.root / "data" / "sample"

    @property
    def prefect_home(self) -> Path:
        """Prefect's database and settings, kept inside the project."""
        return self.root / ".prefect"

    @property
    def state_dir(self) -> Path:
        """What this machine's runs need between themselves: locks and spare copies; may be deleted when none runs."""
        return self.root / ".dvc" / "tmp" / "scan2cut"

    @property
    def inbox_dir(self) -> Path:
        """Where runs that are started from the dashboard or by API take their files from."""
        return self.root / "data" / "inbox"

    def scan_dir(self, scan_id: str) -> Path:
        """The directory of one scan."""
        return self.scans_dir / scan_id

    def scan_ids(self) -> list[str]:
        """Registered scans, in alphabetical order; also those whose scan.yaml is a link that leads nowhere."""
        folders = self.scans_dir.iterdir() if self.scans_dir.is_dir() else ()
        return sorted(folder.name for folder in folders if _is_there(folder / "scan.yaml"))


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except OSError:
        return False
    return True


def known_scans(project: Project, scan_ids: Sequence[str]) -> list[str]:
    """These scans, or all if none is named; InputError if one is not registered."""
    known = project.scan_ids()
    for scan_id in scan_ids:
        if scan_id not in known:
            raise InputError(
                f"There is no scan {scan_id!r}. Registered are: {', '.join(known) or 'none'}. "
                "Register one with 'scan2cut run FILE'."
            )
    return list(scan_ids) or known


def find_project(start: Path | None = None) -> Project:
    """The project around the given (default: current) directory, else the checkout this code belongs to."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents, Path(__file__).parents[1]):
        if (folder / TEMPLATE).is_file() and (folder / "params.yaml").is_file():
            return Project(folder)
    raise InputError(
        f"{here} is not inside a scan2cut project. A project has params.yaml and {TEMPLATE}. "
        "Change into your clone of the repository."
    )


def quiet_environment(project: Project) -> dict[str, str]:
    """Settings that keep Prefect and DVC inside the project and silent towards the network."""
    return {
        "DO_NOT_TRACK": "1",
        "DVC_NO_ANALYTICS": "1",
        "PREFECT_HOME": str(project.prefect_home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",  # runs/embedded_server.py starts one that ends with us
    }


def apply_environment(project: Project) -> None:
    """Set what the user has not set, and put this Python first for the stages' `python`."""
    for key, value in quiet_environment(project).items():
        os.environ.setdefault(key, value)
    binaries = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != binaries:
        os.environ["PATH"] = os.pathsep.join([binaries, os.environ.get("PATH", "")])


# One run at a time per scan. The kernel frees the lock when its holder dies, however it dies.


@contextmanager
def scan_lock(project: Project, scan_id: str, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the scan's lock; `on_wait` is called once if another run has it."""
    project.state_dir.mkdir(parents=True, exist_ok=True)
    with file_lock(project.state_dir / f"{scan_id}.lock", on_wait):
        yield


@contextmanager
def file_lock(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock on this file."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
