"""Commands about a sliced fruit: slice."""

import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from pipelines.cli.run import parse_overrides, run_requested
from pipelines.cli.terminal import (
    Json,
    OnlyJson,
    out,
    print_error,
    print_note,
    print_text,
    scan_ids,
    this_project,
)
from stages.runtime.errors import EXIT_DONE, EXIT_INTERRUPTED, EXIT_REFUSED, InputError

if TYPE_CHECKING:
    from pipelines.project import Project
    from pipelines.slices.plan import SlicePlan
    from stages.shared.slicing import Wanted

_LENGTH = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(mm|cm|m)\s*")
_UNITS = {"mm": 1e-3, "cm": 1e-2, "m": 1.0}
_AXES = {"x": (1.0, 0.0, 0.0), "z": (0.0, 0.0, 1.0)}
_LENGTH_HELP = "a length with its unit, e.g. 5mm"


def add_slice_commands(app: typer.Typer) -> None:
    """Add `slice` to the command line."""
    app.command("slice")(slice_fruit)


def _parse_length(text: str, option: str) -> float:
    """Return a length with unit in metres."""
    match = _LENGTH.fullmatch(text)
    if not match or not math.isfinite(float(match[1])):
        raise InputError(
            f"{option} is {text[:80]!r}. It must be {_LENGTH_HELP}. Give a number and one of mm, cm, m."
        )
    return float(match[1]) * _UNITS[match[2]]


def _parse_normal(text: str) -> tuple[float, float, float]:
    """Return three numbers separated by commas."""
    try:
        x, y, z = (float(part) for part in text.split(","))
    except ValueError as error:
        raise InputError(
            f"--normal is {text[:80]!r}. It must be three numbers separated by commas. Give e.g. --normal 1,0,0."
        ) from error
    return x, y, z


