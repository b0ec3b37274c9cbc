"""Many scans at once on one machine: each scan is a flow run, each stage a process of its own.

The threads here only wait for those processes, and share one connection to Prefect.
"""

import importlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.dvc.stopping import check_stop, inside_flow
from pipelines.many.inbox import find_log
from pipelines.project import Project
from pipelines.runs.dashboard import api_url
from pipelines.runs.progress_lines import ProgressLines
from pipelines.runs.run_request import Cluster, run_request, silence_prefect
from pipelines.runs.run_summary import RunResult
from pipelines.scans.register import Request, registered_scan, scan_id_of
from stages.runtime.errors import EXIT_INTERRUPTED, InputError

# How many scans this machine can work on at once: bounded by cores and by memory.


_SQLITE_LIMIT = 4
"""More writers at once made Prefect's SQLite answer 503 (lab/notes/scaling.md); PostgreSQL has no such limit."""
DATABASE_VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
CGROUP = Path("/sys/fs/cgroup")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


@dataclass(frozen=True)
class _Capacity:
    """A number of scans and the reason for it."""

    scans: int
    reason: str


def capacity(memory_gb_per_scan: float, wanted: int | None = None) -> _Capacity:
    """As many scans as there are cores and as fit in the free memory; `wanted` is checked against the memory."""
    if not 0 < memory_gb_per_scan < math.inf:
        raise InputError(
            f"--memory-gb is {memory_gb_per_scan:g}. A scan needs some memory. Give the peak of one scan, e.g. 2."
        )
    if wanted is not None and wanted < 1:
        raise InputError(f"--workers is {wanted}. At least one scan must run. Give 1 or more.")
    free_gb = free_memory_gb()
    fitting = max(1, int(free_gb / memory_gb_per_scan))
    bounds = {
        "cores": cores(),
        f"{free_gb:.1f} GB of free memory at {memory_gb_per_scan:g} GB a scan": fitting,
    }
    if wanted is not None:
        bounds = {"--workers": wanted, **dict(list(bounds.items())[1:])}
    elif not os.environ.get(DATABASE_VARIABLE, "").startswith("postgresql"):
        bounds["Prefect's SQLite"] = _SQLITE_LIMIT
    reason = min(bounds, key=lambda name: bounds[name])
    return _Capacity(bounds[reason], reason)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory_gb() -> float:
    """Memory that is free [GB]: the machine's, or the container's if that is less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    limit, used = _number(CGROUP / "memory.max"), _number(CGROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free / 1e9


def share_cores(scans: int) -> None:
    """Let the stages' libraries start no more threads than their share of the cores."""
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(max(1, cores() // scans)))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


# From the words of `scan2cut batch` to requests.


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


Say = Callable[[str], None]


class _ScanPool:
    """Runs requests, a bounded number of them at a time."""

    def __init__(self, project: Project, scans: int, say: Say, cluster: Cluster | None = None) -> None:
        self._project, self._say, self._cluster = project, say, cluster
        self._threads = ThreadPoolExecutor(scans, thread_name_prefix="scan")

    def submit(
        self, request: Request, *, force: bool = False, target: str | None = None
    ) -> Future[RunResult]:
        """Queue one scan; its result says how it went and never raises."""
        return self._threads.submit(self._run, request, force, target)

    def _run(self, request: Request, force: bool, target: str | None) -> RunResult:
        result = RunResult()
        try:
            check_stop()
            name = request.scan_id or request.scan.stem
            with ProgressLines(lambda line: self._say(f"{name}: {line}")) as watcher:
                run_request(
                    self._project,
                    request,
                    result,
                    watcher,
                    force=force,
                    verbose=False,
                    target=target,
                    cluster=self._cluster,
                )
        except Exception as error:  # noqa: BLE001 -- one scan's failure must not end the others
            result.fail(error)
        return result

    def close(self, *, cancel: bool) -> None:
        """Wait for what runs; with cancel, what has not begun is dropped."""
        self._threads.shutdown(wait=True, cancel_futures=cancel)


@contextmanager
def scan_pool(project: Project, scans: int, say: Say, cluster: Cluster | None = None) -> Iterator[_ScanPool]:
    """A pool with Prefect already started, so that its threads do not start it several times."""
    share_cores(scans)
    _start_prefect(project)
    pool = _ScanPool(project, scans, say, cluster)
    try:
        yield pool
    except BaseException:
        pool.close(cancel=True)
        raise
    pool.close(cancel=False)


def _start_prefect(project: Project) -> None:
    """Find the dashboard, or start a server, before the first run needs it."""
    silence_prefect()
    api_url(project)
    importlib.import_module("pipelines.runs.flow")  # once, before several threads do it at the same time


def run_batch(
    project: Project,
    requests: Iterable[Request],
    *,
    scans_at_once: int,
    say: Say,
    force: bool = False,
    target: str | None = None,
    cluster: Cluster | None = None,
) -> list[RunResult]:
    """Bring all scans up to date; the results are in the order of the requests."""
    with scan_pool(project, scans_at_once, say, cluster) as pool, inside_flow():
        futures = [pool.submit(request, force=force, target=target) for request in requests]
        for future in as_completed(futures):
            result = future.result()
            if result.error and result.exit_code != EXIT_INTERRUPTED:
                say(f"{result.scan or 'a scan'}: {result.error}")
        check_stop()
    return [future.result() for future in futures]
