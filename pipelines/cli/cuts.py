"""Commands about single cuts, materials and knives: verify, executed, materials, library, knife, probe, predict, ..."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from disect_sim.parameters import MATERIALS
from pipelines.cli.terminal import Json, err, out, print_json, print_text, scan_ids, this_project
from pipelines.cli.terminal import materials as complete_materials
from pipelines.report.page import number
from stages.runtime.errors import EXIT_FAILED, InputError, did_you_mean

if TYPE_CHECKING:
    from stages.shared.knives.knife_file import DescribedKnife


def add_cut_commands(app: typer.Typer) -> None:
    """Add `predict`, `probe`, `core` and `tradeoff` to the command line."""
    for command in (predict, probe, core, tradeoff):
        app.command()(command)


def add_robot_commands(app: typer.Typer) -> None:
    """Add `verify` and `executed` to the command line."""
    for command in (verify, executed):
        app.command()(command)


def verify(
    folder: Annotated[Path, typer.Argument(help="Exported folder, or a copy of it.")],
    public_key: Annotated[
        Path | None, typer.Option(help="Public Ed25519 key (PEM) by which the export must be signed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Verify an exported cut or programme: hashes, limits, collisions, loads, cut. Needs no project and no network.

    Exit code 0 if every check passes, 1 if the motion must not be executed.
    """
    from stages.export.certificate import verify as verify_folder
    from stages.export.programme import PROGRAMME, verify_programme

    is_programme = (folder / PROGRAMME).is_file()
    certificate = (verify_programme if is_programme else verify_folder)(folder, public_key)
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
    log: Annotated[Path, typer.Option(help="Log written by run_cut.py.")],
    air: Annotated[Path | None, typer.Option(help="Log of the air cut, subtracted as tare.")] = None,
    slice_number: Annotated[
        int | None, typer.Option("--slice", help="Number of the slice, of a fruit with a plan of slices.")
    ] = None,
    replan: Annotated[
        bool,
        typer.Option("--replan/--no-replan", help="With --slice: plan the remaining slices anew if it pays."),
    ] = True,
    as_json: Json = False,
) -> None:
    """Compare the measured force of an executed cut with its prediction.

    With --slice the fruit's amplitude is learnt from all slices so far, and the remaining ones are planned anew where
    that pays.
    """
    from pipelines.project import known_scans
    from stages.export.executed import compare_executed

    project = this_project()
    known_scans(project, [scan])
    if slice_number is not None:
        from pipelines.cli.slices import executed_slice

        executed_slice(project, scan, slice_number, log, air, replan_wanted=replan, as_json=as_json)
        return
    comparison: dict[str, Any] = compare_executed(project.scan_dir(scan), log, air)
    if as_json:
        print_json(comparison)
        return
    table = Table("force", "measured", "predicted")
    for statistic in ("mean", "peak"):
        measured, predicted = comparison[f"{statistic}_measured_n"], comparison[f"{statistic}_predicted_n"]
        table.add_row(f"{statistic} [N]", number(measured), number(predicted))
    out.print(table)
    print_text(out, comparison["verdict"])
    print_text(out, f"Curves: {comparison['table']} and {comparison['picture']}")
    if comparison["calibrate_with"]:
        print_text(out, f"To include this cut in the fit, run:\n  {comparison['calibrate_with']}")


app = typer.Typer(no_args_is_help=True, help="Manage the library of calibrated cuts (priors by material).")


def add_library_commands(parent: typer.Typer) -> None:
    """Add `materials` and the sub-commands of `library` and `knife` to the command line."""
    parent.command()(materials)
    parent.add_typer(app, name="library")
    knives = typer.Typer(invoke_without_command=True, help="List the known knives, or show one.")
    knives.callback()(knife_list)
    knives.command("show")(show_knife)
    parent.add_typer(knives, name="knife")


