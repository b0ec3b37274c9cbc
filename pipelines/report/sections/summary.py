"""Did it work, and what do I get?"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.dvc.pipeline_file import read_template
from pipelines.report.drawings import share_bars
from pipelines.report.page import (
    MISSING,
    Block,
    Drawing,
    Figures,
    Note,
    Section,
    Table,
    number,
    percent,
    saving_band,
    unseen,
)
from pipelines.report.scan_data import ScanData
from pipelines.report.tables import at_bounds, certainty
from pipelines.scans.register import changed_limits
from stages.runtime.files import read_mapping
from stages.runtime.scan_file import PARAMS_FILE_NAME

# Safety limits that this scan does not take from params.yaml.


def limits(data: ScanData) -> Section:
    """Which limits of motion, clearance and robot differ from those of params.yaml."""
    params = read_mapping(data.project.root / PARAMS_FILE_NAME)
    rows = [
        (name, "the robot's own" if shipped is None else str(shipped), str(own))
        for name, shipped, own in changed_limits(params, data.scan_yaml)
    ]
    if not rows:
        note = Note("All limits of motion, clearance and robot are those of params.yaml.")
        return Section("limits", "Limits", [note])
    note = Note(
        f"{len(rows)} of the limits of motion, clearance and robot are not those of params.yaml. The certificate was "
        "made with the values of this scan.",
        "warning",
    )
    return Section("limits", "Limits", [note, Table(("parameter", "params.yaml", "this scan"), rows)])


# Go or no go: what the certificate decided, and how near its limits the motion is.


_SHOWN = 5
_NEVER_RUN = "Computed, never run on an arm: rehearse it with the air cut."
_PARTED = "share of the cut that is parted"


def _decision(data: ScanData) -> list[Block]:
    """GO or NO-GO with the reason, the figures behind it, and the tightest margins as bars."""
    export = data.metrics("export")
    if not export:
        return []
    checks = data.cut.get("certificate", {}).get("checks", [])
    blocks: list[Block] = [_go(export)]
    figures = _decision_figures(data, checks)
    if figures:
        blocks.append(Figures(figures))
    used = tightest(checks)
    if used:
        rows = [
            (check["name"], check["value"], check["limit"], check["unit"], share) for check, share in used
        ]
        header = ("check", "value", "limit", "unit", "used of the limit")
        caption = "The five checks with the least room; 100 % is the limit."
        bars = share_bars([(check["name"], share) for check, share in used])
        blocks.append(Drawing(bars, caption, Table(header, rows), wide=True))
    return blocks


def tightest(
    checks: Sequence[Mapping[str, Any]], count: int = _SHOWN
) -> list[tuple[Mapping[str, Any], float]]:
    """The checks that use most of their limits, and how much [-]; more than 1 is beyond."""
    shares = [(check, share) for check in checks if (share := used_share(check)) is not None]
    return sorted(shares, key=lambda pair: -pair[1])[:count]


def used_share(check: Mapping[str, Any]) -> float | None:
    """How much of its limit a measured check uses; None where there is no limit to use."""
    value, limit, rule = check.get("value"), check.get("limit"), check.get("rule")
    if not (isinstance(value, int | float) and isinstance(limit, int | float)) or limit <= 0.0:
        return None
    if rule == "<=":
        return max(0.0, value / limit)
    if rule == ">=":
        return limit / value if value > 0.0 else float("inf")
    return None


def _go(export: Mapping[str, Any]) -> Note:
    verdict = str(export.get("verdict", ""))
    if export.get("certified"):
        return Note(f"GO. {verdict} {_NEVER_RUN}", "good")
    return Note(f"NO-GO. {verdict} There are no files for the robot.", "bad")


def _decision_figures(data: ScanData, checks: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    export, fit = data.metrics("export"), data.metrics("calibrate")
    items: list[tuple[str, str, str]] = []
    if export.get("cut_fraction") is not None:
        left = next((str(check["note"]) for check in checks if check["name"] == _PARTED), "")
        items.append(("cut through, simulated", percent(export["cut_fraction"]), left))
    if export.get("peak_force_n") is not None:
        remark = f"predicted; {unseen(fit)}"
        items.append(("peak force", f"{number(export['peak_force_n'])} N", remark))
    if export.get("deflection_m") is not None:
        remark = "at the stated joint stiffness"
        if export.get("end_lift_m") is not None:
            remark += f"; at the end of the cut the force holds it {1e3 * export['end_lift_m']:.1f} mm above its path"
        items.append(("edge gives way", f"{1e3 * export['deflection_m']:.1f} mm", remark))
    return items


_FINISHED = ("converged", "at the log's noise")
"""Ends of a fit that need no remedy."""

_SMALL_ERROR, _FAIR_ERROR = 0.1, 0.25
"""NMAE up to which the fit is called good, and fair [-]."""


def summary(data: ScanData) -> Section:
    """Verdict, the figures that matter, warnings, and how long it took."""
    blocks: list[Block] = [*_decision(data), _verdict(data), Figures(_figures(data))]
    blocks += [Note(text, "warning") for text in _warnings(data)]
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
        remark = ". ".join([*saving_band(found), remark])
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


def _warnings(data: ScanData) -> list[str]:
    """What a person should know before trusting the result."""
    fit, found, export = data.metrics("calibrate"), data.metrics("optimize"), data.metrics("export")
    out = []
    if data.metrics("clean").get("warning"):
        out.append(f"Scan: {data.metrics('clean')['warning']}")
    if data.metrics("ingest") and not data.metrics("ingest").get("samples"):
        out.append("The scan has no force log: all parameters are nominal ones, and forces are guesses.")
    elif fit.get("remedy") and fit.get("outcome") not in _FINISHED:
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
