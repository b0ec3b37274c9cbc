"""The summary of a run: what a person wants to know first, from whatever stages there are."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.dvc.stage import StageReport

OPTIMIZE, EXPORT, CALIBRATE = "optimize", "export", "calibrate"
"""Stages with figures that stand at the top; a run without them has a shorter summary."""


def artifact_key(*words: str) -> str:
    """Prefect allows only lower-case letters, digits and dashes in keys."""
    return "-".join(words).replace("_", "-")


def summary(scan_id: str, reports: Sequence[StageReport], page_url: str, flow_run_id: str | None) -> str:
    """Markdown: force reduction, certificate, fit, then a table of stages with links to their artifacts."""
    metrics = {report.name: report.metrics for report in reports}
    total = sum(report.seconds for report in reports)
    lines = [f"# {scan_id}", ""]
    lines += [f"- {line}" for line in headlines(metrics)]
    lines += [f"- {len(reports)} stages in {total:.1f} s"]
    if flow_run_id:
        lines.append(f"- [This run, with its log]({page_url}/runs/flow-run/{flow_run_id})")
    lines.append(f"- Report, written when the run ends: `data/scans/{scan_id}/report.html`")
    lines += ["", "| stage | result | time | figures | pictures |", "|---|---|---|---|---|"]
    return "\n".join(lines + [_row(report, page_url) for report in reports]) + "\n"


def headlines(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Certificate, force reduction, constraints, fit and what can't be reproduced, as far as the stages are there; a
    line each, in Markdown."""
    found = []
    if EXPORT in metrics:
        export = metrics[EXPORT]
        word = "certified" if export.get("certified") else "NOT certified"
        found.append(
            f"**Certificate: {word}.** {export.get('verdict', '')} Files: `{export.get('path', 'none')}`"
        )
    found += _motion(metrics.get(OPTIMIZE, {}))
    found += _fit(metrics.get(CALIBRATE, {}))
    found += [
        f"Warning: {stage}: {figures['warning']}"
        for stage, figures in metrics.items()
        if figures.get("warning")
    ]
    unseeded = [stage for stage, figures in metrics.items() if figures.get("seeded") is False]
    if unseeded:
        found.append(
            f"Warning: {', '.join(unseeded)} drew random numbers without a seed, so another run gives another result. "
            "`scan2cut doctor` says what to do"
        )
    return found


def _fit(found: Mapping[str, Any]) -> list[str]:
    """How well the log was followed and forecast, and what it could not tell."""
    if found.get("nmae") is None:
        return []
    lines = [
        f"Fit to the force log: {_percent(found['nmae'])} mean error ({found.get('outcome', 'outcome not said')})"
    ]
    if found.get("nmae_forecast") is not None:
        lines.append(
            f"The end of the cut, forecast from its beginning: {_percent(found['nmae_forecast'])} mean error; holding "
            f"the last force seen: {_percent(found['nmae_hold_last'])}"
        )
    if found.get("nmae_next_cut") is not None:
        lines.append(
            f"The last log, predicted from the others: {_percent(found['nmae_next_cut'])} mean error; repeating the "
            f"cut before it: {_percent(found['nmae_next_repeated'])}"
        )
    sought, known = found.get("parameters_sought") or [], found.get("parameters_known") or []
    if sought:
        said = ", ".join(known) or "none"
        lines.append(f"Of {len(sought)} parameters sought, {len(known)} are known from the log: {said}")
    if found.get("puncture_measured_n") is not None and found.get("puncture_simulated_n") is None:
        lines.append(
            f"The log's puncture of {found['puncture_measured_n']:.1f} N is not in the fitted force: the skin is not "
            "described well"
        )
    return lines


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _motion(found: Mapping[str, Any]) -> list[str]:
    """What the optimised motion saves, whether it was confirmed, and how well it keeps its constraints."""
    if "reduction" not in found:
        return []
    over = found.get("mean_over", "time")
    lines = [
        f"**Force: {100.0 * found['reduction']:.1f} % less on average over {over}** "
        f"({found['mean_force_vertical_n']:.1f} N for the vertical cut of the same duration, "
        f"{found['mean_force_optimized_n']:.1f} N for this one), peak "
        f"{100.0 * found['peak_reduction']:.1f} % less"
    ]
    other = {"time": "depth", "depth": "time"}[over]
    if f"reduction_over_{other}" in found:
        lines.append(
            f"Averaged over {other} instead: {100.0 * found[f'reduction_over_{other}']:.1f} % less. Against its own "
            f"descent without sawing: {100.0 * found['reduction_by_sawing']:.1f} % less"
        )
    kept = found.get("confirmed_reduction")
    lines.append(
        "Not confirmed: a finer simulation of it did not finish"
        if kept is None
        else f"Simulated again, finer and with other parameters: at least {100.0 * kept:.1f} % less"
    )
    low, high = found.get("reduction_low"), found.get("reduction_high")
    if low is not None and high is not None:
        lines.append(
            f"90 % of the possible materials: between {100.0 * low:.1f} and {100.0 * high:.1f} % less"
        )
    if "work_reduction" in found:
        lines.append(
            f"Pressing down: {found['push_down_optimized_n']:.1f} N on average "
            f"({_change(found['push_down_reduction'])}); work {found['work_optimized_j']:.2f} J "
            f"({_change(found['work_reduction'])})"
        )
    lines.append(
        f"Constraints: end height {1e3 * found['end_height_residual_m']:.3f} mm off, blade "
        f"{1e3 * found['lateral_residual_m']:.3f} mm beyond the fruit's cover"
    )
    return lines


def _change(reduction: float) -> str:
    return f"{_percent(abs(reduction))} {'less' if reduction >= 0.0 else 'more'}"


def _row(report: StageReport, page_url: str) -> str:
    def link(kind: str) -> str:
        page = report.pages.get(kind)
        return f"[{kind}]({page_url}/artifacts/artifact/{page})" if page else ""

    cells = [report.name, report.outcome.value, f"{report.seconds:.1f} s", link("metrics"), link("preview")]
    return f"| {' | '.join(cells)} |"