def materials(
    material: Annotated[
        str, typer.Argument(help=f"{', '.join(MATERIALS)}.", autocompletion=complete_materials)
    ] = "apple",
    as_json: Json = False,
) -> None:
    """Print the priors of a material with their sources: for any fruit, and updated by the library's cuts."""
    from disect_sim.parameters import parameter_info
    from stages.shared.library.library import (
        NINETY,
        PRIORS,
        SHARE_RATIOS,
        body_source,
        cuts_of,
        expected,
        sources_of,
    )

    if material not in MATERIALS:
        raise InputError(
            f"{material[:80]!r} is not a known material.{did_you_mean(material, MATERIALS)} Known: "
            f"{', '.join(MATERIALS)}. Choose one of them."
        )
    priors, sources = expected(tuple(PRIORS["priors"]), material, "edge"), sources_of(material)
    literature = [row for row in PRIORS["literature"] if row["material"] in (material, "any")]
    if as_json:
        rows = {
            name: {"median": e.median, "spread_log": e.spread, "cuts": e.cuts, **sources[name]}
            for name, e in priors.items()
        }
        print_json({"material": material, "priors": rows, "literature": literature})
        return
    table = Table(
        "parameter", "prior median", "90 % interval", "unit", "cuts", "source of the prior without cuts"
    )
    for name, e in priors.items():
        factor = math.exp(NINETY * e.spread)
        unit = "-" if name in SHARE_RATIOS else parameter_info(name).unit
        interval = f"{e.median / factor:.3g} to {e.median * factor:.3g}"
        table.add_row(name, f"{e.median:.3g}", interval, unit, str(e.cuts), sources[name]["source"])
    out.print(table)
    body = MATERIALS[material]
    print_text(
        out,
        f"Body: Young's modulus {body.young_pa:.4g} Pa, Poisson's ratio {body.poisson:g}, density "
        f"{body.density_kg_m3:g} kg/m³ ({body_source(material)}).",
    )
    for cut in cuts_of(material):
        print_text(out, f"Library: {cut['name']}: {cut['source']}")
    for row in literature:
        print_text(out, f"Literature: {row['quantity']}: {row['value']} ({row['source']})")


def knife_list(context: typer.Context, as_json: Json = False) -> None:
    """List the known knives: shipped ones, and those of this project in profiles/knife."""
    if context.invoked_subcommand is not None:
        return
    from pipelines.workspace import known_knives

    project = this_project()
    knives = known_knives(project.root)
    if as_json:
        print_json([{"name": name, **_knife_row(knife)} for name, knife in knives.items()])
        return
    table = Table("name", "length", "height", "spine", "mass with holder", "")
    for name, knife in knives.items():
        blade = knife.blade
        lengths = (f"{1e3 * value:g} mm" for value in (blade.length_m, blade.height_m, blade.spine_m))
        table.add_row(name, *lengths, f"{knife.mass_kg:g} kg", knife.about)
    out.print(table)
    print_text(
        out,
        f"Yours: {project.root / 'profiles' / 'knife'}/NAME.yaml, then 'scan2cut run SCAN --set cut.knife=NAME', or "
        "cut: {knife: NAME} in a workspace's settings.yaml for all scans.",
    )


def show_knife(
    name: Annotated[str, typer.Argument(help="Name of a known knife ('scan2cut knife' lists them).")],
    as_json: Json = False,
) -> None:
    """Show a knife: its numbers as a table, and a picture of it in the holder of this project's cell."""
    from pipelines.workspace import known_knives, resolved_knife
    from stages.export.export_picture import knife_in_cell
    from stages.runtime.files import write_bytes_atomic
    from stages.runtime.params import load_params
    from stages.runtime.scan_file import PARAMS_FILE_NAME
    from stages.runtime.stage_io import encode_png

    project = this_project()
    resolved_knife(project.root, name)  # rejects an unknown one
    knife = known_knives(project.root)[name]
    picture = project.root / "build" / "knives" / f"{name}.png"
    params = load_params(project.root / PARAMS_FILE_NAME).export
    pixels = knife_in_cell(knife, params)
    picture.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_atomic(picture, encode_png(pixels))
    row = _knife_row(knife)
    if as_json:
        print_json({"name": name, **row, "picture": str(picture)})
        return
    table = Table(name, "", "")
    for key, value in row.items():
        table.add_row(key, str(value), _MEANING.get(key, ""))
    out.print(table)
    print_text(out, f"Picture: {picture}")


_MEANING = {
    "length_m": "length of the blade",
    "height_m": "from the edge to the spine",
    "spine_m": "thickness at the spine",
    "edge_m": "thickness where the flanks end",
    "tip_m": "height of the small wedge that closes the section",
    "belly_radius_m": "radius of a circular edge; none: straight or as edge_curve",
    "edge_curve": "edge as pairs of place along the blade and height",
    "tilt_deg": "turn of the blade in its holder; positive lowers the +z end",
    "mass_kg": "knife and fixture, sent to the arm as its load",
    "com_m": "their centre of mass in the flange's frame",
    "label": "how library, motion and certificate name it",
}
"""What the numbers of a knife mean."""


def _knife_row(knife: "DescribedKnife") -> dict[str, Any]:
    return {
        "about": knife.about,
        **asdict(knife.blade),
        "mass_kg": knife.mass_kg,
        "com_m": list(knife.com_m),
        "label": knife.label,
    }


