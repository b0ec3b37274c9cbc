"""What all commands share: where they print, the `--json` option, the project they work in."""

import json
import os
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from pipelines.dvc.pipeline_file import StageEntry, read_template
from pipelines.dvc.stage import StageReport
from pipelines.project import Project, apply_environment, find_project
from pipelines.runs.progress_lines import Pace, seen_in
from pipelines.runs.run_summary import RunResult
from stages.runtime.errors import InputError

# The short table at the end of a run.


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


# Progress bars for a run, on stderr so that stdout stays free for results.


class ProgressBars:
    """One line per stage; a watcher of the flow."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.fields[stage]:<16}"),
            BarColumn(bar_width=28),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("[dim]{task.fields[left]}"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._paces: dict[str, Pace] = {}
        self._pictured: set[str] = set()
        self._waiting: TaskID | None = None

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()

    def wait(self, stage: str, message: str) -> None:
        """Something without stages that takes a while."""
        self._end_waiting()
        self._waiting = self._bars.add_task(message, stage=stage, left="", total=None)

    def on_start(self, entry: StageEntry) -> None:
        """A stage begins."""
        self._end_waiting()
        self._tasks[entry.name] = self._bars.add_task("", stage=entry.name, left="", total=None)
        self._paces[entry.name] = Pace(time.monotonic())

    def on_progress(self, stage: str, fraction: float, message: str) -> None:
        """A stage has come this far."""
        now, pace = time.monotonic(), self._paces[stage]
        pace.reached(fraction, message, now)
        self._bars.update(
            self._tasks[stage],
            total=1.0,
            completed=min(fraction, 0.999),
            description=message,
            left=pace.left(now),
        )

    def on_finish(self, report: StageReport) -> None:
        """A stage is up to date."""
        self._bars.update(
            self._tasks[report.name], total=1.0, completed=1.0, description=report.outcome.value, left=""
        )

    def on_picture(self, stage: str, path: Path) -> None:
        """A picture of the stage's progress lies there; said once a stage, it is renewed in its place."""
        if stage not in self._pictured:
            self._pictured.add(stage)
            self._bars.console.print(f"{stage}: {seen_in(path)}", markup=False, highlight=False)

    def _end_waiting(self) -> None:
        if self._waiting is not None:
            self._bars.remove_task(self._waiting)
            self._waiting = None


# What a shell offers after the tab key: scans, stages, robots, materials. Nothing heavy is imported here.


def _project() -> Project | None:
    try:
        return find_project()
    except InputError:
        return None


def scan_ids(incomplete: str) -> list[str]:
    """Ids of the registered scans."""
    project = _project()
    return [] if project is None else [name for name in project.scan_ids() if name.startswith(incomplete)]


def stage_names(incomplete: str) -> list[str]:
    """Stages in the order in which they run."""
    from pipelines.dvc.pipeline_file import read_template

    project = _project()
    entries = () if project is None else read_template(project.template)
    return [entry.name for entry in entries if entry.name.startswith(incomplete)]


def robots(incomplete: str) -> list[str]:
    """Robots with a file in stages/shared/robots."""
    from stages.shared.robots.robot import ROBOTS

    return [name for name in ROBOTS if name.startswith(incomplete)]


def materials(incomplete: str) -> list[str]:
    """Materials of the simulator."""
    from disect_sim.parameters import MATERIALS

    return [name for name in MATERIALS if name.startswith(incomplete)]


_WIDTH_OF_A_PIPE = 120
"""Columns to fill where there is no terminal to ask."""

out = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_PIPE)
err = Console(stderr=True)
DEBUG_VARIABLE = "SCAN2CUT_DEBUG"
"""In the environment: show the full traceback of an error."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


class OnlyJson:
    """Sends everything that is written to stdout to stderr, except the one object."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._real = os.dup(1)
        os.dup2(2, 1)

    def print(self, value: Any) -> None:
        """Write the object to the real stdout."""
        sys.stdout.flush()
        os.dup2(self._real, 1)
        os.close(self._real)
        print_json(value)


def print_json(value: Any) -> None:
    """Write one line of JSON to stdout."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def this_project() -> Project:
    """The project around the current directory, with its environment set."""
    project = find_project()
    apply_environment(project)
    return project


def stop_soon_on_signals(sentence: str | None = None) -> None:
    """Ctrl-C, SIGTERM and SIGHUP end this command within two seconds, with one line: the sentence, or where it was."""
    from pipelines.dvc.stopping import stop_on_signals
    from pipelines.runs.server import EMBEDDED_SERVER

    stop_on_signals(EMBEDDED_SERVER.kill, sentence)


def print_text(console: Console, text: str) -> None:
    """Print the text as it is: no markup, no colours, no line breaks that it does not have."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_note(sentence: str) -> None:
    """A sentence about what is being done, on stderr."""
    print_text(err, sentence)


def print_error(sentence: str) -> None:
    """A sentence about what went wrong, on stderr."""
    err.print("[red]error:[/red] ", end="")
    print_text(err, sentence)
