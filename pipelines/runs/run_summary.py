"""Result of a run: error message, exit code, `--json` objects, headlines and the dashboard's summary."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from pipelines.dvc.commands import redact
from pipelines.dvc.stage import StageFailedError, StageReport, TryAgainError
from pipelines.dvc.stopping import StoppedError, stopped_message
from pipelines.report.page import figure, refusal_of_run, result_word, saving_band, stage_warnings
from pipelines.runs.server import ServerError
from stages.runtime.errors import (
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_REFUSED,
    InputError,
    error_text,
)

CALIBRATE = "calibrate"
"""Target stage of `scan2cut calibrate`."""
_OPTIMIZE, _EXPORT = "optimize", "export"
"""Stages with headline figures."""


_USER_FACING = (StageFailedError, TryAgainError, StoppedError, ServerError)
"""Errors whose text is a message for people, beside those of the stages."""


def message_of(error: BaseException) -> str:
    """Return the error as a user-facing message without secrets."""
    if isinstance(error, KeyboardInterrupt):
        return stopped_message()
    return redact(error_text(error, *_USER_FACING))


def exit_code_of(error: BaseException) -> int:
    """Return 2 for rejected input, 130 if stopped by the user, 1 otherwise."""
    if isinstance(error, KeyboardInterrupt | StoppedError):
        return EXIT_INTERRUPTED
    return EXIT_BAD_INPUT if isinstance(error, InputError) else EXIT_FAILED


@dataclass
class RunResult:
    """Result of a run; `stages` lists those that were updated before it ended."""

    scan: str | None = None
    error: str | None = None
    exit_code: int = EXIT_DONE
    stages: list[StageReport] = field(default_factory=list)
    exception: BaseException | None = None
    report: str | None = None
    """Path of report.html relative to the project; None if the scan was not registered."""

    def fail(self, error: BaseException) -> None:
        """Record an error as message and exit code."""
        self.exception = error
        self.exit_code = exit_code_of(error)
        self.error = message_of(error)

    @property
    def in_words(self) -> str:
        """Return the error, the certificate's refusal, or "done"."""
        if self.error is None and any(report.metrics.get("certified") is False for report in self.stages):
            return f"NOT certified. {self.refusal}"
        return self.error or self.refusal or "done"

    @property
    def refusal(self) -> str | None:
        """Return why the motion is refused, or which simulated cut did not happen; None if all is well."""
        return refusal_of_run({report.name: report.metrics for report in self.stages})

    @property
    def warnings(self) -> list[str]:
        """Return the warnings of all stages; refused cuts that are not the verdict are among them."""
        lines = []
        for report in self.stages:
            lines += stage_warnings(report.name, report.metrics)
        return lines

    def judge(self) -> None:
        """Set the exit code of a run without error whose motion or cut is refused."""
        if self.error is None and self.exit_code == EXIT_DONE and self.refusal:
            self.exit_code = EXIT_REFUSED

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "ok": self.exit_code == EXIT_DONE,
            "error": self.error,
            "refused": self.refusal,
            "warnings": self.warnings,
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
    """Return the object that `scan2cut calibrate --json` prints: errors and time of the fit."""
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


def artifact_key(*words: str) -> str:
    """Return a Prefect artifact key, which may contain only lower-case letters, digits and dashes."""
    return "-".join(words).replace("_", "-")


def summary(
    scan_id: str,
    reports: Sequence[StageReport],
    page_url: str,
    flow_run_id: str | None,
    key_figures: Mapping[str, str | None] | None = None,
) -> str:
    """Return the run's summary in Markdown: headlines, then a table of stages with links to their pages."""
    metrics = {report.name: report.metrics for report in reports}
    total = sum(report.seconds for report in reports)
    lines = [f"# {scan_id}", ""]
    lines += [f"- {line}" for line in headlines(metrics)]
    lines += [f"- {len(reports)} stages in {total:.1f} s"]
    if flow_run_id:
        lines.append(f"- [Log of this run]({page_url}/runs/flow-run/{flow_run_id})")
    lines.append(f"- Report (written at the end of the run): `data/scans/{scan_id}/report.html`")
    lines += ["", *stages_table(reports, page_url, key_figures or {})]
    return "\n".join(lines) + "\n"


def stages_table(
    reports: Sequence[StageReport], page_url: str, key_figures: Mapping[str, str | None]
) -> list[str]:
    """Return a Markdown table of stages with links to their pages in the dashboard."""
    lines = ["| stage | result | time | key figure |", "|---|---|---|---|"]
    for report in reports:
        page, name = report.pages.get("page"), key_figures.get(report.name)
        stage = f"[{report.name}]({page_url}/artifacts/artifact/{page})" if page else report.name
        key = figure(name, report.metrics[name]) if name and name in report.metrics else ""
        lines.append(f"| {stage} | {result_word(report)} | {report.seconds:.1f} s | {key} |")
    return lines


