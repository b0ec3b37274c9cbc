"""Serve the flow as a Prefect deployment: start runs from the dashboard, by API or on a schedule."""

import logging
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prefect import flow
from prefect.runtime import flow_run
from prefect.states import Cancelled

from pipelines.dvc.stopping import STOP, StoppedError, end_process, inside_flow, say_stopped
from pipelines.project import Project, find_project
from pipelines.runs.flow import WATCHER, Watcher, final_state, name_of_run, refused, run_stages
from pipelines.runs.run_request import finish_run
from pipelines.runs.run_summary import RunResult
from pipelines.scans.register import Request, register_scan, registered_scan, reject_from_outside, scan_id_of
from stages.runtime.errors import InputError

STOPPED = "Stopped the deployment and its runs. Restart it and start the runs again."


def _run_name() -> str:
    return _name_for(flow_run.parameters)


def _name_for(parameters: Mapping[str, Any]) -> str:
    """Return the name of a requested run; a request that will be refused has one, too."""
    try:
        return name_of_run(scan_id_of(Path(str(parameters.get("scan", "scan")))), parameters.get("target"))
    except InputError:
        return "scan"


@flow(name="scan2cut", flow_run_name=_run_name, persist_result=False)
def run_requested(
    scan: str,
    log: str | None = None,
    material: str | None = None,
    settings: dict[str, dict[str, Any]] | None = None,
    force: bool = False,
    target: str | None = None,
) -> Any:
    """Bring one scan up to date.

    Args:
        scan: Id of a registered scan, or the name of a file in data/inbox.
        log: Name of its force log in data/inbox.
        material: As for `scan2cut run --material`.
        settings: Parameter overrides for this scan, e.g. {"clean": {"unit": "mm"}}.
        force: Run every stage, even if fresh.
        target: Run only this stage and its upstream stages.
    """
    return _run(scan, log, material, settings or {}, force, target)


def _run(
    scan: str,
    log: str | None,
    material: str | None,
    settings: dict[str, dict[str, Any]],
    force: bool,
    target: str | None,
) -> Any:
    """Run the flow's work; a separate function, because Prefect pickles a flow's body but imports this by name."""
    project = find_project()
    registered = project.scan_ids()
    try:
        result = RunResult(_register_requested(project, scan, log, material, settings))
    except InputError as error:
        return refused(str(error), error)
    token = WATCHER.set(Watcher(on_finish=result.stages.append))
    try:
        return final_state(run_stages(str(result.scan), str(project.root), force, target))
    except InputError as error:
        result.fail(error)
        return refused(str(error), error)
    except StoppedError as error:
        result.fail(error)
        return Cancelled(message=str(error))
    except BaseException as error:
        result.fail(error)
        raise
    finally:
        WATCHER.reset(token)
        finish_run(project, result, is_new=result.scan not in registered, target=target)


def _register_requested(
    project: Project,
    scan: str,
    log: str | None,
    material: str | None,
    settings: dict[str, dict[str, Any]],
) -> str:
    """Register the requested scan; files must be in data/inbox."""
    reject_from_outside(settings, "The request")
    if scan in project.scan_ids():
        source, scan_id = registered_scan(project, scan)
    else:
        source, scan_id = in_inbox(project, scan), None
    request = Request(
        source,
        in_inbox(project, log) if log else None,
        scan_id=scan_id,
        material=material,
        overrides=settings,
    )
    return register_scan(project, request)


def in_inbox(project: Project, name: str) -> Path:
    """Return the file's path in the inbox; raise InputError if the name leads elsewhere."""
    inbox = project.inbox_dir.resolve()
    try:
        path = (inbox / name).resolve()
    except (OSError, ValueError, RuntimeError):  # NUL in the name, or a symlink loop
        path = inbox
    if not path.is_relative_to(inbox) or path == inbox:
        raise InputError(
            f"{name[:80]!r} is not in {inbox}. Runs started from the dashboard or by API only read files there. "
            "Copy the file there, or use 'scan2cut run'."
        )
    return path


def serve(project: Project, *, name: str, limit: int) -> None:
    """Serve the deployment until Ctrl-C, which cancels its active runs."""
    from prefect.flows import EntrypointType

    project.inbox_dir.mkdir(parents=True, exist_ok=True)
    threading.Thread(target=_end_when_stopped, args=(name,), daemon=True).start()
    threading.Thread(target=_name_queued_runs, args=(name,), daemon=True).start()
    with inside_flow():
        run_requested.serve(
            name=name,
            description=f"scan2cut in {project.root}: runs registered scans and files in data/inbox.",
            tags=["scan2cut"],
            limit=limit,
            entrypoint_type=EntrypointType.MODULE_PATH,
            pause_on_shutdown=False,
        )


def _end_when_stopped(name: str) -> None:
    """Cancel active runs and end this process when stopped; Prefect would wait for the runs."""
    STOP.wait()
    try:
        _cancel_runs_of(name)
    except Exception as error:  # noqa: BLE001 -- the dashboard may be gone; the runs end anyway
        logging.getLogger("scan2cut").warning(f"The dashboard may still show the runs as running: {error}")
    say_stopped()
    end_process()


_NAMING_S = 5.0
"""Time between two looks at the queue."""


def _name_queued_runs(name: str) -> None:
    """Name queued runs after scan and target; Prefect gives them a random name until they start."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    queued = FlowRunFilter.model_validate({"state": {"type": {"any_": ["SCHEDULED", "PENDING"]}}})
    while not STOP.wait(_NAMING_S):
        try:
            with get_client(sync_client=True) as client:
                for run in client.read_flow_runs(flow_run_filter=queued, deployment_filter=_deployment(name)):
                    if run.name != _name_for(run.parameters):
                        client.set_flow_run_name(run.id, _name_for(run.parameters))
        except Exception as error:  # noqa: BLE001 -- a name is not worth a deployment; the next look tries again
            logging.getLogger("scan2cut").debug(f"Can't name queued runs: {error}")


def _deployment(name: str) -> Any:
    """Return Prefect's filter for this deployment."""
    from prefect.client.schemas.filters import DeploymentFilter, DeploymentFilterName

    return DeploymentFilter(name=DeploymentFilterName(any_=[name]))


def _cancel_runs_of(name: str) -> int:
    """Mark the deployment's active runs as Cancelled; return their number."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.filters import FlowRunFilter

    active = FlowRunFilter.model_validate({"state": {"type": {"any_": ["PENDING", "RUNNING", "CANCELLING"]}}})
    with get_client(sync_client=True) as client:
        runs = client.read_flow_runs(flow_run_filter=active, deployment_filter=_deployment(name))
        for run in runs:
            client.set_flow_run_state(run.id, Cancelled(message=STOPPED), force=True)
    return len(runs)
