"""`scan2cut pull`: from the DVC remote or its cache, all that was recorded of these scans, and nothing that never was.

Plain `dvc pull` and `dvc checkout` do the same where every scan has run a stage. They fail where a scan's dvc.yaml has
stages that never ran: one that was only registered, or was killed in a stage, or committed while it ran.
"""

from collections.abc import Callable, Iterator

from pipelines.dvc.commands import run_dvc
from pipelines.dvc.lock_file import recorded_stages
from pipelines.dvc.pipeline_file import refresh_pipeline_file, stage_address
from pipelines.dvc.template import read_template
from pipelines.dvc.transfer import raw_addresses
from pipelines.scans.project import Project, known_scans
from stages.runtime.scan_file import read_scan_file

AT_ONCE = 50
"""Scans per dvc command: starting dvc costs a second, and the command line must not grow without bound."""


def pull(
    project: Project,
    scan_ids: list[str],
    say: Callable[[str], None] = lambda sentence: None,
    *,
    local: bool = False,
) -> list[str]:
    """Fetch the raw files and recorded outputs of these (default: all) scans; returns what was asked of DVC.

    With `local` from the cache of this machine alone: `dvc checkout` instead of `dvc pull`.
    """
    command = "checkout" if local else "pull"
    chosen = known_scans(project, scan_ids)
    asked: list[str] = []
    for first in range(0, len(chosen), AT_ONCE):
        addresses = [a for scan_id in chosen[first : first + AT_ONCE] for a in _recorded(project, scan_id)]
        if addresses:
            say(f"{len(addresses)} recorded parts of {', '.join(chosen[first : first + AT_ONCE])}")
            run_dvc(project, command, *addresses)
        asked += addresses
    return asked


def _recorded(project: Project, scan_id: str) -> Iterator[str]:
    """DVC's addresses of the scan's raw files and of its stages that have run."""
    read_scan_file(project.scan_dir(scan_id))  # DVC would wait for ever for one that is a pipe
    refresh_pipeline_file(project, scan_id)
    recorded = recorded_stages(project.scan_dir(scan_id))
    yield from raw_addresses(project, scan_id)
    for entry in read_template(project.template):
        if entry.name in recorded:
            yield stage_address(project, scan_id, entry.name)
