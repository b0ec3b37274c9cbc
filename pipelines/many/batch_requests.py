"""From the words of `scan2cut batch` to requests."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from disect_sim.errors import InputError
from pipelines.many.inbox import find_log
from pipelines.scans.project import Project
from pipelines.scans.register import Request, registered_scan, scan_id_of


def batch_requests(
    project: Project, scans: Sequence[str], overrides: Mapping[str, Mapping[str, Any]]
) -> list[Request]:
    """One request per scan; a file takes the log that is called like it from its own folder."""
    requests: list[Request] = []
    names: dict[str, str] = {}  # id → the word it came from
    for scan in scans:
        source, scan_id = registered_scan(project, scan)
        if not source.is_file():
            raise InputError(
                f"{scan} is neither a registered scan nor a file. Nothing was started. Registered are: "
                f"{', '.join(project.scan_ids()[:10]) or 'none'}."
            )
        same_id = names.setdefault(scan_id or scan_id_of(source), scan)
        if len(names) == len(requests):
            raise InputError(
                f"{same_id} and {scan} would both be the scan {scan_id or scan_id_of(source)!r}. One id stands for one "
                "scan. Nothing was started. Rename one file, or run it alone with 'scan2cut run FILE --id NAME'."
            )
        log = None if scan_id else find_log(Path(source))
        requests.append(Request(source, log, scan_id=scan_id, overrides=overrides))
    return requests
