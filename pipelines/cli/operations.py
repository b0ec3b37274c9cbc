"""The commands for everyday operation: batch, watch, deploy, dashboard, pull, reproduce, datasets."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pipelines.cli.terminal import (
    Json,
    OnlyJson,
    out,
    print_json,
    print_note,
    scan_ids,
    stage_names,
    stop_soon_on_signals,
    this_project,
)
from pipelines.runs.dashboard import HOST
from stages.runtime.errors import EXIT_FAILED, InputError

_Workers = Annotated[
    int | None, typer.Option(help="Scans at once.", show_default="what cores and memory allow")
]
_MemoryGb = Annotated[float, typer.Option("--memory-gb", help="Peak memory of one scan.")]
_Target = Annotated[
    str | None, typer.Option(help="Run only this stage and what it needs.", autocompletion=stage_names)
]
_MEMORY_GB = 2.0
"""The largest stage of the sample peaks below 1 GB (lab/notes/scaling.md); fruits are scanned more finely than that."""


def add_operation_commands(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    for command in (batch, watch, deploy, dashboard, pull, reproduce, datasets):
        app.command()(command)
    arm = typer.Typer(no_args_is_help=True, help="A simulated arm that executes an exported cut.")
    arm.command("serve")(serve_arm)
    app.add_typer(arm, name="arm")
    develop = typer.Typer(no_args_is_help=True, help="Write the generated files (for developers).")
    develop.command("pipeline")(dev_pipeline)
    develop.command("artifacts")(dev_artifacts)
    app.add_typer(develop, name="dev")


def batch(
    scans: Annotated[list[str], typer.Argument(help="Ids of registered scans, or raw scan files.")],
    workers: _Workers = None,
    memory_gb: _MemoryGb = _MEMORY_GB,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a parameter for all these scans.")
    ] = None,
    target: _Target = None,
    force: Annotated[bool, typer.Option("--force", help="Run every stage even if it is fresh.")] = False,
    dask: Annotated[
        str | None,
        typer.Option(help="Address of a Dask scheduler (tcp://host:8786), or 'local' for one here."),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(help="Where Dask's workers clone the code from.", show_default="this project"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run many scans at once, each with the log that is called like it, if there is one."""
    project = this_project()
    only_json = OnlyJson() if as_json else None
    stop_soon_on_signals()
    from pipelines.cli.run import parse_overrides
    from pipelines.many.batch import batch_requests, capacity, run_batch
    from pipelines.runs.run_request import dask_cluster

    bound = capacity(memory_gb, workers)
    requests = batch_requests(project, scans, parse_overrides(settings or []))
    print_note(f"{len(requests)} scans, {bound.scans} at once (bounded by {bound.reason}).")
    with dask_cluster(project, dask, repository, bound.scans) as cluster:
        results = run_batch(
            project,
            requests,
            scans_at_once=bound.scans,
            say=print_note,
            force=force,
            target=target,
            cluster=cluster,
        )
    if only_json:
        only_json.print([result.as_json() for result in results])
    else:
        table = Table("scan", "result", "stages", "seconds")
        for result in results:
            seconds = sum(stage.seconds for stage in result.stages)
            table.add_row(result.scan, result.in_words, str(len(result.stages)), f"{seconds:.1f}")
        out.print(table)
    if any(result.exit_code for result in results):
        raise typer.Exit(max(result.exit_code for result in results))


def watch(
    folder: Annotated[Path, typer.Argument(help="Where scans and logs arrive.")],
    workers: _Workers = None,
    memory_gb: _MemoryGb = _MEMORY_GB,
    settle_s: Annotated[
        float, typer.Option(help="A file is whole when it has not changed for so long.")
    ] = 5.0,
    target: _Target = None,
    once: Annotated[bool, typer.Option("--once", help="End when everything that is there has run.")] = False,
) -> None:
    """Start a run for every scan that arrives with its log; remembers across restarts what was done.

    With --once the exit code is the worst of what was seen: 2 if something was refused, 1 if something failed.
    """
    project = this_project()
    stop_soon_on_signals()
    from pipelines.dvc.stopping import STOP
    from pipelines.many.batch import capacity
    from pipelines.many.watch import watch as watch_folder

    exit_code = watch_folder(
        project,
        folder.absolute(),
        scans_at_once=capacity(memory_gb, workers).scans,
        settle_s=settle_s,
        say=print_note,
        stop=STOP,
        once=once,
        target=target,
    )
    raise typer.Exit(exit_code)


