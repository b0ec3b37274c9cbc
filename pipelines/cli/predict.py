"""The command that predicts a cut which the fit has not seen."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.cli.completion import scan_ids
from pipelines.cli.terminal import Json, out, print_json, print_text, this_project


def add_predict_command(app: typer.Typer) -> None:
    """Add it."""
    app.command()(predict)


def predict(
    scan: Annotated[
        str,
        typer.Argument(help="Id of a scan that was calibrated on a log of its own.", autocompletion=scan_ids),
    ],
    log: Annotated[Path, typer.Option(help="Force log of another cut of the same fruit.")],
    air: Annotated[
        list[Path] | None, typer.Option(help="No-contact run of that log, may be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Predict the force of a cut that the fit has not seen, and compare it with the cut's log.

    The baselines beside it need no model: repeat the known cut's force at the same height, or take the start values.
    """
    from pipelines.scans.prediction import predict_log

    found = predict_log(this_project(), scan, log, air)
    if as_json:
        print_json(found)
        return
    table = Table("prediction of the force", "mean error", "")
    rows = (
        ("from this scan's fit", "nmae", "as it is"),
        ("", "nmae_with_amplitude", f"with its amplitude known ({found['amplitude']:.2f})"),
        ("repeat the known cut", "nmae_repeated", "at the same height"),
        ("start values", "nmae_nominal", "no log used"),
    )
    for what, key, note in rows:
        table.add_row(what, _percent(found[key]), note)
    out.print(table)
    print_text(
        out,
        f"Band of 90 %: {_percent(found['coverage'])} of the measured samples are inside; it reaches "
        f"± {_percent(found['band_half_width'])} ({found['draws']} possible materials drawn).",
    )
    print_text(out, f"Curves: {found['table']} and {found['picture']}")


def _percent(value: Any) -> str:
    return f"{100.0 * float(value):.1f} %"