@app.command()
def add(
    scan: Annotated[str, typer.Argument(help="Id of a scan calibrated on a force log.")],
    as_json: Json = False,
) -> None:
    """Add a calibrated cut to the library; it then informs the prior of later fits of its material."""
    from pipelines.scans.cuts import add_cut

    added = add_cut(this_project(), scan)
    if as_json:
        print_json(added)
        return
    values = added["entry"]["values"]
    summary = ", ".join(f"{name} {value:.4g}" for name, (value, _) in values.items()) or "no values"
    print_text(out, f"Added {scan} to the library of {added['material']} ({added['cuts']} cuts): {summary}.")
    print_text(
        out,
        f"The prior has changed, so other scans of this material are fitted again at their next run. Commit "
        f"{added['file']}.",
    )


@app.command("list")
def list_cuts(as_json: Json = False) -> None:
    """List the calibrated cuts of the library by material."""
    from pipelines.scans.cuts import library_cuts

    cuts = library_cuts(this_project())
    if as_json:
        print_json([{"material": material, **cut} for material, cut in cuts])
        return
    table = Table("name", "material", "knife", "edge toughness", "fit error", "source")
    for material, cut in cuts:
        value = cut["values"].get("edge_toughness")
        toughness = "not informed" if value is None else f"{value[0]:.0f} J/m²"
        table.add_row(cut["name"], material, cut["knife"], toughness, _percent(cut["nmae"]), cut["source"])
    out.print(table)


@app.command()
def show(name: Annotated[str, typer.Argument(help="Name of an entry.")], as_json: Json = False) -> None:
    """Show one entry: what its log alone says of each parameter."""
    from pipelines.scans.cuts import library_cut
    from stages.calibrate.material.posterior import unit_of
    from stages.shared.library.library import NINETY

    material, cut = library_cut(this_project(), name)
    if as_json:
        print_json({"material": material, **cut})
        return
    print_text(
        out, f"{name}: {material}, knife {cut['knife']}, fit error {_percent(cut['nmae'])}. {cut['source']}."
    )
    table = Table("parameter", "value", "90 % interval", "unit")
    for parameter, (value, spread) in cut["values"].items():
        factor = math.exp(NINETY * spread)
        interval = f"{value / factor:.3g} to {value * factor:.3g}"
        table.add_row(parameter, f"{value:.4g}", interval, unit_of(parameter))
    out.print(table)


@app.command()
def remove(name: Annotated[str, typer.Argument(help="Name of an entry.")], as_json: Json = False) -> None:
    """Remove an entry from the library; later fits of its material no longer use it."""
    from pipelines.scans.cuts import remove_cut

    removed = remove_cut(this_project(), name)
    if as_json:
        print_json(removed)
        return
    print_text(
        out,
        f"Removed {name}; {removed['cuts']} cuts of {removed['material']} remain. Commit {removed['file']}.",
    )


def probe(
    scan: Annotated[
        str, typer.Argument(help="Id of a scan that has been run up to precut.", autocompletion=scan_ids)
    ],
    candidates: Annotated[
        int, typer.Option(min=1, max=100, help="Number of slicing motions to compare with the vertical cut.")
    ] = 4,
    as_json: Json = False,
) -> None:
    """Design and certify the most informative first cut, and write its files for the robot.

    Needs no force log: the material is the prior from the library. Exit code 1 if no motion can be certified.
    """
    from pipelines.scans.cuts import probe as design

    with err.status("probe") as shown:
        designed = design(
            this_project(), scan, candidates, lambda share, step: shown.update(f"{100 * share:.0f} %: {step}")
        )
    if as_json:
        print_json(designed)
    else:
        table = Table("first cut", "stroke along the blade", "mean force", "uncertainty of the saving")
        table.add_row("none (prior only)", "", "", _points(designed["band_before"]))
        for cut in designed["cuts"]:
            name = cut["name"] + (" (chosen)" if cut["name"] == designed["chosen"] else "")
            table.add_row(
                name,
                f"{1e3 * cut['drawn_m']:.0f} mm",
                f"{cut['mean_force_n']:.1f} N",
                _points(cut["band"]),
            )
        out.print(table)
        print_text(
            out,
            f"Expected saving of slicing: {100 * designed['saving']:.0f} %. Its 90 % interval is "
            f"{_points(designed['band_before'])} now, {_points(designed['band_after_vertical'])} after a vertical cut "
            f"and {_points(designed['band_after_chosen'])} after this one. Simulated; never executed on a real arm.",
        )
        print_text(out, designed["verdict"])
        print_text(out, f"Files: {designed['folder']}")
    if not designed["certified"]:
        raise typer.Exit(EXIT_FAILED)


