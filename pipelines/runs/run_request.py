"""Run one scan from request to report; shared by `scan2cut run`, batch, watch and deployments."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pipelines.dvc.clone import Source, find_source, send_raw_files
from pipelines.dvc.pipeline_file import needed_for, read_template
from pipelines.dvc.stage import StageFailedError, StageReport, TryAgainError
from pipelines.dvc.stopping import StoppedError, check_stop, inside_flow
from pipelines.project import Project
from pipelines.report.build import keep_report, record_and_report
from pipelines.runs.dashboard import CLIENT_AUTH, api_url, is_chosen_here, is_embedded
from pipelines.runs.run_summary import RunResult
from pipelines.runs.server import answers
from pipelines.scans.register import Request, check_not_replaced, forget_scan, register_scan, track_raw_files
from stages.runtime.errors import EXIT_BAD_INPUT, InputError
from stages.runtime.files import sha256_of_file

_LOCAL = "local"


@dataclass(frozen=True)
class Cluster:
    """A Dask cluster and the source of its workers' code and data."""

    address: str
    source: Source

    def task_runner(self) -> Any:
        """Return Prefect's task runner for this cluster."""
        from prefect_dask import DaskTaskRunner

        return DaskTaskRunner(address=self.address)


@contextmanager
def dask_cluster(
    project: Project, address: str | None, repository: str | None, workers: int
) -> Iterator[Cluster | None]:
    """Yield the cluster at the address ('local' starts one with a process per worker); None if no address is given."""
    if address is None:
        yield None
        return
    try:
        from distributed import LocalCluster
    except ImportError as error:
        raise InputError(
            "--dask requires dask and prefect-dask, which are not installed. Install them: pip install '.[dask]'."
        ) from error
    for name in (
        "distributed",
        "distributed.client",
    ):  # tracebacks of a lost connection; the flow says it in words
        logging.getLogger(name).handlers[:] = [logging.NullHandler()]
    source = find_source(project, repository)
    if address != _LOCAL:
        yield Cluster(address, source)
        return
    with LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield Cluster(cluster.scheduler_address, source)


def run_request(
    project: Project,
    request: Request,
    result: RunResult,
    bars: Any,
    *,
    force: bool,
    verbose: bool,
    target: str | None = None,
    cluster: Cluster | None = None,
) -> None:
    """Register the scan and run the flow; a new scan rejected by the first stage is not kept."""
    if target is not None:
        needed_for(target, read_template(project.template))  # rejects an unknown stage
    bars.wait("register", "copying the scan")
    registered = project.scan_ids()
    result.scan = register_scan(project, request)
    digest = sha256_of_file(request.scan)
    bars.wait("prefect", "starting")
    if cluster is not None:
        track_raw_files(project, result.scan)
        send_raw_files(project, result.scan)
    run_flow(project, result, bars, force=force, verbose=verbose, target=target, cluster=cluster)
    check_stop()
    check_not_replaced(project, result.scan, digest)
    result.judge()
    finish_run(project, result, is_new=result.scan not in registered, target=target)


def finish_run(project: Project, result: RunResult, *, is_new: bool, target: str | None = None) -> None:
    """Write the report, remove a new scan that the first stage rejected, and track the raw files with DVC."""
    assert result.scan is not None
    page = record_and_report(project, result.scan, result.stages, result.error, target=target, warn=_warn)
    if result.exit_code == EXIT_BAD_INPUT and is_new and not result.stages:
        page = keep_report(project, result.scan, page)
        forget_scan(project, result.scan)
    result.report = None if page is None else str(page.relative_to(project.root))
    if result.scan in project.scan_ids():
        track_raw_files(project, result.scan)


def _warn(message: str) -> None:
    logger = logging.getLogger("scan2cut")
    if not logger.handlers:  # Prefect's own handlers are silenced
        logger.addHandler(logging.StreamHandler())
    logger.warning(message)


def silence_prefect() -> None:
    """Keep Prefect's log off the terminal; call before importing Prefect."""
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "CRITICAL")
    os.environ.setdefault("PREFECT_LOGGING_INTERNAL_LEVEL", "CRITICAL")


