"""Did it work, and what do I get?"""

from typing import Any

from pipelines.dvc.template import read_template
from pipelines.report.blocks import Block, Figures, Note, Section, Table
from pipelines.report.parameters import at_bounds, certainty
from pipelines.report.scan_data import ScanData
from pipelines.report.sections.decision import decision
from pipelines.report.words import MISSING, number, percent, unseen

FINISHED = ("converged", "at the log's noise")
"""Ends of a fit that need no remedy."""

SMALL_ERROR, FAIR_ERROR = 0.1, 0.25
"""NMAE up to which the fit is called good, and fair [-]."""


def summary(data: ScanData) -> Section:
    """Verdict, the figures that matter, warnings, and how long it took."""
    blocks: list[Block] = [*decision(data), _verdict(data), Figures(_figures(data))]
    blocks += [Note(text, "warning") for text in warnings(data)]
    blocks.append(_stages(data))
    return Section("summary", "Did it work, and what do I get?", blocks)


def _verdict(data: ScanData) -> Note:
    run, stages = data.run, [entry.name for entry in read_template(data.project.template)]
    if run.ok is False:
        where = f"The run failed in the stage {run.failed_stage}" if run.failed_stage else "The run failed"
        return Note(f"{where}. {run.error} What follows is from the stages that are there.", "bad")
    missing = [stage for stage in stages if not data.metrics(stage)]
    if missing:
        return Note(f"Not everything has run yet. Without results: {', '.join(missing)}.", "warning")
    return Note("All stages ran.", "good")


def _figures(data: ScanData) -> list[tuple[str, str, str]]:
    fit, found, export = data.metrics("calibrate"), data.metrics("optimize"), data.metrics("export")
    items: list[tuple[str, str, str]] = []
    if found:
        remark = (
            f"{number(found.get('mean_force_vertical_n'))} N vertical → "
            f"{number(found.get('mean_force_optimized_n'))} N; at least {percent(found.get('confirmed_reduction'))} "
            "in finer simulations"
        )
        name = f"mean force over {found.get('mean_over', 'time')} saved"
        items.append((name, percent(found.get("reduction")), remark))
    if fit:
        items.append(
            (
                "error of the fit (NMAE)",
                percent(fit.get("nmae")),
                f"{unseen(fit)}; {fit.get('outcome', '')}",
            )
        )
    if export:
        items.append(
            (
                "certificate",
                str(export.get("outcome", MISSING)),
                _counts(data, export),
            )
        )
        if export.get("certified"):
            items.append(
                ("files for the robot", str(export.get("path", MISSING)), "see the certificate below")
            )
    return items


def _counts(data: ScanData, export: dict[str, Any]) -> str:
    """How many checks passed, failed and were not run."""
    checks = data.cut.get("certificate", {}).get("checks", [])
    failed, skipped = len(export.get("failed") or []), sum(check.get("passed") is None for check in checks)
    passed = int(export.get("checks") or 0) - failed - skipped
    return f"{passed} checks passed, {failed} failed" + (f", {skipped} not run" if skipped else "")


def warnings(data: ScanData) -> list[str]:
    """What a person should know before trusting the result."""
    fit, found, export = data.metrics("calibrate"), data.metrics("optimize"), data.metrics("export")
    out = []
    if data.metrics("clean").get("warning"):
        out.append(f"Scan: {data.metrics('clean')['warning']}")
    if data.metrics("ingest") and not data.metrics("ingest").get("samples"):
        out.append("The scan has no force log: all parameters are nominal ones, and forces are guesses.")
    elif fit.get("remedy") and fit.get("outcome") not in FINISHED:
        out.append(f"Calibration: {fit.get('outcome')}. {fit['remedy']}")
    out += [f"Calibration: {text}" for text in (at_bounds(data), certainty(data)) if text]
    if found and found.get("confirmed_reduction") is None:
        out.append("Optimisation: not all of the finer simulations finished, so the saving is not confirmed.")
    elif found and _is_less(found.get("confirmed_reduction"), 0.0):
        out.append("Optimisation: in a finer simulation the optimised motion saves nothing.")
    out += [f"Certificate: {sentence}." for sentence in export.get("failed") or []]
    for stage in ("tetrahedralize", "tetrahedralize_half"):
        if data.metrics(stage).get("seeded") is False:
            out.append(
                f"{stage}: the mesher drew random numbers without a seed, so another run gives another mesh. "
                "`scan2cut doctor` says what to do."
            )
    for stage in ("simulate", "replay"):
        outcome = str(data.metrics(stage).get("outcome", ""))
        if outcome and not outcome.startswith("The knife finished its motion"):
            out.append(f"{stage}: {outcome}")
    return out + [f"Not readable: {problem}" for problem in data.problems]


def _is_less(value: Any, limit: float) -> bool:
    return isinstance(value, int | float) and value <= limit


def _stages(data: ScanData) -> Table:
    run = data.run
    rows = []
    for entry in read_template(data.project.template):
        seen = run.stages.get(entry.name, {})
        result = seen.get("outcome") or ("failed" if entry.name == run.failed_stage else MISSING)
        metrics = data.metrics(entry.name)
        figure = f"{entry.key_figure} = {number(metrics.get(entry.key_figure or ''))}" if metrics else MISSING
        rows.append(
            (
                entry.name,
                result,
                _seconds(seen.get("seconds")),
                _seconds(run.computed_s.get(entry.name)),
                figure,
            )
        )
    header = ("stage", "in the last run", "took", "when last computed", "key figure")
    when = f"Last run finished {run.finished}." if run.finished else "No run was recorded."
    return Table(header, rows, f"Stages. {when}", folded=True)


def _seconds(value: Any) -> str:
    return f"{value:.1f} s" if isinstance(value, int | float) else MISSING
