"""Commands that manage: scans and workspaces, many scans, dashboard, versions, the simulated arm, generated files."""

import sys
import webbrowser
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
    print_text,
    scan_ids,
    stage_names,
    stop_soon_on_signals,
    this_project,
)
from pipelines.runs.dashboard import HOST
from stages.runtime.errors import EXIT_FAILED, EXIT_INTERRUPTED, InputError

_Workers = Annotated[
    int | None, typer.Option(help="Number of parallel scans.", show_default="limited by cores and memory")
]
_MemoryGb = Annotated[float, typer.Option("--memory-gb", help="Peak memory per scan in GB.")]
_Target = Annotated[
    str | None, typer.Option(help="Run only this stage and its upstream stages.", autocompletion=stage_names)
]
_MEMORY_GB = 2.0
"""The sample peaks below 1 GB (lab/notes/scaling.md); real scans are finer."""


def add_operation_commands(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    for of_a_scan in (init, remove, rename, history, plane):
        app.command()(of_a_scan)
    for command in (batch, watch, deploy, dashboard, push, pull, reproduce, datasets):
        app.command()(command)
    arm = typer.Typer(no_args_is_help=True, help="Run a simulated arm that executes exported cuts.")
    arm.command("serve")(serve_arm)
    app.add_typer(arm, name="arm")
    develop = typer.Typer(no_args_is_help=True, help="Generate files for developers.")
    develop.command("pipeline")(dev_pipeline)
    develop.command("artifacts")(dev_artifacts)
    app.add_typer(develop, name="dev")


def batch(
    scans: Annotated[list[str], typer.Argument(help="Ids of registered scans, or scan files.")],
    workers: _Workers = None,
    memory_gb: _MemoryGb = _MEMORY_GB,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a parameter in all these scans, e.g. clean.unit=mm."),
    ] = None,
    target: _Target = None,
    force: Annotated[bool, typer.Option("--force", help="Run every stage, even if fresh.")] = False,
    dask: Annotated[
        str | None,
        typer.Option(help="Address of a Dask scheduler (tcp://host:8786), or 'local' to start one."),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(help="Git repository the Dask workers clone.", show_default="this project"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Run many scans in parallel, each with the log of the same name, if present."""
    project = this_project()
    only_json = OnlyJson() if as_json else None
    stop_soon_on_signals()
    from pipelines.cli.run import parse_overrides
    from pipelines.many.batch import batch_requests, capacity, run_batch
    from pipelines.runs.run_request import dask_cluster

    bound = capacity(memory_gb, workers)
    requests = batch_requests(project, scans, parse_overrides(settings or []))
    print_note(f"{len(requests)} scans, {bound.scans} in parallel (limited by {bound.reason}).")
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
        table = Table("scan", "result", "stages", "time [s]")
        for result in results:
            seconds = sum(stage.seconds for stage in result.stages)
            table.add_row(result.scan, result.in_words, str(len(result.stages)), f"{seconds:.1f}")
        out.print(table)
    if any(result.exit_code for result in results):
        raise typer.Exit(max(result.exit_code for result in results))


def watch(
    folder: Annotated[Path, typer.Argument(help="Inbox folder for scans and logs.")],
    workers: _Workers = None,
    memory_gb: _MemoryGb = _MEMORY_GB,
    settle_s: Annotated[
        float, typer.Option(help="Seconds without changes after which a file counts as complete.")
    ] = 5.0,
    target: _Target = None,
    once: Annotated[bool, typer.Option("--once", help="Process the current files, then exit.")] = False,
) -> None:
    """Watch an inbox folder and run every scan that arrives with its log; keeps its state across restarts.

    With --once the exit code is the worst of all runs: 2 if an input was rejected, 1 if a run failed.
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
    """Serve the flow as a Prefect deployment: start runs from the dashboard or by API."""
    project = this_project()
    from pipelines.many.batch import capacity
    from pipelines.runs.dashboard import use_running_dashboard
    from stages.runtime.errors import InputError

    url = use_running_dashboard(project)
    if url is None:
        raise InputError(
            "No dashboard answers. A deployment needs one. Start it in another terminal: scan2cut dashboard."
        )
    from pipelines.runs.deployment import STOPPED, serve

    stop_soon_on_signals(STOPPED)
    limit = capacity(memory_gb, workers).scans
    print_note(
        f"Serving deployment scan2cut/{name} at {url}, up to {limit} parallel runs. Press Ctrl-C to stop."
    )
    serve(project, name=name, limit=limit)


def dashboard(
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 4200,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other machines' access requires an auth string.")
    ] = HOST,
) -> None:
    """Start the Prefect dashboard (local access only, unless --host is given); runs report to it."""
    project = this_project()
    from pipelines.runs.dashboard import serve_dashboard

    serve_dashboard(project, port, host, print_note)


def pull(
    scans: Annotated[
        list[str] | None, typer.Argument(help="Scan ids.", show_default="all", autocompletion=scan_ids)
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Use DVC's local cache instead of the remote.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pull raw files and recorded results of scans from the DVC remote; skip stages that never ran."""
    project = this_project()
    from pipelines.versions import reproduce as module

    pulled = module.pull(project, scans or [], print_note, local=local)
    print_json(pulled) if as_json else out.print(f"Pulled {len(pulled)} artifacts.")


def push(as_json: Json = False) -> None:
    """Send what the work tree and every git tag record to the DVC remote. Exit code 1 if the remote lacks any of it."""
    project = this_project()
    from dataclasses import asdict

    from pipelines.versions import reproduce as module

    pushed = module.push(project, print_note)
    if as_json:
        print_json([asdict(each) for each in pushed])
    else:
        table = Table("version", "files", "missing in the remote", "")
        for each in pushed:
            note = "" if each.knows_remote else "its .dvc/config names no remote: a clone must add it"
            table.add_row(each.version, str(each.objects), ", ".join(each.missing[:3]) or "none", note)
        out.print(table)
    if any(each.missing for each in pushed):
        raise typer.Exit(EXIT_FAILED)


def reproduce(
    scans: Annotated[
        list[str] | None, typer.Argument(help="Scan ids.", show_default="all", autocompletion=scan_ids)
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute every stage in a clone and compare all files byte by byte. Exit code 1 if any differ."""
    project = this_project()
    from dataclasses import asdict

    from pipelines.versions import reproduce as module

    verdicts = list(module.reproduce(project, scans or [], print_note))
    if as_json:
        print_json([asdict(verdict) for verdict in verdicts])
    else:
        table = Table("scan", "stage", "verdict", "changed files")
        for verdict in verdicts:
            table.add_row(verdict.scan, verdict.stage, verdict.verdict, ", ".join(verdict.differing))
        out.print(table)
    if any(verdict.verdict == module.DIFFERENT for verdict in verdicts):
        raise typer.Exit(EXIT_FAILED)


def datasets(
    versions: Annotated[
        list[str] | None,
        typer.Argument(help="One or two versions (tag, commit, or 'now' for the work tree)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the versions of the dataset, or show the changes between two of them."""
    project = this_project()
    from pipelines.versions.history import changes_between, changes_table, list_versions, versions_table

    if versions:
        changes = changes_between(project, versions[0], versions[1] if len(versions) > 1 else "now")
        print_json(changes.as_json()) if as_json else out.print(changes_table(changes))
        return
    listed = list_versions(project)
    print_json([version.as_json() for version in listed]) if as_json else out.print(versions_table(listed))


def serve_arm(
    robot: Annotated[str, typer.Argument(help="panda or fr3.")],
    stone: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="HEIGHT_M FORCE_N",
            help="Simulate an obstacle: push the end effector up with this force below this height in the base frame.",
        ),
    ] = None,
    fruit: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Apply the simulated force of this scan's certified cut, e.g. data/scans/apple.",
        ),
    ] = None,
    factor: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FACTOR", help="With --fruit: multiply a fitted parameter; may be repeated."
        ),
    ] = None,
    cpp: Annotated[bool, typer.Option("--cpp", help="Also compile the C++ client (Panda only).")] = False,
) -> None:
    """Serve a simulated arm at 127.0.0.1 until Ctrl-C. The first call installs it into build/arm."""
    from pipelines.arm.serve_arm import NO_STONE, serve

    if factor and not fruit:
        raise InputError(
            "--factor needs --fruit: it multiplies a parameter of that fruit. Add --fruit FOLDER."
        )
    code = serve(robot, stone or NO_STONE, [fruit, *(factor or [])] if fruit else [], cpp=cpp)
    if code:
        raise typer.Exit(code)


