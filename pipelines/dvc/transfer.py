"""A scan's files on their way between two clones: small text with the task, artifacts through the DVC remote."""

from collections.abc import Iterable, Mapping

from disect_sim.errors import InputError
from pipelines.dvc.clone import REMOTE
from pipelines.dvc.commands import run_dvc
from pipelines.dvc.lock_file import LOCK_FILE_NAME
from pipelines.dvc.pipeline_file import refresh_pipeline_file, stage_address
from pipelines.dvc.template import StageEntry, read_template, upstream
from pipelines.scans.project import Project
from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.scan_file import SCAN_FILE_NAME, read_scan_file

RESULT_TEXTS = ("metrics.json", "provenance.json")
"""Small texts that a stage leaves in its folder."""


def text_files(project: Project, scan_id: str) -> dict[str, str]:
    """The scan's small text files, by their path in its directory."""
    folder = project.scan_dir(scan_id)
    paths = [folder / SCAN_FILE_NAME, folder / LOCK_FILE_NAME, *folder.glob("*.dvc")]
    paths += [path for name in RESULT_TEXTS for path in folder.glob(f"*/{name}")]
    return {str(p.relative_to(folder)): p.read_text(encoding="utf-8") for p in paths if p.is_file()}


def result_files(files: Mapping[str, str]) -> dict[str, str]:
    """Those that a stage changes; scan.yaml is the caller's own and may have been edited meanwhile."""
    ends = (LOCK_FILE_NAME, *(f"/{name}" for name in RESULT_TEXTS))
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
        REMOTE,
        *raw_addresses(project, scan_id),
        *(stage_address(project, scan_id, name) for name in before),
    )


def send_outputs(project: Project, scan_id: str, entry: StageEntry) -> None:
    """Push what the stage made."""
    run_dvc(project, "push", "--remote", REMOTE, stage_address(project, scan_id, entry.name))


def send_raw_files(project: Project, scan_id: str) -> None:
    """Push the raw files, so that workers can pull them."""
    run_dvc(project, "push", *raw_addresses(project, scan_id))


def fetch_outputs(project: Project, scan_id: str, entries: Iterable[StageEntry]) -> None:
    """Pull what workers made of this scan in these stages."""
    run_dvc(project, "pull", *(stage_address(project, scan_id, entry.name) for entry in entries))


def raw_addresses(project: Project, scan_id: str) -> list[str]:
    """The .dvc files of the scan's raw files."""
    return [str(path.relative_to(project.root)) for path in project.scan_dir(scan_id).glob("*.dvc")]
