"""The command that predicts a cut which the fit has not seen."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.cli.terminal import Json, err, out, print_json, print_text, scan_ids, this_project
from pipelines.report.page import number
from stages.runtime.errors import EXIT_FAILED

# The commands around the robot: verify an exported folder, and see how an executed cut went.


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
    from stages.export.certificate import verify as verify_folder

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
    from pipelines.project import known_scans
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


# The commands of the library of calibrated cuts.


app = typer.Typer(no_args_is_help=True, help="What earlier cuts lead to expect of a material.")


def add_library_commands(parent: typer.Typer) -> None:
    """Add them."""
    parent.add_typer(app, name="library")


@app.command()
def add(
    scan: Annotated[str, typer.Argument(help="Id of a scan that was calibrated on a log.")],
    as_json: Json = False,
) -> None:
    """Add a scan's calibrated cut to the library of its material: the next fits start from it."""
    from pipelines.scans.cuts import add_cut

    found = add_cut(this_project(), scan)
    if as_json:
        print_json(found)
        return
    values = found["entry"]["values"]
    said = ", ".join(f"{name} {value:.4g}" for name, (value, _) in values.items()) or "nothing new"
    print_text(out, f"{scan} is in the library of {found['material']} ({found['cuts']} cuts): {said}.")
    print_text(
        out,
        f"Other scans of this material are fitted again at their next run, as what is expected has changed. Commit "
        f"{found['file']}.",
    )


# The command that designs the first cut of a fruit.


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
    from pipelines.scans.cuts import probe as design

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
    from pipelines.scans.cuts import predict_log

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
