"""Another clone of this project at a commit, with a DVC remote: where a worker, or `reproduce`, computes a stage.

No disk is shared. A worker pulls what a stage reads, runs it like any other, and pushes what it made (transfer.py).
"""

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from disect_sim.errors import InputError
from pipelines.dvc.commands import CommandError, run_dvc, run_git
from pipelines.dvc.redact import IN_ADDRESS, redact
from pipelines.scans.file_lock import file_lock
from pipelines.scans.project import Project, apply_environment

REMOTE = "cluster"
"""Name that a clone gives to the DVC remote."""
WORKSPACE_VARIABLE = "SCAN2CUT_WORKSPACE"
"""Where a worker keeps its clones; by default its own Dask directory."""
CODE = ("pipelines", "stages", "disect_sim", "params.yaml")


@dataclass(frozen=True)
class Source:
    """Where a clone gets code and data from."""

    repository: str
    commit: str
    remote_url: str


def find_source(project: Project, repository: str | None = None) -> Source:
    """This project as workers can reach it; InputError if their code or data would be another."""
    changed = _git(project.root, "status", "--porcelain", "--untracked-files=no", "--", *CODE).splitlines()
    if changed:
        raise InputError(
            f"{len(changed)} files of code or parameters are not committed (such as {changed[0][3:]}). Workers clone "
            "the last commit and would compute something else. Commit them first."
        )
    name = _setting(project, "core.remote")
    if not name:
        raise InputError(
            "This project has no default DVC remote. Workers share no disk, so artifacts go through one. Add it: "
            "dvc remote add --default NAME URL."
        )
    url = _setting(project, f"remote.{name}.url")
    url = url if "://" in url else str((project.root / ".dvc" / url).resolve())
    source = Source(repository or str(project.root), _git(project.root, "rev-parse", "HEAD").strip(), url)
    for address in (source.repository, source.remote_url):
        if IN_ADDRESS.search(address):
            raise InputError(
                f"The address {redact(address)} holds a password, which Prefect would store. Give it to the workers in "
                "their environment or credential files instead."
            )
    return source


def open_workspace(source: Source) -> Project:
    """This worker's clone at the source's commit, made on first use."""
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
    """Clone code at the source's commit, with its DVC remote."""
    _git(folder.parent, "clone", "--quiet", "--no-checkout", source.repository, str(folder))
    _git(folder, "checkout", "--quiet", "--detach", source.commit)
    run_dvc(Project(folder), "remote", "add", "--local", REMOTE, source.remote_url)


def _workspaces() -> Path:
    if os.environ.get(WORKSPACE_VARIABLE):
        return Path(os.environ[WORKSPACE_VARIABLE])
    from distributed import get_worker

    return Path(get_worker().local_directory) / "scan2cut"


def _git(folder: Path, *arguments: str) -> str:
    return run_git(folder, *arguments).decode()


def _setting(project: Project, name: str) -> str:
    """A value of DVC's configuration; empty if it is not set."""
    try:
        return run_dvc(project, "config", name).strip()
    except CommandError:
        return ""