def run_flow(
    project: Project,
    result: RunResult,
    watcher: Any,
    *,
    force: bool,
    verbose: bool,
    target: str | None = None,
    cluster: Cluster | None = None,
) -> None:
    """Run the flow for result.scan, up to the target if given; append to the result as stages finish."""
    if verbose:
        os.environ["SCAN2CUT_VERBOSE"] = "1"  # VERBOSE_VARIABLE of flow.py, which imports Prefect
    else:
        silence_prefect()
    url = api_url(project)
    error = _run_flow_at(url, project, result, watcher, force, target, cluster)
    if error is not None and _server_died(url, error):
        _warn(f"Lost the Prefect server at {url}; continuing without it.")
        result.stages.clear()
        error = _run_flow_at(api_url(project), project, result, watcher, force, target, cluster)
    if error is not None:
        result.fail(_in_words(url, error))


_UNAUTHORIZED = 401


def _in_words(url: str, error: BaseException) -> BaseException:
    """Return a message for a server that rejects the password, other errors as they are."""
    if getattr(getattr(error, "response", None), "status_code", None) != _UNAUTHORIZED:
        return error
    return InputError(
        f"The Prefect server at {url} rejects the password. It needs {CLIENT_AUTH}=user:password as set at its start. "
        "Set it in the environment, or unset PREFECT_API_URL and stop the dashboard to run without it."
    )


_DASHBOARD_RETRIES = 2
"""Of a request to a silent dashboard: 2 + 4 s, not Prefect's minute for each of several requests."""
_EVENT_RETRIES = 2
"""The same for events, of which a lost one is no loss; Prefect would try each for ten seconds when the run ends."""


def _server_died(url: str, error: BaseException) -> bool:
    is_stage_error = isinstance(error, InputError | StageFailedError | TryAgainError | StoppedError)
    return not is_stage_error and is_chosen_here(url) and not answers(url)


def _run_flow_at(
    url: str,
    project: Project,
    result: RunResult,
    watcher: Any,
    force: bool,
    target: str | None,
    cluster: Cluster | None,
) -> BaseException | None:
    """Run the flow with the API at this address; return the error, or None."""
    from prefect.events.clients import PrefectEventsClient
    from prefect.events.worker import EventsWorker
    from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    from pipelines.runs.flow import REFUSED, WATCHER, Watcher, scan_flow

    def on_finish(report: StageReport) -> None:
        result.stages.append(report)
        watcher.on_finish(report)

    settings: dict[Any, Any] = {PREFECT_API_URL: url}
    if not is_embedded(url):  # nobody restarts a dashboard within seconds; an embedded server comes back
        settings[PREFECT_CLIENT_MAX_RETRIES] = _DASHBOARD_RETRIES
    if is_chosen_here(url):  # not Prefect Cloud, which has a client of its own
        options = {"api_url": url, "reconnection_attempts": _EVENT_RETRIES}
        EventsWorker.set_client_override(PrefectEventsClient, **options)
    token = WATCHER.set(Watcher(watcher.on_start, watcher.on_progress, on_finish, watcher.on_picture))
    try:
        with temporary_settings(settings), inside_flow():
            flow = scan_flow if cluster is None else scan_flow.with_options(task_runner=cluster.task_runner())
            source = None if cluster is None else cluster.source
            state: Any = flow(result.scan or "", str(project.root), force, target, source, return_state=True)
    except Exception as error:  # noqa: BLE001 -- Prefect's failures; the caller checks whether its server died
        return error
    finally:
        WATCHER.reset(token)
        logging.getLogger("prefect").setLevel(logging.CRITICAL)
    if state.is_completed():
        return None
    if state.is_cancelled():
        return StoppedError()
    outcome = state.result(raise_on_failure=False)
    if state.name == REFUSED and not isinstance(outcome, BaseException):
        return None  # every stage ran; the refused certificate is in the metrics
    return outcome if isinstance(outcome, BaseException) else RuntimeError(str(state.message))
