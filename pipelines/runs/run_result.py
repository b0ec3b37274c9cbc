"""How a run went: as a sentence, an exit code, and the objects that `--json` prints."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from disect_sim.errors import InputError
from pipelines.dvc.redact import redact
from pipelines.dvc.stage import StageFailedError, StageReport, TryAgainError
from pipelines.dvc.stopping import StoppedError, stopped_sentence
from pipelines.runs.embedded_server import ServerError
from stages.runtime.disk_error import disk_sentence
from stages.runtime.exit_codes import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED

CALIBRATE = "calibrate"
"""The stage that `scan2cut calibrate` runs."""


def is_sentence(error: BaseException) -> bool:
    """True if its text is a sentence for people; of others they also need the type."""
    return isinstance(error, InputError | StageFailedError | TryAgainError | StoppedError | ServerError)


def sentence_of(error: BaseException) -> str:
    """What went wrong, for people, without secrets."""
    if isinstance(error, KeyboardInterrupt):
        return stopped_sentence()
    plain = str(error) if is_sentence(error) else f"{type(error).__name__}: {error}"
    return redact(disk_sentence(error) or plain)


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
        self.error = sentence_of(error)

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
