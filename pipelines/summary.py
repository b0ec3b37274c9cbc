"""The summary of a run: what a person wants to know first, from whatever stages there are."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.dvc_stage import StageReport

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
    lines += ["", "| stage | result | time | figures | pictures |", "|---|---|---|---|---|"]
    return "\n".join(lines + [_row(report, page_url) for report in reports]) + "\n"


def headlines(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Certificate, force reduction and fit, as far as the stages are there."""
    found = []
    if EXPORT in metrics:
        export = metrics[EXPORT]
        word = "certified" if export.get("certified") else "NOT certified"
        found.append(
            f"**Certificate: {word}.** {export.get('verdict', '')} Files: `{export.get('path', 'none')}`"
        )
    for name, value in metrics.get(OPTIMIZE, {}).items():
        if "reduction" in name and isinstance(value, int | float) and not isinstance(value, bool):
            found.append(f"**{_words(name)}: {100.0 * value:.1f} %** against the straight cut")
    if CALIBRATE in metrics and "nmae" in metrics[CALIBRATE]:
        fit = metrics[CALIBRATE]
        if fit["nmae"] is not None:
            found.append(
                f"Fit to the force log: NMAE {fit['nmae']:.3f} ({fit.get('outcome', 'outcome not said')})"
            )
    return found


def _words(name: str) -> str:
    text = name.replace("_fraction", "").replace("_", " ")
    text = text if "force" in text else f"force {text}"
    return text[0].upper() + text[1:]


def _row(report: StageReport, page_url: str) -> str:
    def link(kind: str) -> str:
        page = report.pages.get(kind)
        return f"[{kind}]({page_url}/artifacts/artifact/{page})" if page else ""

    cells = [report.name, report.outcome.value, f"{report.seconds:.1f} s", link("metrics"), link("preview")]
    return f"| {' | '.join(cells)} |"
