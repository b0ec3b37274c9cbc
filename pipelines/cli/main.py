"""Entry point of the `scan2cut` command line; each command imports heavy modules only when it runs."""

import io
import os
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pipelines.cli.cuts import (
    add_cut_commands,
    add_library_commands,
    add_robot_commands,
)
from pipelines.cli.operations import add_operation_commands
from pipelines.cli.run import add_run_commands
from pipelines.cli.show import add_show_commands
from pipelines.cli.slices import add_slice_commands
from pipelines.cli.terminal import (
    DEBUG_VARIABLE,
    Json,
    err,
    out,
    print_error,
    print_json,
    print_note,
    scan_ids,
    this_project,
)
from pipelines.dvc.commands import redact
from pipelines.dvc.stopping import STOP, StoppedError, end_process, say_stopped
from stages.runtime.errors import EXIT_BAD_INPUT, EXIT_FAILED, InputError, error_text, is_bad_input

if TYPE_CHECKING:
    from pipelines.scans.status import StageStatus

app = typer.Typer(
    name="scan2cut",
    help="Turn a 3D scan of a fruit and the force log of one cut into a certified robot motion for the next cut.",
    epilog="Exit codes: 0 success, 1 failure, 2 input rejected, 130 stopped. See also: scan2cut COMMAND --help",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(requested: bool) -> None:
    if requested:
        out.print(f"scan2cut {version('scan2cut')}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """Declare the global options; main() removes `--debug` first, so that it works at any position."""


add_run_commands(app)


@app.command()
def status(
    scans: Annotated[
        list[str] | None, typer.Argument(help="Scan ids.", show_default="all", autocompletion=scan_ids)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show which stages are fresh, stale, running or have never run; of more than 3 scans a line each."""
    project = this_project()
    from pipelines.scans.status import read_status

    with err.status("comparing files with dvc.lock"):
        rows = read_status(project, scans or [], print_note)
    if as_json:
        print_json(
            [{"scan": r.scan, "stage": r.stage, "state": r.state, "reasons": list(r.reasons)} for r in rows]
        )
        return
    if not rows:
        out.print("No scans registered. Register one with: scan2cut run FILE")
        return
    if len({row.scan for row in rows}) > _MOST_IN_DETAIL:
        out.print(_one_line_each(rows))
        return
    table = Table("scan", "stage", "state", "reason")
    colours = {"fresh": "green", "stale": "yellow", "never run": "dim", "running": "cyan"}
    for row in rows:
        table.add_row(row.scan, row.stage, f"[{colours[row.state]}]{row.state}", "\n".join(row.reasons))
    out.print(table)


_MOST_IN_DETAIL = 3
"""Scans of which `status` shows every stage."""


def _one_line_each(rows: Sequence["StageStatus"]) -> Table:
    """Return a table of scans: how many stages are fresh, which run, which are stale, why the first of them is."""
    table = Table("scan", "fresh", "running", "stale", "never run", "first reason")
    for scan, of_scan in groupby(rows, key=lambda row: row.scan):
        stages: dict[str, list[StageStatus]] = {"fresh": [], "running": [], "stale": [], "never run": []}
        for row in of_scan:
            stages[row.state].append(row)
        reasons = [reason for row in stages["stale"] for reason in row.reasons]
        table.add_row(
            scan,
            f"[green]{len(stages['fresh'])}",
            f"[cyan]{', '.join(row.stage for row in stages['running'])}",
            f"[yellow]{', '.join(row.stage for row in stages['stale'])}",
            f"[dim]{len(stages['never run']) or ''}",
            reasons[0] if reasons else "",
        )
    return table


@app.command()
def stages(as_json: Json = False) -> None:
    """List all stages and the artifacts they write."""
    project = this_project()
    from pipelines.dvc.pipeline_file import read_template, upstream
    from stages.runtime.catalogue import artifacts_of

    entries = read_template(project.template)
    if as_json:
        print_json(
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
    table = Table("stage", "artifact", "content")
    for entry in entries:
        for row, artifact in enumerate(artifacts_of(entry.name)):
            table.add_row(entry.name if row == 0 else "", artifact.path, artifact.meaning)
        table.add_section()
    out.print(table)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check this machine: packages, libraries, device, disk. Exit code 1 if something required is missing."""
    project = this_project()
    from pipelines.cli.doctor import examine

    findings = []
    with err.status("checking") as line:
        for finding in examine(project):
            findings.append(finding)
            line.update(f"checked {finding.part}")
    if as_json:
        print_json([{"part": f.part, "verdict": f.verdict, "detail": f.detail} for f in findings])
    else:
        table = Table("component", "", "detail")
        marks = {
            "ok": "[green]ok",
            "missing": "[red]missing",
            "outdated": "[yellow]outdated",
            "optional": "[dim]optional",
        }
        for finding in findings:
            table.add_row(finding.part, marks[finding.verdict], finding.detail)
        out.print(table)
    if any(finding.verdict == "missing" for finding in findings):
        raise typer.Exit(EXIT_FAILED)


@app.command()
def sample(
    folder: Annotated[Path, typer.Argument(help="Output folder.")] = Path("sample"), as_json: Json = False
) -> None:
    """Write the bundled sample: a synthetic scan (with noise, holes and a stray part) and its force logs."""
    project = this_project()
    from pipelines.cli.show import write_sample

    paths = write_sample(project, folder)
    if as_json:
        print_json([str(path) for path in paths])
        return
    for path in paths:
        out.print(str(path), highlight=False)


@app.command()
def validate(
    file: Annotated[Path, typer.Argument(help="Artifact, e.g. data/scans/<id>/clean/faces.parquet.")],
    as_json: Json = False,
) -> None:
    """Validate an artifact: columns, types, units, checksum."""
    from pipelines.cli.show import validate_file

    valid = validate_file(file)
    if as_json:
        print_json({"artifact": valid.artifact.name, "rows": valid.rows, "metadata": valid.metadata})
        return
    rows = "" if valid.rows is None else f", {valid.rows} rows"
    out.print(f"{file} is a valid {valid.artifact.name}{rows}: {valid.artifact.meaning}.", highlight=False)


add_operation_commands(app)
add_cut_commands(app)
add_library_commands(app)
add_show_commands(app)
add_robot_commands(app)
add_slice_commands(app)


def main() -> None:
    """Run the command line; print errors as messages and exit with a code."""
    if "--debug" in sys.argv:
        sys.argv = [argument for argument in sys.argv if argument != "--debug"]
        os.environ[DEBUG_VARIABLE] = "1"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file name need not be valid UTF-8
    try:
        app()
    except StoppedError:
        pass  # reported below
    except Exception as error:  # noqa: BLE001 -- process boundary: any error becomes a message
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        is_input = isinstance(error, InputError)
        print_error(redact(error_text(error)) if is_input else _message(error))
        sys.exit(EXIT_BAD_INPUT if is_input or is_bad_input(error) else EXIT_FAILED)
    finally:
        if STOP.is_set():  # don't wait for anything, in particular not for Prefect's threads
            say_stopped()
            end_process()


def _message(error: Exception) -> str:
    from pipelines.runs.run_summary import message_of

    text = message_of(error)
    unexpected = text.startswith(f"{type(error).__name__}: ")
    return f"{text} (run with --debug for the traceback)" if unexpected else text


if __name__ == "__main__":
    main()
