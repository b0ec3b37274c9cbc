"""The command that designs the first cut of a fruit."""

from typing import Annotated

import typer
from rich.table import Table

from pipelines.cli.completion import scan_ids
from pipelines.cli.terminal import Json, err, out, print_json, print_text, this_project
from stages.runtime.exit_codes import EXIT_FAILED


def add_probe_command(app: typer.Typer) -> None:
    """Add it."""
    app.command()(probe)


def probe(
    scan: Annotated[
        str, typer.Argument(help="Id of a scan that was run up to precut.", autocompletion=scan_ids)
    ],
    candidates: Annotated[
        int, typer.Option(min=1, max=100, help="How many slicing motions to compare with the vertical cut.")
    ] = 4,
    as_json: Json = False,
) -> None:
    """Design the first cut whose log tells most about the saving, certify it and write its files for the robot.

    Before any log: with the material that the library leads to expect. Exit code 1 if no motion could be certified.
    """
    from pipelines.scans.probe import probe as design

    with err.status("probe") as shown:
        found = design(
            this_project(), scan, candidates, lambda share, what: shown.update(f"{100 * share:.0f} %: {what}")
        )
    if as_json:
        print_json(found)
    else:
        table = Table("first cut", "blade drawn", "mean force", "saving then known to")
        table.add_row("none: before any log", "", "", _points(found["band_before"]))
        for cut in found["cuts"]:
            name = cut["name"] + (" (chosen)" if cut["name"] == found["chosen"] else "")
            table.add_row(
                name,
                f"{1e3 * cut['drawn_m']:.0f} mm",
                f"{cut['mean_force_n']:.1f} N",
                _points(cut["band"]),
            )
        out.print(table)
        print_text(
            out,
            f"Saving of slicing on the expected material: {100 * found['saving']:.0f} %, the 90 % band reaches "
            f"{_points(found['band_before'])} now, {_points(found['band_after_vertical'])} after a vertical cut and "
            f"{_points(found['band_after_chosen'])} after this one. Computed, never run on an arm.",
        )
        print_text(out, found["verdict"])
        print_text(out, f"Files: {found['folder']}")
    if not found["certified"]:
        raise typer.Exit(EXIT_FAILED)


def _points(band: float) -> str:
    return f"± {100.0 * band:.1f} points"
