"""The command line `scan2cut`. Heavy modules are imported by the commands that need them."""

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from disect_sim.errors import InputError
from pipelines.cli import operations
from pipelines.cli.show import add_show_commands
from pipelines.cli.terminal import Json, err, out
from pipelines.cli.terminal import OnlyJson as _OnlyJson
from pipelines.cli.terminal import print_json as _print_json
from pipelines.cli.terminal import this_project as _project
from pipelines.dvc.redact import redact
from stages.runtime.disk_error import disk_sentence

EXIT_FAILED, EXIT_BAD_INPUT = 1, 2
DEBUG_VARIABLE = "SCAN2CUT_DEBUG"

app = typer.Typer(
    name="scan2cut",
    help="From a raw 3D scan of a fruit to a cut-ready mesh and a simulated cut.",
    epilog="Exit codes: 0 done, 2 bad input, 1 anything else. `scan2cut COMMAND --help` tells more.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
) -> None:
    """`--debug` is taken out of the arguments by main(), so that it works anywhere on the line."""


@app.command()
def run(
    scan: Annotated[
        Path, typer.Argument(help="Raw scan: PLY, OBJ, STL, OFF, glTF, or a PCD/XYZ point cloud.")
    ],
    log: Annotated[Path | None, typer.Option(help="Force log of one cut of the same fruit.")] = None,
    air: Annotated[
        list[Path] | None,
        typer.Option(
            help="No-contact run of the log's motion, may be repeated [default: air* beside the log]."
        ),
    ] = None,
    material: Annotated[
        str | None, typer.Option(help="apple, potato, cucumber or banana [default: apple].")
    ] = None,
    surface: Annotated[
        Path | None, typer.Option(help="Triangle mesh to cut along instead of the plane.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a parameter for this scan, e.g. clean.unit=mm."),
    ] = None,
    scan_id: Annotated[
        str | None, typer.Option("--id", help="Name of the scan [default: from the file].")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Forget this scan's earlier --set values.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the file registered under this id.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Run every stage even if it is fresh.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the log of every stage.")] = False,
    as_json: Json = False,
) -> None:
    """Register a scan and bring all its stages up to date.

    The scan is copied to data/scans/<id>/ and put under DVC. Stages that are fresh are skipped.
    """
    project = _project()
    only_json = _OnlyJson() if as_json else None
    from pipelines.cli.overrides import parse_overrides
    from pipelines.cli.progress_bars import ProgressBars
    from pipelines.cli.run_table import run_table
    from pipelines.runs.run_request import RunResult, run_request
    from pipelines.runs.summary import headlines
    from pipelines.scans.register import Request

    result = RunResult()
    try:
        request = Request(
            scan,
            log,
            surface,
            scan_id,
            material,
            parse_overrides(settings or []),
            reset=reset,
            replace=replace,
            air=tuple(air or ()),
        )
        with ProgressBars(err) as bars:
            run_request(project, request, result, bars, force=force, verbose=verbose)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- reported below, in the form the user asked for
        result.fail(error)
    if result.exception is not None and os.environ.get(DEBUG_VARIABLE):
        err.print("".join(traceback.format_exception(result.exception)), markup=False, highlight=False)
    if only_json:
        only_json.print(result.as_json())
    elif result.error:
        _say(result.error)
        if result.report:
            err.print(f"More: {result.report}", markup=False, highlight=False, soft_wrap=True)
    else:
        out.print(run_table(project, result))
        for line in headlines({report.name: report.metrics for report in result.stages}):
            out.print(line.replace("**", "").replace("`", ""), markup=False, highlight=False, soft_wrap=True)
        out.print(f"Report: {result.report}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(result.exit_code)


@app.command()
def calibrate(
    scan: Annotated[
        str,
        typer.Argument(
            help="Id of a registered scan, its cut mesh (data/scans/ID/precut), or a raw scan file."
        ),
    ],
    log: Annotated[Path | None, typer.Option(help="Force log of one cut [default: the scan's].")] = None,
    air: Annotated[
        list[Path] | None,
        typer.Option(help="No-contact run of the log's motion, may be repeated."),
    ] = None,
    material: Annotated[
        str | None, typer.Option(help="apple, potato, cucumber or banana [default: the scan's].")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a parameter for this scan, e.g. calibrate.dt_s=0.002."),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the log registered for this scan.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Fit again even if nothing changed.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show the log of every stage.")] = False,
    as_json: Json = False,
) -> None:
    """Fit the simulator's parameters to a force log: the stage calibrate and what it needs, nothing else."""
    project = _project()
    only_json = _OnlyJson() if as_json else None
    from pipelines.cli.overrides import parse_overrides
    from pipelines.cli.progress_bars import ProgressBars
    from pipelines.cli.run_table import run_table
    from pipelines.runs.run_request import CALIBRATE, RunResult, calibration_json, run_request
    from pipelines.scans.register import Request, registered_scan

    result = RunResult()
    try:
        source, scan_id = registered_scan(project, scan)
        request = Request(
            source,
            log,
            scan_id=scan_id,
            material=material,
            overrides=parse_overrides(settings or []),
            replace=replace,
            air=tuple(air or ()),
        )
        with ProgressBars(err) as bars:
            run_request(project, request, result, bars, force=force, verbose=verbose, target=CALIBRATE)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 -- reported below, in the form the user asked for
        result.fail(error)
    if result.exception is not None and os.environ.get(DEBUG_VARIABLE):
        err.print("".join(traceback.format_exception(result.exception)), markup=False, highlight=False)
    told = calibration_json(result)
    if only_json:
        only_json.print(told)
    elif result.error:
        _say(result.error)
    else:
        out.print(run_table(project, result))
        out.print(f"{told['outcome']}: {told['remedy']}", highlight=False)
    raise typer.Exit(result.exit_code)


@app.command()
def status(
    scans: Annotated[list[str] | None, typer.Argument(help="Scan ids [default: all].")] = None,
    as_json: Json = False,
) -> None:
    """Show which stages are fresh, stale or were never run (DVC's answer)."""
    project = _project()
    from pipelines.scans.status import read_status

    with err.status("asking DVC"):
        rows = read_status(project, scans or [])
    if as_json:
        _print_json(
            [{"scan": r.scan, "stage": r.stage, "state": r.state, "reasons": list(r.reasons)} for r in rows]
        )
        return
    if not rows:
        out.print("No scan is registered yet. Start with: scan2cut run FILE")
        return
    table = Table("scan", "stage", "state", "why")
    colours = {"fresh": "green", "stale": "yellow", "never run": "dim", "running": "cyan"}
    for row in rows:
        table.add_row(row.scan, row.stage, f"[{colours[row.state]}]{row.state}", "\n".join(row.reasons))
    out.print(table)


@app.command()
def stages(as_json: Json = False) -> None:
    """List the stages and the artifacts they write."""
    project = _project()
    from pipelines.dvc.template import read_template, upstream
    from stages.runtime.catalogue import artifacts_of

    entries = read_template(project.template)
    if as_json:
        _print_json(
            [
                {
                    "name": e.name,
                    "after": upstream(e, entries),
                    "artifacts": [a.path for a in artifacts_of(e.name)],
                }
                for e in entries
            ]
        )
        return
    table = Table("stage", "artifact", "what it is")
    for entry in entries:
        for row, artifact in enumerate(artifacts_of(entry.name)):
            table.add_row(entry.name if row == 0 else "", artifact.path, artifact.meaning)
        table.add_section()
    out.print(table)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check this machine: versions, device, disk, missing parts. Exit code 1 if a needed part is missing."""
    project = _project()
    from pipelines.cli.doctor import examine

    findings = []
    with err.status("looking") as line:
        for finding in examine(project):
            findings.append(finding)
            line.update(f"looked at {finding.part}")
    if as_json:
        _print_json([{"part": f.part, "verdict": f.verdict, "detail": f.detail} for f in findings])
    else:
        table = Table("part", "", "detail")
        marks = {"ok": "[green]ok", "missing": "[red]missing", "optional": "[dim]optional"}
        for finding in findings:
            table.add_row(finding.part, marks[finding.verdict], finding.detail)
        out.print(table)
    if any(finding.verdict == "missing" for finding in findings):
        raise typer.Exit(EXIT_FAILED)


@app.command()
def sample(
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("sample"), as_json: Json = False
) -> None:
    """Write the bundled sample, a synthetic fruit scan with noise, holes and a stray piece."""
    project = _project()
    from pipelines.cli.sample import write_sample

    paths = write_sample(project, folder)
    if as_json:
        _print_json([str(path) for path in paths])
        return
    for path in paths:
        out.print(str(path), highlight=False)


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(help="An artifact, e.g. data/scans/<id>/clean/faces.parquet.")],
    as_json: Json = False,
) -> None:
    """Check a file against the contract of the artifact it claims to be."""
    from pipelines.cli.validate import validate_file

    valid = validate_file(file)
    if as_json:
        _print_json({"artifact": valid.artifact.name, "rows": valid.rows, "metadata": valid.metadata})
        return
    rows = "" if valid.rows is None else f", {valid.rows} rows"
    out.print(f"{file} is a valid {valid.artifact.name}{rows}: {valid.artifact.meaning}.", highlight=False)


operations.add_to(app)
add_show_commands(app)


def _say(sentence: str) -> None:
    err.print("[red]error:[/red] ", end="")
    err.print(sentence, markup=False, highlight=False, soft_wrap=True)


def main() -> None:
    """Run the command line; errors become sentences and exit codes."""
    if "--debug" in sys.argv:
        sys.argv = [argument for argument in sys.argv if argument != "--debug"]
        os.environ[DEBUG_VARIABLE] = "1"
    try:
        app()
    except Exception as error:  # noqa: BLE001 -- the boundary of the process: any error becomes a sentence
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        is_input = isinstance(error, InputError)
        plain = str(error) if is_input else f"{type(error).__name__}: {error} (use --debug for more)"
        _say(redact(disk_sentence(error) or plain))
        sys.exit(EXIT_BAD_INPUT if is_input else EXIT_FAILED)


if __name__ == "__main__":
    main()