def dev_pipeline() -> None:
    """Write the DVC template of the pipeline from the stages' descriptions and imports."""
    project = this_project()
    from pipelines.dvc.template_writer import write_template

    out.print(f"Wrote {write_template(project.root)}", highlight=False)


def dev_artifacts() -> None:
    """Write docs/artifacts.md, the reference of all artifacts, columns and units."""
    project = this_project()
    from pipelines.dvc.template_writer import write_artifacts_page

    out.print(f"Wrote {write_artifacts_page(project.root)}", highlight=False)


_Scan = Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)]


def init(
    folder: Annotated[Path, typer.Argument(help="New or empty folder.")],
    as_json: Json = False,
) -> None:
    """Make a workspace: a folder for your data, settings, profiles and library of cuts, outside the code."""
    from pipelines.workspace import init_workspace

    project = init_workspace(folder)
    if as_json:
        print_json({"workspace": str(project.root)})
        return
    print_text(out, f"Workspace: {project.root}")
    print_text(
        out,
        "settings.yaml: what differs from the defaults; profiles/: your cell, knife, material and robot; library/: "
        "calibrated cuts; data/: scans.",
    )
    print_text(out, f"Next: cd {folder} && scan2cut run SCAN --log LOG")


def remove(
    scan: _Scan,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove a scan with its results; say what goes and what stays, and ask first."""
    from pipelines.scans.manage import dependents, remove_scan

    project = this_project()
    listed = dependents(project, scan)
    for line in listed.lines():
        print_note(line)
    if not yes:
        if not sys.stdin.isatty():
            raise InputError(
                f"{scan!r} was not removed. Without a terminal nobody can be asked. Add --yes to remove it."
            )
        if not typer.confirm(f"Remove {scan}?", err=True):
            print_note("Nothing was removed.")
            raise typer.Exit(EXIT_INTERRUPTED)
    removed = remove_scan(project, scan)
    print_json(removed.as_json()) if as_json else print_text(out, f"Removed {removed.folder}.")


def rename(
    scan: _Scan,
    new: Annotated[str, typer.Argument(help="New id: a-z, 0-9, _ and -.")],
    as_json: Json = False,
) -> None:
    """Give a scan another id; its results stay, except the exported motion, which names the id."""
    from pipelines.scans.manage import rename_scan

    project = this_project()
    again = rename_scan(project, scan, new)
    if as_json:
        print_json({"scan": new, "folder": f"data/scans/{new}", "stages_to_run": list(again)})
        return
    print_text(out, f"Renamed {scan} to {new}.")
    if again:
        print_text(out, f"{', '.join(again)} named the old id; write it again with: scan2cut run {new}")


def history(scan: _Scan, as_json: Json = False) -> None:
    """List the runs and commits of a scan: when, what changed, main figures."""
    from pipelines.versions.history import history_table, scan_history

    rows = scan_history(this_project(), scan)
    if as_json:
        print_json(rows)
    elif rows:
        out.print(history_table(scan, rows))
    else:
        print_text(out, f"No run of {scan} is recorded. Run it with: scan2cut run {scan}")


def plane(
    scan: _Scan,
    port: Annotated[int, typer.Option(help="Port of the page; 0: any free one.")] = 0,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = True,
) -> None:
    """Choose the plane of the first cut by eye, on a page of this machine; save it as --set would.

    Ctrl-C ends it without a change.
    """
    from pipelines.report.plane_page import CutPlane, PlaneServer, read_fruit
    from pipelines.scans.register import Request, known_raw_file, register_scan

    project = this_project()
    fruit = read_fruit(project, scan)

    def save(chosen: CutPlane) -> None:
        overrides = {"clean": {"cut_offset_m": chosen.cut_offset_m, "turn_deg": chosen.turn_deg}}
        register_scan(project, Request(known_raw_file(project, scan), scan_id=scan, overrides=overrides))

    server = PlaneServer(fruit, save, port)
    print_note(f"Choose the plane at {server.url} and press Save there. Ctrl-C ends without a change.")
    if open_page and not webbrowser.open(server.url):
        print_note("No browser available to open the page. Open the address yourself.")
    try:
        server.serve()
    except KeyboardInterrupt:
        print_note("Nothing was changed.")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    if server.chosen is not None:
        settings = " ".join(f"--set {each}" for each in server.chosen.settings())
        print_text(out, f"Saved for {scan}: {settings}")
        print_text(out, f"Next: scan2cut run {scan}")