def deploy(
    name: Annotated[str, typer.Option(help="Name of the deployment.")] = "lab",
    workers: _Workers = None,
    memory_gb: _MemoryGb = _MEMORY_GB,
) -> None:
    """Register the flow with the running dashboard and run what is started there or by API."""
    project = this_project()
    from pipelines.many.batch import capacity
    from pipelines.runs.dashboard import use_running_dashboard
    from stages.runtime.errors import InputError

    url = use_running_dashboard(project)
    if url is None:
        raise InputError(
            "No dashboard answers. A deployment lives in one. Start it first, in another terminal: scan2cut dashboard."
        )
    from pipelines.runs.deployment import STOPPED, serve

    stop_soon_on_signals(STOPPED)
    limit = capacity(memory_gb, workers).scans
    print_note(f"Deployment scan2cut/{name} at {url}, {limit} runs at once; Ctrl-C ends it.")
    serve(project, name=name, limit=limit)


def dashboard(
    port: Annotated[int, typer.Option(help="Port on this machine.")] = 4200,
    host: Annotated[
        str, typer.Option(help="Address to listen on; wider than this machine needs an auth string.")
    ] = HOST,
) -> None:
    """Start the Prefect dashboard, on this machine only unless --host says otherwise; runs then report to it."""
    project = this_project()
    from pipelines.runs.dashboard import serve_dashboard

    serve_dashboard(project, port, host, print_note)


def pull(
    scans: Annotated[
        list[str] | None, typer.Argument(help="Scan ids.", show_default="all", autocompletion=scan_ids)
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="From DVC's cache on this machine, without the remote.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fetch what was recorded of these scans from the DVC remote; stages that never ran are left out."""
    project = this_project()
    from pipelines.versions import reproduce as module

    fetched = module.pull(project, scans or [], print_note, local=local)
    print_json(fetched) if as_json else out.print(f"{len(fetched)} recorded parts are here.")


def reproduce(
    scans: Annotated[
        list[str] | None, typer.Argument(help="Scan ids.", show_default="all", autocompletion=scan_ids)
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute every stage again in a clone and compare its bytes with the recorded ones. Exit code 1 if one differs."""
    project = this_project()
    from dataclasses import asdict

    from pipelines.versions import reproduce as module

    verdicts = list(module.reproduce(project, scans or [], print_note))
    if as_json:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        table = Table("scan", "stage", "verdict", "other bytes in")
        for verdict in verdicts:
            table.add_row(verdict.scan, verdict.stage, verdict.verdict, ", ".join(verdict.differing))
        out.print(table)
    if any(verdict.verdict == module.DIFFERENT for verdict in verdicts):
        raise typer.Exit(EXIT_FAILED)


def datasets(
    versions: Annotated[
        list[str] | None, typer.Argument(help="One or two versions: a tag, a commit; 'now' is the work tree.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the versions of the dataset; with two versions, what changed from the first to the second."""
    project = this_project()
    from pipelines.versions.history import changes_between, changes_table, list_versions, versions_table

    if versions:
        changes = changes_between(project, versions[0], versions[1] if len(versions) > 1 else "now")
        print_json(changes.as_json()) if as_json else out.print(changes_table(changes))
        return
    found = list_versions(project)
    print_json([version.as_json() for version in found]) if as_json else out.print(versions_table(found))


def serve_arm(
    robot: Annotated[str, typer.Argument(help="panda or fr3.")],
    stone: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="HEIGHT_M FORCE_N",
            help="Below this height in the base frame the end effector feels this force upwards.",
        ),
    ] = None,
    fruit: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Feel the certified cut of this scan, e.g. data/scans/apple."),
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=FACTOR", help="With --fruit: multiply a fitted parameter of the fruit."),
    ] = None,
    cpp: Annotated[bool, typer.Option("--cpp", help="Also compile the C++ client (Panda only).")] = False,
) -> None:
    """Serve a simulated arm at 127.0.0.1 until Ctrl-C. The first call installs it under build/arm."""
    from pipelines.arm.serve_arm import NO_STONE, serve

    if factor and not fruit:
        raise InputError("--factor needs a fruit to multiply. Give --fruit FOLDER too.")
    code = serve(robot, stone or NO_STONE, [fruit, *(factor or [])] if fruit else [], cpp=cpp)
    if code:
        raise typer.Exit(code)


def dev_pipeline() -> None:
    """Write the DVC template of a scan from the stages' descriptions and imports."""
    project = this_project()
    from pipelines.dvc.template_writer import write_template

    out.print(f"Wrote {write_template(project.root)}", highlight=False)


def dev_artifacts() -> None:
    """Write docs/artifacts.md: every artifact with its columns and units."""
    project = this_project()
    from pipelines.dvc.template_writer import write_artifacts_page

    out.print(f"Wrote {write_artifacts_page(project.root)}", highlight=False)
