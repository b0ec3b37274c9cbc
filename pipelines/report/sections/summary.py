"""Report sections `summary` (verdict, key figures, warnings) and `limits` (changed safety limits)."""

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
    figure,
    number,
    percent,
    refusal_of_run,
    saving_band,
    unseen,
)
from pipelines.report.scan_data import ScanData
from pipelines.report.tables import at_bounds, certainty
from pipelines.scans.register import changed_limits
from stages.runtime.files import read_mapping
from stages.runtime.scan_file import PARAMS_FILE_NAME


def limits(data: ScanData) -> Section:
    """Build the section on limits of motion, clearance and robot that the scan overrides."""
    params = read_mapping(data.project.root / PARAMS_FILE_NAME)
    rows = [
        (name, "the robot's" if shipped is None else str(shipped), str(override))
        for name, shipped, override in changed_limits(params, data.scan_yaml)
    ]
    if not rows:
        note = Note("All limits of motion, clearance and robot are as in params.yaml.")
        return Section("limits", "Limits", [note])
    note = Note(
        f"This scan overrides {len(rows)} limits of motion, clearance or robot in params.yaml. The certificate uses "
        "the scan's values.",
        "warning",
    )
    return Section("limits", "Limits", [note, Table(("parameter", "params.yaml", "this scan"), rows)])


# Decision: GO or NO-GO.


_SHOWN = 5
_NEVER_RUN = "Simulated only, never executed on a real arm: rehearse with the air cut."
_PARTED = "share of the cut that is parted"


def _decision(data: ScanData) -> list[Block]:
    """Return GO or NO-GO with reason, key figures and bars of the tightest limits."""
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
        header = ("check", "value", "limit", "unit", "utilisation")
        caption = "Utilisation of the five tightest limits."
        bars = share_bars([(check["name"], share) for check, share in used])
        blocks.append(Drawing(bars, caption, Table(header, rows), wide=True))
    return blocks


def tightest(
    checks: Sequence[Mapping[str, Any]], count: int = _SHOWN
) -> list[tuple[Mapping[str, Any], float]]:
    """Return the checks with the highest utilisation of their limits [-]; above 1 the limit is exceeded."""
    shares = [(check, share) for check in checks if (share := used_share(check)) is not None]
    return sorted(shares, key=lambda pair: -pair[1])[:count]


def used_share(check: Mapping[str, Any]) -> float | None:
    """Return the utilisation of a check's limit; None if it has no positive limit."""
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
    if export.get("certified") and export.get("force_calibrated") is False:
        return Note(f"GO only after a probe cut or explicit confirmation. {verdict} {_NEVER_RUN}", "warning")
    if export.get("certified"):
        return Note(f"GO. {verdict} {_NEVER_RUN}", "good")
    return Note(f"NO-GO. {verdict} No files were written for the robot.", "bad")


