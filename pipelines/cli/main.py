"""The command line `scan2cut`. Heavy modules are imported by the commands that need them."""

import io
import os
import sys
import traceback
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pipelines.cli.cuts import (
    add_library_commands,
    add_predict_command,
    add_probe_command,
    add_robot_commands,
)
from pipelines.cli.operations import add_operation_commands
from pipelines.cli.run import add_run_commands
from pipelines.cli.show import add_show_commands
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
from stages.runtime.errors import EXIT_BAD_INPUT, EXIT_FAILED, InputError, disk_sentence, is_refused

app = typer.Typer(
    name="scan2cut",
    help="From a 3D scan of a fruit and the force log of one cut to a certified robot motion for the next cut.",
    epilog="Exit codes: 0 done, 2 bad input, 130 stopped, 1 anything else. More: scan2cut COMMAND --help",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        out.print(f"scan2cut {version('scan2cut')}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the full traceback of an error.")] = False,
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and end."),
    ] = False,
) -> None:
    """`--debug` is taken out of the arguments by main(), so that it works anywhere on the line."""


add_run_commands(app)


@app.command()
def status(
    scans: Annotated[
        list[str] | None, typer.Argument(help="Scan ids.", show_default="all", autocompletion=scan_ids)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show which stages are fresh, stale or were never run (DVC's answer)."""
    project = this_project()
    from pipelines.scans.status import read_status

    with err.status("asking DVC"):
        rows = read_status(project, scans or [], print_note)
    if as_json:
        print_json(
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
    table = Table("stage", "artifact", "what it is")
    for entry in entries:
        for row, artifact in enumerate(artifacts_of(entry.name)):
            table.add_row(entry.name if row == 0 else "", artifact.path, artifact.meaning)
        table.add_section()
    out.print(table)


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check this machine: versions, device, disk, missing parts. Exit code 1 if a needed part is missing."""
    project = this_project()
    from pipelines.cli.doctor import examine

    findings = []
    with err.status("looking") as line:
        for finding in examine(project):
            findings.append(finding)
            line.update(f"looked at {finding.part}")
    if as_json:
        print_json([{"part": f.part, "verdict": f.verdict, "detail": f.detail} for f in findings])
    else:
        table = Table("part", "", "detail")
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
    folder: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("sample"), as_json: Json = False
) -> None:
    """Write the bundled sample, a synthetic fruit scan with noise, holes and a stray piece."""
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
    file: Annotated[Path, typer.Argument(help="An artifact, e.g. data/scans/<id>/clean/faces.parquet.")],
    as_json: Json = False,
) -> None:
    """Check a file against the contract of the artifact it claims to be."""
    from pipelines.cli.show import validate_file

    valid = validate_file(file)
    if as_json:
        print_json({"artifact": valid.artifact.name, "rows": valid.rows, "metadata": valid.metadata})
        return
    rows = "" if valid.rows is None else f", {valid.rows} rows"
    out.print(f"{file} is a valid {valid.artifact.name}{rows}: {valid.artifact.meaning}.", highlight=False)


add_operation_commands(app)
add_predict_command(app)
add_probe_command(app)
add_library_commands(app)
add_show_commands(app)
add_robot_commands(app)


def main() -> None:
    """Run the command line; errors become sentences and exit codes."""
    if "--debug" in sys.argv:
        sys.argv = [argument for argument in sys.argv if argument != "--debug"]
        os.environ[DEBUG_VARIABLE] = "1"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a file's name need not be text
    try:
        app()
    except StoppedError:
        pass  # said below
    except Exception as error:  # noqa: BLE001 -- the boundary of the process: any error becomes a sentence
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        is_input = isinstance(error, InputError)
        print_error(redact(disk_sentence(error) or (str(error) if is_input else _in_words(error))))
        sys.exit(EXIT_BAD_INPUT if is_input or is_refused(error) else EXIT_FAILED)
    finally:
        if STOP.is_set():  # nothing is waited for any more, Prefect's threads least of all
            say_stopped()
            end_process()


def _in_words(error: Exception) -> str:
    from pipelines.runs.run_summary import is_sentence

    return str(error) if is_sentence(error) else f"{type(error).__name__}: {error} (use --debug for more)"


if __name__ == "__main__":
    main()