def slice_fruit(
    scan: Annotated[
        str, typer.Argument(help="Id of a registered scan, or a scan file.", autocompletion=scan_ids)
    ],
    thickness: Annotated[str | None, typer.Option(help="Thickness of the slices, e.g. 5mm.")] = None,
    count: Annotated[int | None, typer.Option(help="Number of equal pieces, instead of --thickness.")] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", help="First plane, from the fruit's first point.", show_default="its first point"
        ),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="End of the slices.", show_default="the fruit's last point")
    ] = None,
    axis: Annotated[
        str | None,
        typer.Option(help="Direction from slice to slice, in the cutting frame: x or z.", show_default="x"),
    ] = None,
    normal: Annotated[str | None, typer.Option(help="Any other horizontal direction, e.g. 1,0,1.")] = None,
    half: Annotated[
        bool, typer.Option("--half", help="Slice the half of the first cut that lies on the board.")
    ] = False,
    log: Annotated[list[Path] | None, typer.Option(help="Force log of a cut of this fruit.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Override a parameter for this fruit.")
    ] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan-only", help="Only divide the fruit: table and picture.")
    ] = False,
    across: Annotated[
        str | None,
        typer.Option("--dice", help="Also plan cuts across the slices at this spacing; needs --plan-only."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Slices computed side by side.", show_default="by cores and memory")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Run every stage of the slices, even if fresh.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Slice a fruit: divide it, then optimise and certify the motion of every cut, and join them for the arm.

    Without a thickness or count, an existing plan is brought up to date: it goes on where it was stopped.
    """
    project, only_json = this_project(), OnlyJson() if as_json else None
    from pipelines.runs.run_summary import CALIBRATE
    from pipelines.scans.register import Request, registered_scan
    from pipelines.slices.plan import FOLDER, PICTURE, dice_plan, make_plan, read_plan, write_plan

    wanted = _wanted(thickness, count, start, end, axis, normal)
    spacing = None if across is None else _parse_length(across, "--dice")
    if spacing is not None and not plan_only:
        raise InputError(
            "--dice is given without --plan-only. Cuts across the slices are planned and drawn, not optimised. Add "
            "--plan-only."
        )

    def request(*, first: bool) -> Request:
        source, scan_id = registered_scan(project, scan)
        logs = tuple(log or ()) if first else ()
        overrides = parse_overrides(settings or []) if first else {}
        return Request(
            source, logs[0] if logs else None, scan_id=scan_id, overrides=overrides, further=logs[1:]
        )

    def up_to(target: str, *, first: bool = False) -> str:
        result = run_requested(
            project, lambda: request(first=first), force=False, verbose=False, target=target
        )
        if result.error or result.scan is None:
            print_error(result.error or "")
            raise typer.Exit(result.exit_code)
        return result.scan

    fruit = up_to("halve" if half else "clean", first=True)
    if wanted is None:
        old = read_plan(project, fruit)
        plan = make_plan(project, fruit, old.wanted, old.of)
    else:
        plan = make_plan(project, fruit, wanted, "half" if half else "whole")
    removed = write_plan(project, plan)
    picture = project.scan_dir(fruit) / FOLDER / PICTURE
    if not only_json:
        _print_division(plan)
        print_text(out, f"Picture: {picture.relative_to(project.root)}")
        if removed:
            print_text(out, f"Removed slices of the former plan: {', '.join(removed)}.")
    if plan_only:
        diced = None if spacing is None else dice_plan(project, plan, spacing)
        if only_json:
            only_json.print({**_division_json(plan), **({} if diced is None else {"dice": diced})})
        elif diced is not None:
            print_text(
                out,
                f"Dice: {diced['pieces']} pieces by {len(plan.scans)} and {len(diced['across_m'])} cuts, "
                f"{diced['whole']} of them at least nine tenths of the largest ({1e6 * diced['largest_m3']:.2f} cm³). "
                f"Planned only. Picture: {diced['picture']}",
            )
        return
    up_to(CALIBRATE)
    from pipelines.report.slices_page import build_plan_page
    from pipelines.slices.run import make_programme, refused_slices, run_slices

    results = run_slices(project, plan, print_note, workers=workers, force=force)
    refused = refused_slices(project, plan)
    refused |= {k: result.error for k, result in enumerate(results, start=1) if result.error}
    stopped = any(result.exit_code == EXIT_INTERRUPTED for result in results)
    folder, verdict = None, "; ".join(f"slice {k}: {why}" for k, why in refused.items())
    if not refused and not stopped:
        print_note("programme: join and certify")
        folder, verdict = make_programme(project, plan)
    go = folder is not None and folder.name == "certified"
    page = build_plan_page(project, plan.fruit).relative_to(project.root)
    if only_json:
        shown = None if folder is None else str(folder.relative_to(project.root))
        slices = [result.as_json() for result in results]
        only_json.print(
            {**_division_json(plan), "go": go, "verdict": verdict, "folder": shown, "slices": slices}
        )
    else:
        out.print(_results(plan, results))
        print_text(out, f"{'GO' if go else 'NO-GO'}. {verdict}")
        if go and folder is not None:
            print_text(out, f"Programme: {folder.relative_to(project.root)}/run_slices.py")
        print_text(out, f"Report: {page}")
    worst = max((result.exit_code for result in results), default=EXIT_DONE)
    if worst or not go:
        raise typer.Exit(worst or EXIT_REFUSED)


def _wanted(
    thickness: str | None,
    count: int | None,
    start: str | None,
    end: str | None,
    axis: str | None,
    normal: str | None,
) -> "Wanted | None":
    """Return what the options ask for; None if they ask for the existing plan."""
    from stages.shared.slicing import Wanted

    if not any(option is not None for option in (thickness, count, start, end, axis, normal)):
        return None
    if axis is not None and normal is not None:
        raise InputError("--axis and --normal are given. Both set the direction. Give one of them.")
    if axis is not None and axis not in _AXES:
        raise InputError(
            f"--axis is {axis[:80]!r}. It must be x (across the blade) or z (along it); the knife cuts vertically. "
            "Choose one, or another direction with --normal."
        )
    direction = _parse_normal(normal) if normal is not None else _AXES[axis or "x"]
    return Wanted(
        thickness_m=None if thickness is None else _parse_length(thickness, "--thickness"),
        count=count,
        from_m=0.0 if start is None else _parse_length(start, "--from"),
        to_m=None if end is None else _parse_length(end, "--to"),
        normal=direction,
    )


def _print_division(plan: "SlicePlan") -> None:
    """Print the table of the pieces."""
    table = Table(
        "piece",
        "from [mm]",
        "to [mm]",
        "thickness [mm]",
        "cut area [cm²]",
        "volume [cm³]",
        "",
        title=f"{plan.fruit} ({plan.of}): {len(plan.scans)} cuts, {len(plan.division.pieces)} pieces",
    )
    for piece in plan.division.pieces:
        table.add_row(
            str(piece.number),
            f"{1e3 * piece.from_m:.1f}",
            f"{1e3 * piece.to_m:.1f}",
            f"{1e3 * piece.thickness_m:.1f}",
            f"{1e4 * piece.area_m2:.1f}" if piece.area_m2 else "",
            f"{1e6 * piece.volume_m3:.1f}",
            "" if piece.area_m2 else "what remains",
        )
    out.print(table)
    for sentence in plan.division.not_cut_sentences:
        print_text(out, sentence)


def _division_json(plan: "SlicePlan") -> dict[str, Any]:
    """Return the object that --json prints of a division."""
    from dataclasses import asdict

    return {
        "fruit": plan.fruit,
        "of": plan.of,
        "scans": list(plan.scans),
        "pieces": [asdict(piece) for piece in plan.division.pieces],
        "not_cut": [asdict(one) for one in plan.division.not_cut],
    }


def executed_slice(
    project: "Project",
    fruit: str,
    number: int,
    log: Path,
    air: Path | None,
    *,
    replan_wanted: bool,
    as_json: bool,
) -> None:
    """Learn from one executed slice, print what is known now, and plan the remaining slices anew where it pays."""
    only_json = OnlyJson() if as_json else None
    from pipelines.report.slices_page import build_plan_page
    from pipelines.slices.learning import add_executed, replan

    known = add_executed(project, fruit, number, log, air)
    page = build_plan_page(project, fruit).relative_to(project.root)
    row, now = known["executed"][str(number)], known["amplitude"]
    if only_json:
        only_json.print(known)
    else:
        print_text(out, known["comparison"]["verdict"])
        print_text(
            out,
            f"Slice {number}: {row['measured_n']:.1f} N measured, {row['predicted_n']:.1f} N predicted. After "
            f"{now['slices']} slices the fruit needs {now['factor']:.2f} of the calibrated force (90 % interval "
            f"{now['factor_low']:.2f} to {now['factor_high']:.2f}); {100 * now['spread']:.0f} % from cut to cut; the "
            f"next slice {now['next_low']:.2f} to {now['next_high']:.2f}.",
        )
        print_text(out, f"Picture: {known['picture']}, report: {page}")
    if not known["replan"] or not replan_wanted:
        if known["replan"]:
            print_note(f"Planning anew would pay: {known['replan']}. Omit --no-replan.")
        return
    print_note(
        f"Planning slices {known['remaining'][0]} to {known['remaining'][-1]} anew: {known['replan']}."
    )
    replan(project, fruit, now, known["remaining"])
    slice_fruit(fruit, as_json=as_json)


def _results(plan: "SlicePlan", results: list[Any]) -> Table:
    table = Table("slice", "scan", "result", "mean force [N]", "peak [N]", "cut [s]", "time [s]")
    for number, (scan, result) in enumerate(zip(plan.scans, results, strict=True), start=1):
        motion: dict[str, Any] = next((r.metrics for r in result.stages if r.name == "optimize"), {})
        figures = [
            motion.get(k) for k in ("mean_force_optimized_n", "peak_force_optimized_n", "whole_duration_s")
        ]
        table.add_row(
            str(number),
            scan,
            result.in_words,
            *("" if value is None else f"{value:.1f}" for value in figures),
            f"{sum(stage.seconds for stage in result.stages):.1f}",
        )
    return table
