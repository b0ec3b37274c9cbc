"""Another clone of this project at a commit, with a DVC remote: where a worker, or `reproduce`, computes a stage.

No disk is shared. A worker pulls what a stage reads, runs it like any other, and pushes what it made (transfer.py).
"""

import os
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.dvc.commands import IN_ADDRESS, CommandError, redact, run_dvc, run_git
from pipelines.dvc.pipeline_file import (
    StageEntry,
    read_template,
    refresh_pipeline_file,
    stage_address,
    upstream,
)
from pipelines.dvc.repair import LOCK_FILE_NAME
from pipelines.project import Project, apply_environment, file_lock
from stages.runtime.errors import InputError
from stages.runtime.files import write_bytes_atomic
from stages.runtime.scan_file import SCAN_FILE_NAME, read_scan_file

_REMOTE = "cluster"
"""Name that a clone gives to the DVC remote."""
_WORKSPACE_VARIABLE = "SCAN2CUT_WORKSPACE"
"""Where a worker keeps its clones; by default its own Dask directory."""
_CODE = ("pipelines", "stages", "disect_sim", "params.yaml")


@dataclass(frozen=True)
class Source:
    """Where a clone gets code and data from."""

    repository: str
    commit: str
    remote_url: str


def find_source(project: Project, repository: str | None = None) -> Source:
    """This project as workers can reach it; InputError if their code or data would be another."""
    changed = _git(project.root, "status", "--porcelain", "--untracked-files=no", "--", *_CODE).splitlines()
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
    run_dvc(Project(folder), "remote", "add", "--local", _REMOTE, source.remote_url)


def _workspaces() -> Path:
    if os.environ.get(_WORKSPACE_VARIABLE):
        return Path(os.environ[_WORKSPACE_VARIABLE])
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


# A scan's files on their way between two clones: small text with the task, artifacts through the DVC remote.


_RESULT_TEXTS = ("metrics.json", "provenance.json")
"""Small texts that a stage leaves in its folder."""


def text_files(project: Project, scan_id: str) -> dict[str, str]:
    """The scan's small text files, by their path in its directory."""
    folder = project.scan_dir(scan_id)
    paths = [folder / SCAN_FILE_NAME, folder / LOCK_FILE_NAME, *folder.glob("*.dvc")]
    paths += [path for name in _RESULT_TEXTS for path in folder.glob(f"*/{name}")]
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in paths if p.is_file()}


def result_files(files: Mapping[str, str]) -> dict[str, str]:
    """Those that a stage changes; scan.yaml is the caller's own and may have been edited meanwhile."""
    ends = (LOCK_FILE_NAME, *(f"/{name}" for name in _RESULT_TEXTS))
    return {name: text for name, text in files.items() if name.endswith(ends)}


def write_text_files(project: Project, scan_id: str, files: Mapping[str, str]) -> None:
    """Write a scan's small text files where they belong."""
    folder = project.scan_dir(scan_id)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{name!r} lies outside the scan {scan_id!r}. A worker may only change its own scan."
            )
        write_bytes_atomic(folder / name, text.encode())
    refresh_pipeline_file(project, scan_id)
    read_scan_file(folder)


def fetch_inputs(project: Project, scan_id: str, entry: StageEntry) -> None:
    """Pull the raw files and the outputs of the stages that this one reads."""
    before = upstream(entry, read_template(project.template))
    run_dvc(
        project,
        "pull",
        "--remote",
        _REMOTE,
        *raw_addresses(project, scan_id),
        *(stage_address(project, scan_id, name) for name in before),
    )


def send_outputs(project: Project, scan_id: str, entry: StageEntry) -> None:
    """Push what the stage made."""
    run_dvc(project, "push", "--remote", _REMOTE, stage_address(project, scan_id, entry.name))


def send_raw_files(project: Project, scan_id: str) -> None:
    """Push the raw files, so that workers can pull them."""
    run_dvc(project, "push", *raw_addresses(project, scan_id))


def fetch_outputs(project: Project, scan_id: str, entries: Iterable[StageEntry]) -> None:
    """Pull what workers made of this scan in these stages."""
    run_dvc(project, "pull", *(stage_address(project, scan_id, entry.name) for entry in entries))


def raw_addresses(project: Project, scan_id: str) -> list[str]:
    """The .dvc files of the scan's raw files."""
    return [str(path.relative_to(project.root)) for path in project.scan_dir(scan_id).glob("*.dvc")]
