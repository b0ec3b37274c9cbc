"""A scan's dvc.yaml: a copy of the template, byte for byte.

A real file, because DVC reads it in every commit of git's history (`dvc gc --all-tags`, `dvc push --all-tags`,
`dvc params diff`), and a link leads nowhere there. Every scan2cut command that works on a scan brings it up to date.
"""

from pipelines.scans.project import TEMPLATE, Project
from stages.runtime.atomic_file import write_bytes_atomic
from stages.runtime.scan_file import PIPELINE_FILE_NAME


def stage_address(project: Project, scan_id: str, stage: str) -> str:
    """What DVC calls a stage of the scan."""
    return f"{pipeline_address(project, scan_id)}:{stage}"


def pipeline_address(project: Project, scan_id: str) -> str:
    """What DVC calls all stages of the scan: its dvc.yaml, relative to the project."""
    return str((project.scan_dir(scan_id) / PIPELINE_FILE_NAME).relative_to(project.root))


def is_current(project: Project, scan_id: str) -> bool:
    """True if the scan's dvc.yaml is a real file with the template's content."""
    path = project.scan_dir(scan_id) / PIPELINE_FILE_NAME
    return path.is_file() and not path.is_symlink() and path.read_bytes() == project.template.read_bytes()


def refresh_pipeline_file(project: Project, scan_id: str) -> str | None:
    """Write the scan's dvc.yaml anew where it differs; returns a sentence if an older one was replaced."""
    if is_current(project, scan_id):
        return None
    path = project.scan_dir(scan_id) / PIPELINE_FILE_NAME
    existed = path.is_symlink() or path.exists()
    write_bytes_atomic(path, project.template.read_bytes())
    if not existed:
        return None
    return f"{pipeline_address(project, scan_id)} was outdated and is now a copy of {TEMPLATE}."
