"""The Prefect flow: one task per stage of the template, each of them one DVC subprocess.

DVC decides whether a stage is fresh; Prefect runs, retries and monitors.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.exceptions import TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled, Completed, Failed
from prefect.tasks import Task

from pipelines.dvc.clone import (
    Source,
    fetch_inputs,
    fetch_outputs,
    open_workspace,
    result_files,
    send_outputs,
    text_files,
    write_text_files,
)
from pipelines.dvc.commands import CommandError, run_dvc
from pipelines.dvc.pipeline_file import (
    StageEntry,
    needed_for,
    outdated_stages,
    pipeline_address,
    scan_entries,
    upstream,
)
from pipelines.dvc.repair import check_raw_files, has_results, recorded_stages
from pipelines.dvc.stage import Listeners, StageFailedError, StageReport, TryAgainError, bring_up_to_date
from pipelines.dvc.stopping import StoppedError
from pipelines.project import Project
from pipelines.report.page import figure, refusal, refusal_of_run, result_word, stage_warnings
from pipelines.runs.dashboard_artifacts import RUN_PAGE, RunPage, StagePage
from pipelines.runs.progress_lines import duration
from stages.runtime.catalogue import STAGES
from stages.runtime.errors import InputError

_RETRY_DELAY_S = 2
_SAY_EVERY_S = 30.0
"""Time between two lines on the progress of a stage in the log."""
VERBOSE_VARIABLE = "SCAN2CUT_VERBOSE"
"""Environment variable: output of DVC and the stages at level INFO of the log instead of DEBUG."""
REFUSED = "Refused"
"""Name of the Prefect state (type Failed) of a rejected input or a motion refused by its certificate."""
_DVC_HINTS = ("To track the changes", "\tgit add", "To enable auto staging", "\tdvc config", "Use `dvc push`")
"""Hints that DVC prints after each stage; omitted from the log."""


@dataclass(frozen=True)
class Watcher:
    """Callbacks for the progress of a run, e.g. the command line's progress bars."""

    on_start: Callable[[StageEntry], None] = lambda entry: None
    on_progress: Callable[[str, float, str], None] = lambda stage, fraction, message: None
    on_finish: Callable[[StageReport], None] = lambda report: None
    on_picture: Callable[[str, Path], None] = lambda stage, path: None


_NO_WATCHER = Watcher()
WATCHER: ContextVar[Watcher] = ContextVar("WATCHER", default=_NO_WATCHER)
"""Not a parameter of the flow, because Prefect serialises parameters."""


def name_of_run(scan_id: str, target: str | None) -> str:
    """Return the name of a run in the dashboard."""
    return f"{scan_id} up to {target}" if target else scan_id


def _this_runs_name() -> str:
    return name_of_run(flow_run.parameters["scan_id"], flow_run.parameters["target"])


@flow(name="scan2cut", flow_run_name=_this_runs_name, persist_result=False, validate_parameters=False)
def scan_flow(
    scan_id: str,
    project_root: str,
    force: bool = False,
    target: str | None = None,
    source: Source | None = None,
) -> Any:
    """Bring every stage of one scan up to date, in the template's order.

    With a target, run only that stage and its upstream stages; `force` then applies to the target alone. With a source,
    stages run on the task runner's workers, which exchange artifacts through the DVC remote.
    """
    try:
        return final_state(run_stages(scan_id, project_root, force, target, source))
    except StoppedError as error:
        return Cancelled(message=str(error))
    except InputError as error:
        return refused(str(error), error)


def final_state(reports: Sequence[StageReport]) -> Any:
    """Return the stages' outcomes, or the state Refused if the motion is refused or a simulated cut did not happen."""
    stages = [{"name": report.name, "outcome": result_word(report)} for report in reports]
    verdict = refusal_of_run({report.name: report.metrics for report in reports})
    return refused(verdict, stages) if verdict else stages


def refused(message: str, data: Any) -> State[Any]:
    """Return the state Refused with a message."""
    return Failed(name=REFUSED, message=message, data=data)


def run_stages(
    scan_id: str, project_root: str, force: bool, target: str | None, source: Source | None = None
) -> list[StageReport]:
    """Run the flow's work; a separate function, because Dask pickles a flow's body but imports this by name."""
    project = Project(Path(project_root))
    entries = scan_entries(project, scan_id)
    if target is not None:
        entries = needed_for(target, entries)
    check_raw_files(project, scan_id)
    fresh = set() if force or source is not None else _fresh_at_first(project, scan_id, entries)
    states: dict[str, State[Any]] = {}
    reports: list[StageReport] = []
    page = RunPage(scan_id, entries)
    RUN_PAGE.set(page if source is None else None)
    get_run_logger().info(f"Summary with live picture: {page.url}")
    for entry in entries:
        WATCHER.get().on_start(entry)
        report, states[entry.name] = _run_entry(
            project,
            scan_id,
            entry,
            force and target in (None, entry.name),
            entry.name in fresh,
            source,
            [states[name] for name in upstream(entry, entries)],
        )
        reports.append(report)
        page.on_finish(report)
        WATCHER.get().on_finish(report)
    if source is not None:
        fetch_outputs(project, scan_id, entries)
    page.close(project)
    return reports


