"""The commands around the robot: verify an exported folder, and see how an executed cut went."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.cli.completion import scan_ids
from pipelines.cli.terminal import Json, out, print_json, print_text, this_project
from pipelines.report.words import number
from stages.runtime.exit_codes import EXIT_FAILED


def add_robot_commands(app: typer.Typer) -> None:
    """Add them."""
    for command in (verify, executed):
        app.command()(command)


def verify(
    folder: Annotated[Path, typer.Argument(help="An exported folder, or a copy of it anywhere.")],
    as_json: Json = False,
) -> None:
    """Check an exported cut again: hashes, limits, space, loads, cut. Needs no scan, no project and no network.

    Exit code 0 if everything holds, 1 if the motion must not be run.
    """
    from stages.export.verify import verify as verify_folder

    certificate = verify_folder(folder)
    if as_json:
        print_json(certificate.plain())
    else:
        for check in certificate.failed:
            print_text(out, check.sentence())
        print_text(out, certificate.verdict)
    if not certificate.certified:
        raise typer.Exit(EXIT_FAILED)


def executed(
    scan: Annotated[
        str, typer.Argument(help="Id of the scan whose motion was executed.", autocompletion=scan_ids)
    ],
    log: Annotated[Path, typer.Option(help="The log that run_cut.py wrote.")],
    air: Annotated[
        Path | None, typer.Option(help="The log of the air cut: its force is subtracted as tare.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Put the measured force of an executed cut beside the predicted one, and say whether the prediction held."""
    from pipelines.scans.project import known_scans
    from stages.export.executed import compare_executed

    project = this_project()
    known_scans(project, [scan])
    found: dict[str, Any] = compare_executed(project.scan_dir(scan), log, air)
    if as_json:
        print_json(found)
        return
    table = Table("force", "measured", "predicted")
    for word in ("mean", "peak"):
        measured, predicted = found[f"{word}_measured_n"], found[f"{word}_predicted_n"]
        table.add_row(f"{word} [N]", number(measured), number(predicted))
    out.print(table)
    print_text(out, found["verdict"])
    print_text(out, f"Curves: {found['table']} and {found['picture']}")
    if found["calibrate_with"]:
        print_text(out, f"To fit the parameters to this cut as well:\n  {found['calibrate_with']}")