def _decision_figures(data: ScanData, checks: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    export, fit = data.metrics("export"), data.metrics("calibrate")
    items: list[tuple[str, str, str]] = []
    if export.get("cut_fraction") is not None:
        remark = next((str(check["note"]) for check in checks if check["name"] == _PARTED), "")
        items.append(("cut through (simulated)", percent(export["cut_fraction"]), remark))
    if export.get("peak_force_n") is not None:
        remark = f"predicted; {unseen(fit)}"
        items.append(("peak force", f"{number(export['peak_force_n'])} N", remark))
    if export.get("deflection_m") is not None:
        remark = "at the configured joint stiffness"
        if export.get("end_lift_m") is not None:
            remark += f"; at the end of the cut {1e3 * export['end_lift_m']:.1f} mm above its path"
        items.append(("deflection of the edge", f"{1e3 * export['deflection_m']:.1f} mm", remark))
    return items


_FINISHED = ("converged", "at the log's noise")
"""Outcomes of a fit that need no remedy."""

_SIMULATING = ("simulate", "transport", "optimize", "replay")
"""Stages whose metrics state what became of a simulated cut."""
_SMALL_ERROR, _FAIR_ERROR = 0.1, 0.25
"""NMAE up to which a fit is rated good, and fair [-]."""


def summary(data: ScanData) -> Section:
    """Build the summary: verdict, key figures, warnings and times."""
    blocks: list[Block] = [*_decision(data), _verdict(data), Figures(_figures(data))]
    blocks += [Note(text, "warning") for text in _warnings(data)]
    blocks.append(_stages(data))
    return Section("summary", "Summary", blocks)


def _verdict(data: ScanData) -> Note:
    run, stages = data.run, [entry.name for entry in read_template(data.project.template)]
    if run.ok is False:
        where = f"The run failed in stage {run.failed_stage}" if run.failed_stage else "The run failed"
        return Note(f"{where}. {run.error} The sections below show the results that exist.", "bad")
    missing = [stage for stage in stages if not data.metrics(stage)]
    if missing:
        return Note(f"Incomplete run. Stages without results: {', '.join(missing)}.", "warning")
    refused = refusal_of_run({stage: data.metrics(stage) for stage in stages})
    if refused:
        return Note(f"All stages completed, but there is no motion to run. {refused}", "bad")
    return Note("All stages completed.", "good")


def _figures(data: ScanData) -> list[tuple[str, str, str]]:
    fit, motion, export = data.metrics("calibrate"), data.metrics("optimize"), data.metrics("export")
    items: list[tuple[str, str, str]] = []
    if motion:
        remark = (
            f"vertical {number(motion.get('mean_force_vertical_n'))} N → optimised "
            f"{number(motion.get('mean_force_optimized_n'))} N; confirmed by finer simulations: at least "
            f"{percent(motion.get('confirmed_reduction'))}"
        )
        remark = ". ".join([*saving_band(motion), remark])
        name = f"reduction of the mean force over {motion.get('mean_over', 'time')}"
        items.append((name, percent(motion.get("reduction")), remark))
    if fit:
        items.append(
            (
                "fit error (NMAE)",
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
            items.append(("files for the robot", str(export.get("path", MISSING)), "see Certificate below"))
    return items


def _counts(data: ScanData, export: dict[str, Any]) -> str:
    """Return the numbers of checks that passed, failed and were not run."""
    checks = data.cut.get("certificate", {}).get("checks", [])
    failed, skipped = len(export.get("failed") or []), sum(check.get("passed") is None for check in checks)
    passed = int(export.get("checks") or 0) - failed - skipped
    return f"{passed} checks passed, {failed} failed" + (f", {skipped} not run" if skipped else "")


def _warnings(data: ScanData) -> list[str]:
    """Return the warnings about the result."""
    fit, motion, export = data.metrics("calibrate"), data.metrics("optimize"), data.metrics("export")
    warnings = []
    if data.metrics("clean").get("warning"):
        warnings.append(f"Scan: {data.metrics('clean')['warning']}")
    if data.metrics("ingest") and not data.metrics("ingest").get("samples"):
        warnings.append("No force log: all parameters are nominal, and forces are estimates.")
    elif fit.get("remedy") and fit.get("outcome") not in _FINISHED:
        warnings.append(f"Calibration: {fit.get('outcome')}. {fit['remedy']}")
    warnings += [f"Calibration: {text}" for text in (at_bounds(data), certainty(data)) if text]
    if motion and motion.get("confirmed_reduction") is None:
        warnings.append(
            "Optimisation: the saving is not confirmed, because a finer simulation did not finish."
        )
    elif motion and _is_less(motion.get("confirmed_reduction"), 0.0):
        warnings.append("Optimisation: a finer simulation shows no saving.")
    warnings += [f"Certificate: {message}." for message in export.get("failed") or []]
    for stage in ("tetrahedralize", "tetrahedralize_half"):
        if data.metrics(stage).get("seeded") is False:
            warnings.append(
                f"{stage}: the mesher used random numbers without a seed, so the mesh is not reproducible. Run "
                "`scan2cut doctor` for the remedy."
            )
    for stage in _SIMULATING:
        for key in ("refused", "warning"):
            if data.metrics(stage).get(key):
                warnings.append(f"{stage}: {data.metrics(stage)[key]}")
    return warnings + [f"Unreadable: {problem}" for problem in data.problems]


def _is_less(value: Any, limit: float) -> bool:
    return isinstance(value, int | float) and value <= limit


def _stages(data: ScanData) -> Table:
    run = data.run
    rows = []
    for entry in read_template(data.project.template):
        record = run.stages.get(entry.name, {})
        result = record.get("outcome") or ("failed" if entry.name == run.failed_stage else MISSING)
        metrics = data.metrics(entry.name)
        key = entry.key_figure or ""
        rows.append(
            (
                entry.name,
                result,
                _seconds(record.get("seconds")),
                _seconds(run.computed_s.get(entry.name)),
                figure(key, metrics.get(key)),
            )
        )
    header = ("stage", "last run", "time", "time of last computation", "key figure")
    when = f"Last run finished {run.finished}." if run.finished else "No recorded run."
    return Table(header, rows, f"Stages. {when}", folded=True)


def _seconds(value: Any) -> str:
    return f"{value:.1f} s" if isinstance(value, int | float) else MISSING
