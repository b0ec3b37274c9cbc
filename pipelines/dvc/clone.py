"""Clones of this project in which a worker, or `reproduce`, computes a stage.

No disk is shared: a worker pulls a stage's inputs from the DVC remote, runs the stage and pushes its outputs. Small
text files (scan.yaml, dvc.lock, metrics) travel with the task.
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.dvc.commands import IN_ADDRESS, CommandError, redact, run_dvc, run_git
from pipelines.dvc.pipeline_file import (
    StageEntry,
    refresh_pipeline_file,
    scan_entries,
    stage_address,
    upstream,
)
from pipelines.dvc.repair import LOCK_FILE_NAME
from pipelines.project import Project, apply_environment, file_lock
from stages.runtime.errors import InputError
from stages.runtime.files import write_bytes_atomic
from stages.runtime.scan_file import SCAN_FILE_NAME, read_scan_file

_REMOTE = "cluster"
"""Name of the DVC remote in a clone."""
_WORKSPACE_VARIABLE = "SCAN2CUT_WORKSPACE"
"""Folder of a worker's clones; default: its Dask directory."""
_CODE = ("pipelines", "stages", "disect_sim", "params.yaml")


@dataclass(frozen=True)
class Source:
    """Origin of a clone's code and data."""

    repository: str
    commit: str
    remote_url: str


def find_source(project: Project, repository: str | None = None) -> Source:
    """Return this project as a source for workers; raise InputError if their code or data would differ."""
    changed = _git(project.root, "status", "--porcelain", "--untracked-files=no", "--", *_CODE).splitlines()
    if changed:
        raise InputError(
            f"{len(changed)} files of code or parameters have uncommitted changes (e.g. {changed[0][3:]}). Workers "
            "clone the last commit and would compute something else. Commit the changes first."
        )
    name = _setting(project, "core.remote")
    if not name:
        raise InputError(
            "This project has no default DVC remote. Workers exchange artifacts through it. Add one: "
            "dvc remote add --default NAME URL."
        )
    url = _setting(project, f"remote.{name}.url")
    url = url if "://" in url else str((project.root / ".dvc" / url).resolve())
    source = Source(repository or str(project.root), _git(project.root, "rev-parse", "HEAD").strip(), url)
    for address in (source.repository, source.remote_url):
        if IN_ADDRESS.search(address):
            raise InputError(
                f"The address {redact(address)} contains a password, which Prefect would store. Addresses must not "
                "contain credentials. Set them in the workers' environment or credential files."
            )
    return source


def open_workspace(source: Source) -> Project:
    """Return this worker's clone at the source's commit; create it on first use."""
    home = _workspaces()
    home.mkdir(parents=True, exist_ok=True)
    folder = home / source.commit[:16]
    with file_lock(home / "making.lock"):
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(prefix=".clone-", dir=home) as scratch:
                clone = Path(scratch) / "clone"
                make_clone(source, clone)
                os.replace(clone, folder)
    project = Project(folder)
    apply_environment(project)
    return project


def make_clone(source: Source, folder: Path) -> None:
    """Clone the source's commit and add its DVC remote."""
    _git(folder.parent, "clone", "--quiet", "--no-checkout", source.repository, str(folder))
    _git(folder, "checkout", "--quiet", "--detach", source.commit)
    run_dvc(Project(folder), "remote", "add", "--local", _REMOTE, source.remote_url)


def _workspaces() -> Path:
    if os.environ.get(_WORKSPACE_VARIABLE):
        return Path(os.environ[_WORKSPACE_VARIABLE])
    from distributed import get_worker

    return Path(get_worker().local_directory) / "scan2cut"


def _git(folder: Path, *arguments: str) -> str:
    return run_git(folder, *arguments).decode()


def _setting(project: Project, name: str) -> str:
    """Return a value of DVC's configuration, or an empty string."""
    try:
        return run_dvc(project, "config", name).strip()
    except CommandError:
        return ""


# Files exchanged between two clones.


_RESULT_TEXTS = ("metrics.json", "provenance.json")
"""Small text files in a stage's output folder."""


def text_files(project: Project, scan_id: str) -> dict[str, str]:
    """Return the scan's small text files by path in its directory."""
    folder = project.scan_dir(scan_id)
    paths = [folder / SCAN_FILE_NAME, folder / LOCK_FILE_NAME, *folder.glob("*.dvc")]
    paths += [path for name in _RESULT_TEXTS for path in folder.glob(f"*/{name}")]
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in paths if p.is_file()}


def result_files(files: Mapping[str, str]) -> dict[str, str]:
    """Return the files a stage changes; not scan.yaml, which the user may have edited meanwhile."""
    suffixes = (LOCK_FILE_NAME, *(f"/{name}" for name in _RESULT_TEXTS))
    return {name: text for name, text in files.items() if name.endswith(suffixes)}


def write_text_files(project: Project, scan_id: str, files: Mapping[str, str]) -> None:
    """Write a scan's small text files into its directory."""
    folder = project.scan_dir(scan_id)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{name!r} is outside the directory of scan {scan_id!r}. A worker may only write to its own scan."
            )
        write_bytes_atomic(folder / name, text.encode())
    refresh_pipeline_file(project, scan_id)
    read_scan_file(folder)


def fetch_inputs(project: Project, scan_id: str, entry: StageEntry) -> None:
    """Pull the raw files and the outputs of the upstream stages."""
    before = upstream(entry, scan_entries(project, scan_id))
    run_dvc(
        project,
        "pull",
        "--remote",
        _REMOTE,
        *raw_addresses(project, scan_id),
        *(stage_address(project, scan_id, name) for name in before),
    )


def send_outputs(project: Project, scan_id: str, entry: StageEntry) -> None:
    """Push the stage's outputs."""
    run_dvc(project, "push", "--remote", _REMOTE, stage_address(project, scan_id, entry.name))


def send_raw_files(project: Project, scan_id: str) -> None:
    """Push the raw files for the workers."""
    run_dvc(project, "push", *raw_addresses(project, scan_id))


def fetch_outputs(project: Project, scan_id: str, entries: Iterable[StageEntry]) -> None:
    """Pull the outputs that workers computed in these stages."""
    run_dvc(project, "pull", *(stage_address(project, scan_id, entry.name) for entry in entries))


def raw_addresses(project: Project, scan_id: str) -> list[str]:
    """Return the paths of the .dvc files of the scan's raw files."""
    return [str(path.relative_to(project.root)) for path in project.scan_dir(scan_id).glob("*.dvc")]
