"""Run many scans in parallel: one flow run per scan, one process per stage.

The threads of the pool only wait for these processes and share one connection to Prefect.
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

from disect_sim.processes import THREAD_VARIABLES, cores_given
from pipelines.dvc.stopping import check_stop, inside_flow
from pipelines.many.inbox import find_log
from pipelines.project import Project
from pipelines.runs.dashboard import api_url
from pipelines.runs.progress_lines import ProgressLines
from pipelines.runs.run_request import Cluster, run_request, silence_prefect
from pipelines.runs.run_summary import RunResult
from pipelines.scans.register import Request, registered_scan, scan_id_of
from stages.runtime.errors import EXIT_INTERRUPTED, InputError

# Number of parallel scans.


_SQLITE_LIMIT = 4
"""More parallel writers made Prefect's SQLite answer 503 (lab/notes/scaling.md); PostgreSQL has no such limit."""
DATABASE_VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
_CGROUP = Path("/sys/fs/cgroup")
_SHARED_VARIABLES = (*THREAD_VARIABLES, "POLARS_MAX_THREADS")


@dataclass(frozen=True)
class _Capacity:
    """Number of parallel scans and what limits it."""

    scans: int
    reason: str


def capacity(memory_gb_per_scan: float, workers: int | None = None) -> _Capacity:
    """Return how many scans cores and free memory allow; `workers` replaces the cores but not the memory limit."""
    if not 0 < memory_gb_per_scan < math.inf:
        raise InputError(
            f"--memory-gb must be a positive number, got {memory_gb_per_scan:g}. Give the peak memory per scan, e.g. 2."
        )
    if workers is not None and workers < 1:
        raise InputError(
            f"--workers must be at least 1, got {workers}. Give the number of parallel scans, e.g. 2."
        )
    free_gb = _free_memory_gb()
    fitting = max(1, int(free_gb / memory_gb_per_scan))
    bounds = {
        "cores": cores_given(),
        f"{free_gb:.1f} GB free memory at {memory_gb_per_scan:g} GB per scan": fitting,
    }
    if workers is not None:
        bounds = {"--workers": workers, **dict(list(bounds.items())[1:])}
    elif not os.environ.get(DATABASE_VARIABLE, "").startswith("postgresql"):
        bounds["Prefect's SQLite"] = _SQLITE_LIMIT
    reason = min(bounds, key=lambda name: bounds[name])
    return _Capacity(bounds[reason], reason)


def _free_memory_gb() -> float:
    """Return the free memory [GB] of the machine, or of the container if less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    limit, used = _number(_CGROUP / "memory.max"), _number(_CGROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free / 1e9


def _share_cores(scans: int) -> None:
    """Limit the threads of the stages' libraries to their share of the cores."""
    for variable in _SHARED_VARIABLES:
        os.environ.setdefault(variable, str(max(1, cores_given() // scans)))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def batch_requests(
    project: Project, scans: Sequence[str], overrides: Mapping[str, Mapping[str, Any]]
) -> list[Request]:
    """Return one request per scan; a scan file is paired with the log of the same name in its folder."""
    requests: list[Request] = []
    names: dict[str, str] = {}  # id → the argument it came from
    for scan in scans:
        source, scan_id = registered_scan(project, scan)
        if not source.is_file():
            raise InputError(
                f"{scan} is neither a registered scan nor a file. Nothing was started. Registered scans: "
                f"{', '.join(project.scan_ids()[:10]) or 'none'}."
            )
        same_id = names.setdefault(scan_id or scan_id_of(source), scan)
        if len(names) == len(requests):
            raise InputError(
                f"{same_id} and {scan} would both get the scan id {scan_id or scan_id_of(source)!r}. Ids must be "
                "unique. Nothing was started. Rename one file, or run it separately with 'scan2cut run FILE --id NAME'."
            )
        log = None if scan_id else find_log(Path(source))
        requests.append(Request(source, log, scan_id=scan_id, overrides=overrides))
    return requests


Say = Callable[[str], None]


class _ScanPool:
    """Pool that runs a limited number of requests in parallel."""

    def __init__(self, project: Project, scans: int, say: Say, cluster: Cluster | None = None) -> None:
        self._project, self._say, self._cluster = project, say, cluster
        self._threads = ThreadPoolExecutor(scans, thread_name_prefix="scan")

    def submit(
        self, request: Request, *, force: bool = False, target: str | None = None
    ) -> Future[RunResult]:
        """Queue one scan; the future returns a result and never raises."""
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
        except Exception as error:  # noqa: BLE001 -- a failed scan must not end the others
            result.fail(error)
        return result

    def close(self, *, cancel: bool) -> None:
        """Wait for running scans; with `cancel`, drop queued ones."""
        self._threads.shutdown(wait=True, cancel_futures=cancel)


@contextmanager
def scan_pool(project: Project, scans: int, say: Say, cluster: Cluster | None = None) -> Iterator[_ScanPool]:
    """Yield a pool; Prefect is started once before, not by each of its threads."""
    _share_cores(scans)
    _start_prefect(project)
    pool = _ScanPool(project, scans, say, cluster)
    try:
        yield pool
    except BaseException:
        pool.close(cancel=True)
        raise
    pool.close(cancel=False)


def _start_prefect(project: Project) -> None:
    """Connect to the dashboard or start a server before the first run."""
    silence_prefect()
    api_url(project)
    importlib.import_module("pipelines.runs.flow")  # once, not by several threads in parallel


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
    """Bring all scans up to date; return results in the order of the requests."""
    with scan_pool(project, scans_at_once, say, cluster) as pool, inside_flow():
        futures = [pool.submit(request, force=force, target=target) for request in requests]
        for future in as_completed(futures):
            result = future.result()
            if result.error and result.exit_code != EXIT_INTERRUPTED:
                say(f"{result.scan or 'a scan'}: {result.error}")
        check_stop()
    return [future.result() for future in futures]
