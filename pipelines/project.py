"""Paths of a project, environment variables of its tools, and file locks."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stages.runtime.errors import InputError, did_you_mean
from stages.runtime.files import LIBRARY_VARIABLE, lock

TEMPLATE = Path("pipelines/dvc/scan.dvc.yaml")
"""Pipeline template, relative to the project."""
SETTINGS_FILE_NAME = "settings.yaml"
"""Marks a workspace, a project folder outside the clone (pipelines/workspace.py)."""
_CODE = Path(__file__).parents[1]
"""The clone of this code, or the folder of the installed packages."""


def shipped_file(name: str) -> Path:
    """Return a file or folder of the repository's root that a wheel contains too."""
    packed = _CODE / "pipelines" / "shipped" / name
    return packed if packed.exists() else _CODE / name


@dataclass(frozen=True)
class Project:
    """A clone of scan2cut, or a workspace, with its data."""

    root: Path

    @property
    def template(self) -> Path:
        """Pipeline template of all scans."""
        path = self.root / TEMPLATE
        return path if path.is_file() else _CODE / TEMPLATE  # a version of a workspace in git has no code

    @property
    def scans_dir(self) -> Path:
        """One directory per scan."""
        return self.root / "data" / "scans"

    @property
    def sample_dir(self) -> Path:
        """The bundled sample."""
        return shipped_file("data/sample") if self.is_workspace else self.root / "data" / "sample"

    @property
    def is_workspace(self) -> bool:
        """Whether this is a workspace, not a clone."""
        return (self.root / SETTINGS_FILE_NAME).is_file()

    @property
    def prefect_home(self) -> Path:
        """Prefect's database and settings, kept inside the project."""
        return self.root / ".prefect"

    @property
    def state_dir(self) -> Path:
        """Locks and backup copies of this machine's runs; may be deleted while no run is active."""
        return self.root / ".dvc" / "tmp" / "scan2cut"

    @property
    def inbox_dir(self) -> Path:
        """Input folder of runs started from the dashboard or by API."""
        return self.root / "data" / "inbox"

    def scan_dir(self, scan_id: str) -> Path:
        """Return the directory of a scan."""
        return self.scans_dir / scan_id

    def scan_ids(self) -> list[str]:
        """Return the ids of registered scans, sorted; includes those whose scan.yaml is a dangling link."""
        folders = self.scans_dir.iterdir() if self.scans_dir.is_dir() else ()
        return sorted(folder.name for folder in folders if _exists(folder / "scan.yaml"))


def _exists(path: Path) -> bool:
    """Return whether the path exists, without following links."""
    try:
        path.lstat()
    except OSError:
        return False
    return True


def known_scans(project: Project, scan_ids: Sequence[str]) -> list[str]:
    """Return these scan ids, or all if none is given; raise InputError if one is not registered."""
    registered = project.scan_ids()
    for scan_id in scan_ids:
        if scan_id not in registered:
            raise InputError(
                f"There is no scan {scan_id!r}.{did_you_mean(scan_id, registered)} Registered scans: "
                f"{', '.join(registered) or 'none'}. Register one with 'scan2cut run FILE'."
            )
    return list(scan_ids) or registered


def find_project(start: Path | None = None) -> Project:
    """Return the project that contains the given (default: current) directory, else the clone of this code."""
    here = (start or Path.cwd()).absolute()
    for folder in (here, *here.parents, _CODE):
        is_clone = (folder / TEMPLATE).is_file() and (folder / "params.yaml").is_file()
        if is_clone or ((folder / SETTINGS_FILE_NAME).is_file() and (folder / "data" / "scans").is_dir()):
            return Project(folder)
    raise InputError(
        f"{here} is not inside a scan2cut project. Data belong in a workspace. Make one with 'scan2cut init DIR' and "
        "change into it."
    )


def _quiet_environment(project: Project) -> dict[str, str]:
    """Return settings that keep Prefect and DVC inside the project and disable telemetry."""
    return {
        "DO_NOT_TRACK": "1",
        "DVC_NO_ANALYTICS": "1",
        "PREFECT_HOME": str(project.prefect_home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_UI_V2_ENABLED": "false",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
        "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",  # runs/server.py starts one that ends with its run
    }


def apply_environment(project: Project) -> None:
    """Set environment variables the user has not set, and put this Python first in PATH for the stages."""
    os.environ.pop(LIBRARY_VARIABLE, None)
    if project.is_workspace:
        os.environ[LIBRARY_VARIABLE] = str(project.root / "library")
    for key, value in _quiet_environment(project).items():
        os.environ.setdefault(key, value)
    binaries = str(Path(sys.executable).parent)
    if os.environ.get("PATH", "").split(os.pathsep)[0] != binaries:
        os.environ["PATH"] = os.pathsep.join([binaries, os.environ.get("PATH", "")])


# Locks.


@contextmanager
def scan_lock(project: Project, scan_id: str, on_wait: Callable[[], None], stage: str = "") -> Iterator[None]:
    """Hold the scan's lock, so that one run at a time works on it; call `on_wait` once if another run has it.

    `stage` is what `lock_holder` tells others meanwhile.
    """
    project.state_dir.mkdir(parents=True, exist_ok=True)
    with file_lock(_lock_file(project, scan_id), on_wait, stage):
        yield


def lock_holder(project: Project, scan_id: str) -> str | None:
    """Return the stage for which a run holds the scan's lock; None if no run holds it."""
    try:
        with _lock_file(project, scan_id).open("r+") as file:
            return None if lock(file.fileno(), wait=False) else file.read()
    except OSError:
        return None


def _lock_file(project: Project, scan_id: str) -> Path:
    return project.state_dir / f"{scan_id}.lock"


@contextmanager
def file_lock(path: Path, on_wait: Callable[[], None] = lambda: None, note: str = "") -> Iterator[None]:
    """Hold an exclusive lock on this file, which meanwhile contains the note."""
    with path.open("a") as file:
        if not lock(file.fileno(), wait=False):
            on_wait()
            lock(file.fileno())
        with suppress(OSError):  # a full disk must not keep anybody from working
            os.ftruncate(file.fileno(), 0)
            os.write(file.fileno(), note.encode())
        yield
