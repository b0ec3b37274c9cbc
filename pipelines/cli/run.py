"""Commands that run a scan: run, calibrate, export."""

import os
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from disect_sim.parameters import MATERIALS
from pipelines.cli.terminal import (
    DEBUG_VARIABLE,
    Json,
    OnlyJson,
    err,
    materials,
    out,
    print_error,
    print_note,
    print_text,
    robots,
    scan_ids,
    stage_names,
    stop_soon_on_signals,
    this_project,
)
from pipelines.dvc.stopping import say_stopped
from stages.runtime.errors import EXIT_INTERRUPTED, InputError
from stages.runtime.files import parse_yaml
from stages.runtime.params import shown

if TYPE_CHECKING:
    from pipelines.project import Project
    from pipelines.runs.run_summary import RunResult
    from pipelines.scans.register import Request


def parse_overrides(settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Parse `--set` values: ['clean.unit=mm'] → {'clean': {'unit': 'mm'}}; values are YAML."""
    overrides: dict[str, dict[str, Any]] = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        stage, dot, key = path.strip().partition(".")
        if not (equals and dot and stage and key):
            raise InputError(
                f"--set {shown(setting)} is invalid. It must be stage.parameter=value, e.g. clean.unit=mm."
            )
        try:
            overrides.setdefault(stage, {})[key] = parse_yaml(text)
        except yaml.YAMLError as error:
            raise InputError(
                f"--set {shown(path)}: {shown(text)} is not valid YAML. Give a number, a word or a list."
            ) from error
    return overrides


_EXPORT = "export"
"""Target stage of `scan2cut export`."""
_AIR_HELP = "Log of the same motion without contact, as tare; may be repeated."
_MATERIAL_HELP = f"Material: {', '.join(MATERIALS)}."
Force = Annotated[bool, typer.Option("--force", help="Run every stage, even if fresh.")]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the log of each stage.")]
_Air = Annotated[list[Path] | None, typer.Option(help=_AIR_HELP, show_default="air* beside the log")]
_Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Override a parameter for this scan, e.g. clean.unit=mm.")
]


def add_run_commands(app: typer.Typer) -> None:
    """Add `run`, `calibrate` and `export` to the command line."""
    for command in (run, calibrate, export):
        app.command()(command)


def run(
    scan: Annotated[
        Path,
        typer.Argument(
            help="Scan file (PLY, OBJ, STL, OFF, glTF, or a PCD/XYZ point cloud), or the id of a registered scan.",
        ),
    ],
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Force log of a cut of this fruit; repeat for several cuts."),
    ] = None,
    air: _Air = None,
    material: Annotated[
        str | None, typer.Option(help=_MATERIAL_HELP, show_default="apple", autocompletion=materials)
    ] = None,
    surface: Annotated[
        Path | None, typer.Option(help="Triangle mesh to cut along, instead of the plane.")
    ] = None,
    settings: _Settings = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(help="Use a profile for this scan, e.g. knife/chef (profiles/knife/chef.yaml)."),
    ] = None,
    scan_id: Annotated[
        str | None, typer.Option("--id", help="Id of the scan.", show_default="from the file name")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Discard this scan's earlier --set values.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the files registered under this id.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            help="Run only this stage and its upstream stages.",
            show_default="all stages",
            autocompletion=stage_names,
        ),
    ] = None,
    force: Force = False,
    verbose: _Verbose = False,
    as_json: Json = False,
) -> None:
    """Register a scan and bring all its stages up to date.

    Copies the scan to data/scans/<id>/ and tracks it with DVC. Fresh stages are skipped.
    """
    project, only_json = this_project(), OnlyJson() if as_json else None
    from pipelines.scans.register import Request, assumed_material, registered_scan

    def request() -> Request:
        source, registered_id = registered_scan(project, str(scan))
        name = scan_id or registered_id
        overrides = parse_overrides(settings or [])
        if profile:
            from pipelines.workspace import profile_overrides

            overrides = profile_overrides(project, profile, overrides)
        first, further = _cuts(log)
        if material is None and registered_id is None and name not in project.scan_ids():
            print_note(
                f"Material: {assumed_material(source)}, assumed. Give --material for another one ("
                f"{', '.join(MATERIALS)})."
            )
        return Request(
            source,
            first,
            surface,
            name,
            material,
            overrides,
            reset=reset,
            replace=replace,
            further=further,
            air=tuple(air or ()),
        )

    result = run_requested(project, request, force=force, verbose=verbose, target=target)
    _print_run(project, result, only_json)


def export(
    scan: Annotated[str, typer.Argument(help="Id of a registered scan.", autocompletion=scan_ids)],
    robot: Annotated[
        str | None,
        typer.Option(
            help="Robot arm, see arm.robot in params.yaml.",
            show_default="the scan's",
            autocompletion=robots,
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Export again, even if fresh.")] = False,
    verbose: _Verbose = False,
    as_json: Json = False,
) -> None:
    """Write and certify the files for the robot: run the stage export and its upstream stages.

    With another --robot the motion is optimised again within that robot's limits; the calibration is kept. The choice
    is saved in scan.yaml, like --set arm.robot=NAME.
    """
    project, only_json = this_project(), OnlyJson() if as_json else None
    overrides = {} if robot is None else {"arm": {"robot": robot}}
    _print_run(
        project,
        _run_registered(project, scan, overrides, force=force, verbose=verbose, target=_EXPORT),
        only_json,
    )


def run_again(project: "Project", scan: str, overrides: dict[str, dict[str, Any]], *, quiet: bool) -> None:
    """Run a registered scan with further settings, print the result unless quiet, and exit with its exit code."""
    result = _run_registered(project, scan, overrides, force=False, verbose=False, target=None)
    if quiet:
        raise typer.Exit(result.exit_code)
    _print_run(project, result, None)


def _run_registered(
    project: "Project",
    scan: str,
    overrides: dict[str, dict[str, Any]],
    *,
    force: bool,
    verbose: bool,
    target: str | None,
) -> "RunResult":
    from pipelines.scans.register import Request, known_raw_file

    def request() -> Request:
        return Request(known_raw_file(project, scan), scan_id=scan, overrides=overrides)

    return run_requested(project, request, force=force, verbose=verbose, target=target)


def _print_run(project: "Project", result: "RunResult", only_json: OnlyJson | None) -> None:
    """Print the result of a run as text or JSON, then exit with its exit code."""
    from pipelines.cli.terminal import run_table
    from pipelines.report.scan_data import ScanData
    from pipelines.report.tables import certainty
    from pipelines.runs.run_summary import headlines

    if only_json:
        only_json.print(result.as_json())
    elif not result.error:
        out.print(run_table(project, result))
        for line in headlines({report.name: report.metrics for report in result.stages}):
            print_text(out, line.replace("**", "").replace("`", ""))
        determined = certainty(ScanData(project, result.scan or ""))
        if determined:
            print_text(out, determined)
        print_text(out, f"Report: {result.report}")
    else:
        _print_failure(result)
        if result.report:
            print_text(err, f"Report: {result.report}")
    raise typer.Exit(result.exit_code)


def calibrate(
    scan: Annotated[
        str,
        typer.Argument(
            help="Id of a registered scan, its cut mesh (data/scans/ID/precut), or a scan file.",
            autocompletion=scan_ids,
        ),
    ],
    log: Annotated[
        list[Path] | None,
        typer.Option(help="Force log of a cut; repeat for several cuts.", show_default="the scan's"),
    ] = None,
    air: _Air = None,
    material: Annotated[
        str | None, typer.Option(help=_MATERIAL_HELP, show_default="the scan's", autocompletion=materials)
    ] = None,
    settings: _Settings = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the logs registered for this scan.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Fit again, even if fresh.")] = False,
    verbose: _Verbose = False,
    as_json: Json = False,
) -> None:
    """Fit the simulator's parameters to a force log: run the stage calibrate and its upstream stages."""
    project, only_json = this_project(), OnlyJson() if as_json else None
    from pipelines.cli.terminal import run_table
    from pipelines.runs.run_summary import CALIBRATE, calibration_json
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

    result = run_requested(project, request, force=force, verbose=verbose, target=CALIBRATE)
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


def run_requested(
    project: "Project",
    request: "Callable[[], Request]",
    *,
    force: bool,
    verbose: bool,
    target: str | None = None,
) -> "RunResult":
    """Register and run the requested scan and show its progress; record a failure in the result, never raise."""
    from pipelines.cli.terminal import ProgressBars
    from pipelines.runs.progress_lines import ProgressLines
    from pipelines.runs.run_request import run_request
    from pipelines.runs.run_summary import RunResult

    result = RunResult()
    if project.is_workspace:
        print_note(f"Workspace: {project.root}")
    try:
        stop_soon_on_signals()
        with ProgressBars(err) if err.is_terminal else ProgressLines(print_note) as bars:
            run_request(project, request(), result, bars, force=force, verbose=verbose, target=target)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- reported by the caller
        result.fail(error)
    if result.exception is not None and os.environ.get(DEBUG_VARIABLE):
        print_text(err, "".join(traceback.format_exception(result.exception)))
    return result


def _cuts(logs: list[Path] | None) -> tuple[Path | None, tuple[Path, ...]]:
    """Split the logs into that of the first cut and those of further cuts."""
    return (logs[0], tuple(logs[1:])) if logs else (None, ())