def headlines(metrics: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return one Markdown line each for certificate, force reduction, constraints, fit and warnings."""
    lines = []
    if _EXPORT in metrics:
        lines.append(_certificate(metrics[_EXPORT]))
    lines += _motion(metrics.get(_OPTIMIZE, {}))
    lines += _fit(metrics.get(CALIBRATE, {}))
    for stage, figures in metrics.items():
        lines += stage_warnings(stage, figures)
    unseeded = [stage for stage, figures in metrics.items() if figures.get("seeded") is False]
    if unseeded:
        lines.append(
            f"Warning: {', '.join(unseeded)} used random numbers without a seed, so results are not reproducible. "
            "Run `scan2cut doctor` for the remedy"
        )
    return lines


def _fit(fit: Mapping[str, Any]) -> list[str]:
    """Return lines on the errors of fit, forecast and prediction."""
    if fit.get("nmae") is None:
        return []
    lines = [
        f"Fit of the force log: {_percent(fit['nmae'])} mean error ({fit.get('outcome', 'outcome unknown')})"
    ]
    if fit.get("nmae_forecast") is not None:
        lines.append(
            f"Forecast of the end of the cut from its beginning: {_percent(fit['nmae_forecast'])} mean error "
            f"(model alone {_percent(fit['nmae_forecast_model'])}; baselines: holding the last force "
            f"{_percent(fit['nmae_hold_last'])}, linear trend {_percent(fit['nmae_trend'])})"
        )
    if fit.get("nmae_next_cut") is not None:
        lines.append(
            f"Prediction of the last log from the others: {_percent(fit['nmae_next_cut'])} mean error "
            f"(baseline, repeating the mean of the others: {_percent(fit['nmae_next_repeated'])})"
        )
    if fit.get("puncture_measured_n") is not None and fit.get("puncture_simulated_n") is None:
        lines.append(
            f"The fit does not reproduce the measured puncture of {fit['puncture_measured_n']:.1f} N: the model of "
            "the skin is inaccurate"
        )
    return lines


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _certificate(export: Mapping[str, Any]) -> str:
    """Return the certificate's verdict and the folder of the files."""
    verdict, files = str(export.get("verdict", "")), f"Files: `{export.get('path', 'none')}`"
    return f"**{verdict}** {files}" if export.get("certified") else f"**NOT certified. {verdict}** {files}"


def _motion(motion: Mapping[str, Any]) -> list[str]:
    """Return lines on the saving of the optimised motion, its confirmation and the constraints."""
    if "reduction" not in motion:
        return []
    over = motion.get("mean_over", "time")
    lines = [
        f"**Mean force over {over}: {_change(motion['reduction'])}** than in a vertical cut of the same total duration "
        f"({motion['mean_force_vertical_n']:.1f} → {motion['mean_force_optimized_n']:.1f} N, final strokes included); "
        f"peak force {_change(motion['peak_reduction'])}"
    ]
    lines += saving_band(motion)
    other = {"time": "depth", "depth": "time"}[over]
    if f"reduction_over_{other}" in motion:
        lines.append(
            f"Mean force over {other}: {_change(motion[f'reduction_over_{other}'])}. {_of_descent(motion)}"
            f"Compared with the same descent without sawing: {_change(motion['reduction_by_sawing'])}"
        )
    kept = motion.get("confirmed_reduction")
    lines.append(
        "Not confirmed: a finer simulation did not finish"
        if kept is None
        else f"Confirmed by finer simulations: at least {_change(kept)}"
    )
    if "work_reduction" in motion:
        lines.append(
            f"Mean downward force {motion['push_down_optimized_n']:.1f} N "
            f"({_change(motion['push_down_reduction'])}); work {motion['work_optimized_j']:.2f} J "
            f"({_change(motion['work_reduction'])})"
        )
    lines.append(
        f"Constraint residuals: end height {1e3 * motion['end_height_residual_m']:.3f} mm, blade coverage "
        f"{1e3 * motion['lateral_residual_m']:.3f} mm"
    )
    return lines


def _of_descent(motion: Mapping[str, Any]) -> str:
    """Return the reduction without the final strokes, as earlier versions reported it."""
    share = motion.get("reduction_of_descent")
    return "" if share is None else f"Descent alone, without final strokes: {_change(share)}. "


def _change(reduction: float) -> str:
    return f"{_percent(abs(reduction))} {'lower' if reduction >= 0.0 else 'higher'}"
