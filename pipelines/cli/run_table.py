"""The short table at the end of a run."""

from typing import Any

from rich.table import Table

from pipelines.dvc.stage import StageReport
from pipelines.dvc.template import read_template
from pipelines.runs.run_result import RunResult
from pipelines.scans.project import Project


def run_table(project: Project, result: RunResult) -> Table:
    """Stage, time, key figure and where its artifacts are."""
    key_figures = {entry.name: entry.key_figure for entry in read_template(project.template)}
    table = Table("stage", "result", "time", "key figure", title=f"scan {result.scan}")
    table.add_column("artifacts", overflow="fold")
    for report in result.stages:
        table.add_row(
            report.name,
            report.outcome.value,
            f"{report.seconds:.1f} s",
            key_figure(report, key_figures.get(report.name)),
            report.outputs[0].rpartition("/")[0] + "/",
        )
    return table


def key_figure(report: StageReport, name: str | None) -> str:
    """The stage's most telling metric, as 'name = value'."""
    if name is None or name not in report.metrics:
        return ""
    return f"{name} = {_short(report.metrics[name])}"


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
