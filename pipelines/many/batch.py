"""Many scans at once on one machine: each scan is a flow run, each stage a process of its own.

The threads here only wait for those processes, and share one connection to Prefect.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager

from pipelines.dvc.stopping import check_stop, inside_flow
from pipelines.many.capacity import share_cores
from pipelines.runs.dashboard import api_url
from pipelines.runs.dask_cluster import Cluster
from pipelines.runs.progress_lines import ProgressLines
from pipelines.runs.run_request import run_request, silence_prefect
from pipelines.runs.run_result import RunResult
from pipelines.scans.project import Project
from pipelines.scans.register import Request
from stages.runtime.exit_codes import EXIT_INTERRUPTED

Say = Callable[[str], None]


class ScanPool:
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
def scan_pool(project: Project, scans: int, say: Say, cluster: Cluster | None = None) -> Iterator[ScanPool]:
    """A pool with Prefect already started, so that its threads do not start it several times."""
    share_cores(scans)
    start_prefect(project)
    pool = ScanPool(project, scans, say, cluster)
    try:
        yield pool
    except BaseException:
        pool.close(cancel=True)
        raise
    pool.close(cancel=False)


def start_prefect(project: Project) -> None:
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