def _fresh_at_first(project: Project, scan_id: str, entries: Sequence[StageEntry]) -> set[str]:
    """Return the fresh stages before the first stale one, from one `dvc status` instead of one per stage.

    From the first stale stage on, DVC checks each stage when its turn comes. If `dvc status` fails, all stages are
    checked one by one, which also repairs files left corrupt by a kill.
    """
    if len(entries) < 2 or not has_results(project.scan_dir(scan_id)):
        return set()
    try:
        changed = json.loads(run_dvc(project, "status", "--json", pipeline_address(project, scan_id)))
        stale = {address.rpartition(":")[2] for address in changed} | (
            outdated_stages(project, scan_id) or set()
        )
        fresh = recorded_stages(project.scan_dir(scan_id)).keys() - stale
    except (CommandError, InputError, ValueError):
        return set()
    return {entry.name for entry in takewhile(lambda entry: entry.name in fresh, entries)}


def _run_entry(
    project: Project,
    scan_id: str,
    entry: StageEntry,
    force: bool,
    fresh: bool,
    source: Source | None,
    after: list[State[Any]],
) -> tuple[StageReport, State[Any]]:
    """Run one stage locally (called directly, so that cancelling takes effect immediately) or on a worker."""
    task = _task_for(entry)
    arguments = (scan_id, str(project.root), entry.name, force, fresh)
    if source is None:
        state: State[Any] = task(*arguments, wait_for=after, return_state=True)
    else:
        future = task.submit(*arguments, source, text_files(project, scan_id), wait_for=after)
        future.wait()
        state = future.state
        if not state.is_final():
            raise StageFailedError(
                f"Lost the Dask scheduler while {entry.name} of {scan_id} ran on a worker. Without it "
                "the result can't be fetched. Restart scheduler and workers, then run the same command; "
                "finished stages are kept."
            )
    if state.is_cancelled():
        raise StoppedError
    result: Any = state.result(raise_on_failure=state.name != REFUSED)
    if isinstance(result, InputError):
        raise result
    report: StageReport = result
    if source is not None:
        write_text_files(project, scan_id, result_files(report.text_files))
    return report, state


def _can_be_retried(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    return isinstance(error, TryAgainError)


def _task_for(entry: StageEntry) -> Task[..., Any]:
    return run_stage_task.with_options(name=entry.name, task_run_name=entry.name, retries=entry.retries)


@task(
    cache_policy=NO_CACHE,
    persist_result=False,
    retry_delay_seconds=_RETRY_DELAY_S,
    retry_condition_fn=_can_be_retried,
)
def run_stage_task(
    scan_id: str,
    project_root: str,
    stage: str,
    force: bool,
    fresh: bool = False,
    source: Source | None = None,
    files: dict[str, str] | None = None,
) -> Any:
    """Run one stage of one scan; its state is named by `result_word`, or Refused."""
    try:
        return _run_stage(scan_id, project_root, stage, force, fresh, source, files)
    except StoppedError as error:
        return Cancelled(message=str(error))
    except (
        TerminationSignal
    ):  # of the deployment's runner, when a run is cancelled in the dashboard or by API
        return Cancelled(message=f"Cancelled in {stage}. Start the run again to resume.")
    except InputError as error:
        return refused(str(error), error)


def _run_stage(
    scan_id: str,
    project_root: str,
    stage: str,
    force: bool,
    fresh: bool,
    source: Source | None,
    files: dict[str, str] | None,
) -> Any:
    """Run the task's work; a separate function, because Dask pickles a task's body but imports this by name."""
    project = Project(Path(project_root)) if source is None else open_workspace(source)
    entries = scan_entries(project, scan_id)
    number, entry = next((i, entry) for i, entry in enumerate(entries, start=1) if entry.name == stage)
    if source is not None:
        write_text_files(project, scan_id, files or {})
        fetch_inputs(project, scan_id, entry)
    log = get_run_logger()
    stage_page, run_page = StagePage(scan_id, stage, number), RUN_PAGE.get()
    said_s = time.monotonic()
    log.info(f"{stage}: {STAGES[stage].does}")

    def on_output(line: str) -> None:
        if line.strip() and not line.startswith(_DVC_HINTS):
            log.log(logging.INFO if os.environ.get(VERBOSE_VARIABLE) else logging.DEBUG, line)

    def on_progress(fraction: float, message: str) -> None:
        nonlocal said_s
        stage_page.update(fraction, message)
        if run_page is not None:
            run_page.on_progress(stage, fraction, message)
        if time.monotonic() - said_s >= _SAY_EVERY_S:
            said_s = time.monotonic()
            log.info(f"{stage}: {100.0 * fraction:.0f} %, {message}")
        WATCHER.get().on_progress(stage, fraction, message)

    def on_picture(path: Path) -> None:
        if run_page is not None:
            run_page.on_picture(path)
        WATCHER.get().on_picture(stage, path)

    listeners = Listeners(log.info, on_output, on_progress, on_picture)
    report = bring_up_to_date(project, scan_id, entry, listeners=listeners, force=force, fresh=fresh)
    if source is not None:
        send_outputs(project, scan_id, entry)
        report = replace(report, text_files=text_files(project, scan_id))
    report = replace(report, pages=stage_page.finish(project, report))
    verdict = refusal(report.metrics)
    if verdict and "certified" in report.metrics:
        return refused(verdict, report)
    message = f"{stage}: {report.outcome.value.lower()} in {duration(report.seconds)}"
    if entry.key_figure in report.metrics:
        message += f", {figure(entry.key_figure, report.metrics[entry.key_figure])}"
    # A stage whose simulated cut did not happen has its results, and later stages run: Completed, with another name.
    warnings = stage_warnings(stage, report.metrics)
    return Completed(name=result_word(report), message=" ".join([message, *warnings]), data=report)
