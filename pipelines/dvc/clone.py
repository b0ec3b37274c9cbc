"""One stage on another machine: no shared disk, the artifacts go through the DVC remote.

What travels with the task is small text: scan.yaml, dvc.lock, *.dvc and metrics. The worker has a clone of its own at
the same commit, pulls what the stage reads, runs it like any other, and pushes what it made.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from disect_sim.errors import InputError
from pipelines.dvc.recorded_files import LOCK_NAME
from pipelines.dvc.redact import IN_ADDRESS, redact
from pipelines.dvc.template import StageEntry, read_template, upstream
from pipelines.scans.file_lock import file_lock
from pipelines.scans.project import Project, apply_environment
from pipelines.scans.register import link_template
from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.scan_file import PIPELINE_FILE_NAME, read_scan_file

REMOTE = "cluster"
"""Name that a worker gives to the DVC remote."""
WORKSPACE_VARIABLE = "SCAN2CUT_WORKSPACE"
"""Where a worker keeps its clones; by default its own Dask directory."""
CODE = ("pipelines", "stages", "disect_sim", "params.yaml")


@dataclass(frozen=True)
class Source:
    """Where a worker gets code and data from."""

    repository: str
    commit: str
    remote_url: str


def find_source(project: Project, repository: str | None = None) -> Source:
    """This project as workers can reach it; InputError if their code or data would be another."""
    changed = _output(
        project.root, "git", "status", "--porcelain", "--untracked-files=no", "--", *CODE
    ).splitlines()
    if changed:
        raise InputError(
            f"{len(changed)} files of code or parameters are not committed (such as {changed[0][3:]}). Workers clone "
            "the last commit and would compute something else. Commit them first."
        )
    name = _output(project.root, sys.executable, "-m", "dvc", "config", "core.remote", fails=False)
    if not name:
        raise InputError(
            "This project has no default DVC remote. Workers share no disk, so artifacts go through one. Add it: "
            "dvc remote add --default NAME URL."
        )
    url = _output(project.root, sys.executable, "-m", "dvc", "config", f"remote.{name}.url")
    url = url if "://" in url else str((project.root / ".dvc" / url).resolve())
    source = Source(repository or str(project.root), _output(project.root, "git", "rev-parse", "HEAD"), url)
    for address in (source.repository, source.remote_url):
        if IN_ADDRESS.search(address):
            raise InputError(
                f"The address {redact(address)} holds a password, which Prefect would store. Give it to the workers in "
                "their environment or credential files instead."
            )
    return source


def described(project: Project, scan_id: str) -> dict[str, str]:
    """The scan's small text files, by their path in its directory."""
    folder = project.scan_dir(scan_id)
    paths = [folder / "scan.yaml", folder / LOCK_NAME, *folder.glob("*.dvc"), *folder.glob("*/metrics.json")]
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in paths if p.is_file()}


def results(files: Mapping[str, str]) -> dict[str, str]:
    """Those that a stage changes; scan.yaml is the caller's own and may have been edited meanwhile."""
    return {name: text for name, text in files.items() if name == LOCK_NAME or name.endswith("/metrics.json")}


def take_over(project: Project, scan_id: str, files: dict[str, str]) -> None:
    """Write a scan's small text files where they belong."""
    folder = project.scan_dir(scan_id)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        if not (folder / name).resolve().is_relative_to(folder.resolve()):
            raise InputError(
                f"{name!r} lies outside the scan {scan_id!r}. A worker may only change its own scan."
            )
        write_bytes_atomic(folder / name, text.encode())
    link_template(folder)
    read_scan_file(folder)


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
    _output(folder.parent, "git", "clone", "--quiet", "--no-checkout", source.repository, str(folder))
    _output(folder, "git", "checkout", "--quiet", "--detach", source.commit)
    _output(folder, sys.executable, "-m", "dvc", "remote", "add", "--local", REMOTE, source.remote_url)


def _workspaces() -> Path:
    if os.environ.get(WORKSPACE_VARIABLE):
        return Path(os.environ[WORKSPACE_VARIABLE])
    from distributed import get_worker

    return Path(get_worker().local_directory) / "scan2cut"


def fetch_inputs(project: Project, scan_id: str, entry: StageEntry) -> None:
    """Pull the raw files and the outputs of the stages that this one reads."""
    folder = project.scan_dir(scan_id).relative_to(project.root)
    raw = [str(path.relative_to(project.root)) for path in project.scan_dir(scan_id).glob("*.dvc")]
    stages = [
        f"{folder}/{PIPELINE_FILE_NAME}:{name}" for name in upstream(entry, read_template(project.template))
    ]
    _dvc(project, "pull", "--quiet", "--remote", REMOTE, *raw, *stages)


def send_outputs(project: Project, scan_id: str, entry: StageEntry) -> None:
    """Push what the stage made."""
    folder = project.scan_dir(scan_id).relative_to(project.root)
    _dvc(project, "push", "--quiet", "--remote", REMOTE, f"{folder}/{PIPELINE_FILE_NAME}:{entry.name}")


def send_raw_files(project: Project, scan_id: str) -> None:
    """Push the raw files, so that workers can pull them."""
    notes = [str(p.relative_to(project.root)) for p in project.scan_dir(scan_id).glob("*.dvc")]
    _dvc(project, "push", "--quiet", *notes)


def fetch_outputs(project: Project, scan_id: str, entries: Iterable[StageEntry]) -> None:
    """Pull what workers made of this scan in these stages."""
    folder = project.scan_dir(scan_id).relative_to(project.root)
    _dvc(project, "pull", "--quiet", *(f"{folder}/{PIPELINE_FILE_NAME}:{entry.name}" for entry in entries))


def _dvc(project: Project, *arguments: str) -> None:
    _output(project.root, sys.executable, "-m", "dvc", "--wait-for-lock", *arguments)


def _output(folder: Path, *command: str, fails: bool = True) -> str:
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if result.returncode and fails:
        words = json.dumps([word for word in command if "://" not in word][-4:])
        raise RuntimeError(f"{words} failed in {folder}: {redact(result.stderr.strip()[-600:])}")
    return result.stdout.strip()
