"""The commands that run a scan: run, calibrate. The command line adds them to its own."""

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli.terminal import (
    DEBUG_VARIABLE,
    Json,
    OnlyJson,
    err,
    out,
    print_error,
    print_text,
    stop_soon_on_signals,
    this_project,
)
from pipelines.dvc.stopping import say_stopped
from stages.runtime.exit_codes import EXIT_INTERRUPTED

if TYPE_CHECKING:
    from pipelines.runs.run_result import RunResult
    from pipelines.scans.project import Project
    from pipelines.scans.register import Request

AIR_HELP = "No-contact run of the log's motion, may be repeated [default: air* beside the log]."
Force = Annotated[bool, typer.Option("--force", help="Run every stage even if it is fresh.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the log of every stage.")]
Air = Annotated[list[Path] | None, typer.Option(help=AIR_HELP)]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Override a parameter for this scan, e.g. clean.unit=mm.")
]


def add_run_commands(app: typer.Typer) -> None:
    """Add them."""
    for command in (run, calibrate):
        app.command()(command)


def run(
    scan: Annotated[
        Path, typer.Argument(help="Raw scan: PLY, OBJ, STL, OFF, glTF, or a PCD/XYZ point cloud.")
    ],
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Force log of a cut of the same fruit, may be repeated: one per cut."),
    ] = None,
    air: Air = None,
    material: Annotated[
        str | None, typer.Option(help="apple, potato, cucumber or banana [default: apple].")
    ] = None,
    surface: Annotated[
        Path | None, typer.Option(help="Triangle mesh to cut along instead of the plane.")
    ] = None,
    settings: Settings = None,
    scan_id: Annotated[
        str | None, typer.Option("--id", help="Name of the scan [default: from the file].")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Forget this scan's earlier --set values.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file registered under this id.")
    ] = False,
    force: Force = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Register a scan and bring all its stages up to date.

    The scan is copied to data/scans/<id>/ and put under DVC. Stages that are fresh are skipped.
    """
    project, only_json = this_project(), OnlyJson() if as_json else None
    from pipelines.cli.overrides import parse_overrides
    from pipelines.cli.run_table import run_table
    from pipelines.runs.summary import headlines
    from pipelines.scans.register import Request

    def request() -> Request:
        overrides = parse_overrides(settings or [])
        first, further = _cuts(log)
        return Request(
            scan,
            first,
            surface,
            scan_id,
            material,
            overrides,
            reset=reset,
            replace=replace,
            further=further,
            air=tuple(air or ()),
        )

    result = _run(project, request, force=force, verbose=verbose)
    if only_json:
        only_json.print(result.as_json())
    elif not result.error:
        out.print(run_table(project, result))
        for line in headlines({report.name: report.metrics for report in result.stages}):
            print_text(out, line.replace("**", "").replace("`", ""))
        print_text(out, f"Report: {result.report}")
    else:
        _print_failure(result)
        if result.report:
            print_text(err, f"More: {result.report}")
    raise typer.Exit(result.exit_code)


def calibrate(
    scan: Annotated[
        str,
        typer.Argument(
            help="Id of a registered scan, its cut mesh (data/scans/ID/precut), or a raw scan file."
        ),
    ],
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Force log of a cut, may be repeated: one per cut [default: the scan's]."),
    ] = None,
    air: Air = None,
    material: Annotated[
        str | None, typer.Option(help="apple, potato, cucumber or banana [default: the scan's].")
    ] = None,
    settings: Settings = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the log registered for this scan.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Fit again even if nothing changed.")] = False,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Fit the simulator's parameters to a force log: the stage calibrate and what it needs, nothing else."""
    project, only_json = this_project(), OnlyJson() if as_json else None
    from pipelines.cli.overrides import parse_overrides
    from pipelines.cli.run_table import run_table
    from pipelines.runs.run_result import CALIBRATE, calibration_json
    from pipelines.scans.register import Request, registered_scan

    def request() -> Request:
        source, scan_id = registered_scan(project, scan)
        overrides = parse_overrides(settings or [])
        first, further = _cuts(log)
        return Request(
            source,
            first,
            None,
            scan_id,
            material,
            overrides,
            replace=replace,
            further=further,
            air=tuple(air or ()),
        )

    result = _run(project, request, force=force, verbose=verbose, target=CALIBRATE)
    fit = calibration_json(result)
    if only_json:
        only_json.print(fit)
    elif not result.error:
        out.print(run_table(project, result))
        print_text(out, f"{fit['outcome']}: {fit['remedy']}")
    else:
        _print_failure(result)
    raise typer.Exit(result.exit_code)


def _print_failure(result: "RunResult") -> None:
    if result.exit_code == EXIT_INTERRUPTED:
        say_stopped()
    else:
        print_error(result.error or "")


def _run(
    project: "Project",
    request: "Callable[[], Request]",
    *,
    force: bool,
    verbose: bool,
    target: str | None = None,
) -> "RunResult":
    """Register and run what the request says, with progress bars; a failure is in the result, never raised."""
    from pipelines.cli.progress_bars import ProgressBars
    from pipelines.runs.run_request import run_request
    from pipelines.runs.run_result import RunResult

    result = RunResult()
    try:
        stop_soon_on_signals()
        with ProgressBars(err) as bars:
            run_request(project, request(), result, bars, force=force, verbose=verbose, target=target)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- reported by the caller, in the form that was asked for
        result.fail(error)
    if result.exception is not None and os.environ.get(DEBUG_VARIABLE):
        print_text(err, "".join(traceback.format_exception(result.exception)))
    return result


def _cuts(logs: list[Path] | None) -> tuple[Path | None, tuple[Path, ...]]:
    """The first cut's log, and those of further cuts."""
    return (logs[0], tuple(logs[1:])) if logs else (None, ())