def tradeoff(
    scan: Annotated[str, typer.Argument(help="Id of a scan that has been run.", autocompletion=scan_ids)],
    duration: Annotated[
        float | None,
        typer.Option(
            help="Choose the motion with the least force that takes at most so many seconds, and run it."
        ),
    ] = None,
    force_limit: Annotated[
        float | None,
        typer.Option(
            help="Choose the shortest motion whose predicted peak is at most so many N, and run it."
        ),
    ] = None,
    slices: Annotated[
        bool, typer.Option("--slices", help="Of the fruit's plan of slices: a curve of whole programmes.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the least force for a given duration: a curve of certified motions of the scan's second cut.

    Durations include the final strokes, with --slices also the moves; the force of a programme is the mean of its
    cuts'. With --duration or --force-limit the chosen motion becomes the scan's own: it is certified and exported.
    `scan2cut run SCAN --reset` searches again, without any --set value; for slices, choose another point.
    """
    from pipelines.scans.tradeoff import pick_point, plan_tradeoff, settings_of, take_over
    from pipelines.scans.tradeoff import tradeoff as of_one_cut

    if duration is not None and force_limit is not None:
        raise InputError(
            "tradeoff: --duration and --force-limit are both given. One of them chooses. Drop one."
        )
    for name, value in (("--duration", duration), ("--force-limit", force_limit)):
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise InputError(f"{name} is {value:g}. It must be a positive number. Change it.")
    project = this_project()
    with err.status("tradeoff") as shown:
        found = (plan_tradeoff if slices else of_one_cut)(
            project, scan, lambda share, step: shown.update(f"{100 * share:.0f} %: {step}")
        )
    chosen = None
    if duration is not None or force_limit is not None:
        chosen = pick_point(found["points"], duration, force_limit)
    if not as_json:
        _print_tradeoff(found, chosen)
    elif chosen is None or not slices:  # a chosen programme prints its own object
        print_json({**found, "chosen": chosen})
    if chosen is None:
        return
    if slices:
        from pipelines.cli.slices import slice_fruit

        take_over(project, scan, chosen)
        slice_fruit(scan, as_json=as_json)
    else:
        from pipelines.cli.run import run_again

        run_again(project, scan, settings_of(chosen), quiet=as_json)


def _print_tradeoff(found: dict[str, Any], chosen: dict[str, Any] | None) -> None:
    table = Table("total duration", "mean force", "peak force", "less than the vertical cut", "verdict")
    for point in found["points"]:
        verdict = "certified" if point["certified"] else f"refused: {point['refused_by'][0]}"
        if not point["least_so_far"]:
            verdict += "; a shorter one needs less"
        table.add_row(
            f"{point['duration_s']:.2f} s" + (" (chosen)" if point is chosen else ""),
            f"{point['mean_force_n']:.1f} N",
            f"{point['peak_force_n']:.1f} N",
            _percent(point["reduction"]),
            verdict,
        )
    out.print(table)
    calibrated = "" if found["force_calibrated"] else " No force log of this fruit: forces are estimates."
    print_text(
        out,
        f"Each against the vertical cut of the same total duration.{calibrated} Picture: {found['picture']}",
    )


def _points(band: float) -> str:
    return f"± {100.0 * band:.1f} percentage points"


def core(
    scan: Annotated[
        str, typer.Argument(help="Id of a scan that has been run up to precut.", autocompletion=scan_ids)
    ],
    log: Annotated[list[Path], typer.Option(help="Force log of a vertical cut; may be repeated.")],
    offset_mm: Annotated[
        list[float] | None,
        typer.Option(help="Offset of each log's cut plane from the centre of mass; by default the scan's."),
    ] = None,
    turn_deg: Annotated[
        list[float] | None,
        typer.Option(help="Turn of the fruit about the vertical in each log; by default 0."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(help="core (tougher flesh) or stone (stops the knife); by default the material's."),
    ] = None,
    model_error: Annotated[float, typer.Option(help="Scale of the model error learnt from real logs.")] = 1.0,
    as_json: Json = False,
) -> None:
    """Find a core or stone from force logs, and plan the next cut around it.

    Prints centre, radius and toughness with 90 % intervals, the probability that there is one, cut planes that pass
    2 mm beside it and the height at which a blade stops 2 mm above it.
    """
    from pipelines.scans.cuts import find_core

    if kind not in (None, "core", "stone"):
        raise InputError(f"--kind is {kind!r}. It must be core or stone. Choose one.")
    if not 0.0 <= model_error <= 3.0:
        raise InputError(
            f"--model-error is {model_error:g}. It must be from 0 to 3; 1 is that of real logs. Change it."
        )
    found = find_core(
        this_project(), scan, log, offset_mm or [], turn_deg or [], kind=kind, model_error=model_error
    )
    if as_json:
        print_json(found)
        return
    table = Table(found["kind"], "mean", "90 % interval")
    for name in ("centre_x_m", "centre_y_m", "centre_z_m", "radius_m", "toughness_ratio"):
        if name in found:
            scale, unit = (1e3, " mm") if name.endswith("_m") else (1.0, "")
            mean, low, high = (scale * found[name][key] for key in ("mean", "low", "high"))
            table.add_row(name.removesuffix("_m"), f"{mean:.1f}{unit}", f"{low:.1f} to {high:.1f}{unit}")
    out.print(table)
    plan = found["plan"]
    beside = [plan[key] for key in ("beside_negative_m", "beside_positive_m") if plan[key] is not None]
    print_text(out, f"Probability that there is one: {100 * found['probability_present']:.0f} %.")
    print_text(
        out,
        f"Passes {1e3 * plan['distance_m']:g} mm beside it with {100 * plan['probability']:.0f} %: "
        + (
            " or ".join(f"clean.cut_offset_m={offset:.4f}" for offset in beside)
            or "no plane through the fruit"
        )
        + f". Stops above it: cut.board_clearance_m={plan['stop_above_m']:.4f}. Most informative next cut: offset "
        f"{1e3 * plan['next_look_m']:.1f} mm.",
    )
    print_text(out, f"To simulate with it: --set 'body.regions=[{json.dumps(found['region'])}]'")
    print_text(out, f"Files: {found['file']} and {found['picture']}")


def predict(
    scan: Annotated[
        str,
        typer.Argument(help="Id of a scan calibrated on a force log.", autocompletion=scan_ids),
    ],
    log: Annotated[
        list[Path], typer.Option(help="Force log of another cut of the same fruit; may be repeated.")
    ],
    air: Annotated[
        list[Path] | None,
        typer.Option(help="Log of the same motion without contact, as tare; may be repeated."),
    ] = None,
    knife: Annotated[
        str | None, typer.Option(help="Knife of these logs, if it was another than that of the fitted log.")
    ] = None,
    half: Annotated[
        bool, typer.Option("--half", help="These logs are of the half that the first cut left.")
    ] = False,
    offset_mm: Annotated[
        float, typer.Option(help="Distance of their cut plane from the scan's, along x of the cleaned scan.")
    ] = 0.0,
    as_json: Json = False,
) -> None:
    """Predict the force of cuts that the fit has not seen and compare it with their logs.

    Body and plane of the other cut are those of the first unless --half or --offset-mm says otherwise. Also prints two
    baselines, each with the same freedom of one scale factor: repeating the mean force of the fitted logs at the same
    height, and the simulation with the prior, without a log.
    """
    from pipelines.scans.cuts import Place, predict_log

    project, place = this_project(), Place(half, 1e-3 * offset_mm)
    predictions = [predict_log(project, scan, each, air, knife=knife, place=place) for each in log]
    if as_json:
        print_json(predictions[0] if len(predictions) == 1 else predictions)
        return
    for prediction in predictions:
        _print_prediction(prediction)


def _print_prediction(prediction: dict[str, Any]) -> None:
    print_text(
        out,
        f"{prediction['log']}, knife {prediction['knife']}; simulated: {prediction['place']}, "
        f"{prediction['boundary']}. Another place: --half, --offset-mm.",
    )
    table = Table("prediction", "mean error", "with its best scale factor", "")
    rows = (
        ("fitted model", "nmae", f"best factor {prediction['amplitude']:.2f}"),
        ("baseline: repeat the known cuts", "nmae_repeated", "mean of the fitted logs at the same height"),
        ("baseline: prior without a log", "nmae_nominal", "no log used"),
    )
    for name, key, note in rows:
        table.add_row(name, _percent(prediction[key]), _percent(prediction[f"{key}_with_amplitude"]), note)
    out.print(table)
    print_text(
        out,
        f"90 % band: ± {_percent(prediction['band_half_width'])}; {_percent(prediction['coverage'])} of the measured "
        f"samples are inside ({prediction['draws']} posterior draws).",
    )
    print_text(out, f"Curves: {prediction['table']} and {prediction['picture']}")


def _percent(value: Any) -> str:
    return f"{100.0 * float(value):.1f} %"
