"""The summary of a run: what a person wants to know first, from whatever stages there are."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pipelines.dvc.commands import redact
from pipelines.dvc.stage import StageFailedError, StageReport, TryAgainError
from pipelines.dvc.stopping import StoppedError, stopped_message
from pipelines.runs.server import ServerError
from stages.runtime.errors import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    InputError,
    disk_message,
)

# How a run went: as a sentence, an exit code, and the objects that `--json` prints.


CALIBRATE = "calibrate"
"""The stage that `scan2cut calibrate` runs."""


def is_user_facing(error: BaseException) -> bool:
    """True if its text is a sentence for people; of others they also need the type."""
    return isinstance(error, InputError | StageFailedError | TryAgainError | StoppedError | ServerError)


def message_of(error: BaseException) -> str:
    """What went wrong, for people, without secrets."""
    if isinstance(error, KeyboardInterrupt):
        return stopped_message()
    plain = str(error) if is_user_facing(error) else f"{type(error).__name__}: {error}"
    return redact(disk_message(error) or plain)


def exit_code_of(error: BaseException) -> int:
    """2 for bad input, 130 if the user stopped it, 1 for anything else."""
    if isinstance(error, KeyboardInterrupt | StoppedError):
        return EXIT_INTERRUPTED
    return EXIT_BAD_INPUT if isinstance(error, InputError) else EXIT_FAILED


def refusal(metrics: Mapping[str, Any]) -> str | None:
    """Why a stage that ran to its end gives nothing to use; None if it does."""
    return str(metrics.get("verdict", "not certified")) if metrics.get("certified") is False else None


@dataclass
class RunResult:
    """How a run went; `stages` holds those that were brought up to date before it ended."""

    scan: str | None = None
    error: str | None = None
    exit_code: int = EXIT_DONE
    stages: list[StageReport] = field(default_factory=list)
    exception: BaseException | None = None
    report: str | None = None
    """report.html, relative to the project; None if the scan could not even be registered."""

    def fail(self, error: BaseException) -> None:
        """Record the failure as a sentence and an exit code."""
        self.exception = error
        self.exit_code = exit_code_of(error)
        self.error = message_of(error)

    @property
    def in_words(self) -> str:
        """What came of it, in short: the error, the certificate's refusal, or done."""
        verdicts = [text for report in self.stages if (text := refusal(report.metrics))]
        return self.error or (f"NOT certified. {verdicts[0]}" if verdicts else "done")

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "ok": self.exit_code == EXIT_DONE,
            "error": self.error,
            "scan": self.scan,
            "stages": [
                {
                    "name": report.name,
                    "seconds": report.seconds,
                    "cached": report.cached,
                    "outputs": list(report.outputs),
                    "metrics": asdict(report)["metrics"],
                }
                for report in self.stages
            ],
        }


def calibration_json(result: RunResult) -> dict[str, Any]:
    """The object that `scan2cut calibrate --json` prints: the errors of the fit, and its time."""
    report = next((r for r in result.stages if r.name == CALIBRATE), None)
    metrics = {} if report is None else report.metrics
    keys = ("nmae", "mae_n", "peak_error_n", "iterations", "outcome", "remedy")
    return {
        "ok": result.exit_code == EXIT_DONE,
        "error": result.error,
        "scan": result.scan,
        **{key: metrics.get(key) for key in keys},
        "seconds": None if report is None else report.seconds,
        "cached": None if report is None else report.cached,
        "metrics": metrics,
    }


_OPTIMIZE, _EXPORT = "optimize", "export"
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
    if _EXPORT in metrics:
        export = metrics[_EXPORT]
        found.append(_certificate(export))
    found += _motion(metrics.get(_OPTIMIZE, {}))
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
    if found.get("puncture_measured_n") is not None and found.get("puncture_simulated_n") is None:
        lines.append(
            f"The log's puncture of {found['puncture_measured_n']:.1f} N is not in the fitted force: the skin is not "
            "described well"
        )
    return lines


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _certificate(export: Mapping[str, Any]) -> str:
    """The verdict, which begins with the word for it, and the files."""
    verdict, files = str(export.get("verdict", "")), f"Files: `{export.get('path', 'none')}`"
    return f"**{verdict}** {files}" if export.get("certified") else f"**NOT certified. {verdict}** {files}"


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
