"""Shared by all commands: consoles, `--json`, run table, progress bars, shell completion."""

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
from pipelines.report.page import figure, result_word
from pipelines.runs.progress_lines import Pace, seen_in
from pipelines.runs.run_summary import RunResult
from stages.runtime.errors import InputError


def run_table(project: Project, result: RunResult) -> Table:
    """Return a table of stages with result, time, key figure and folder of the artifacts."""
    key_figures = {entry.name: entry.key_figure for entry in read_template(project.template)}
    table = Table("stage", "result", "time", "key figure", title=f"scan {result.scan}")
    table.add_column("artifacts", overflow="fold")
    for report in result.stages:
        table.add_row(
            report.name,
            result_word(report),
            f"{report.seconds:.1f} s",
            key_figure(report, key_figures.get(report.name)),
            report.outputs[0].rpartition("/")[0] + "/",
        )
    return table


def key_figure(report: StageReport, name: str | None) -> str:
    """Return the stage's key figure with its unit, e.g. 'volume 163 cm³'."""
    if name is None or name not in report.metrics:
        return ""
    return figure(name, report.metrics[name])


class ProgressBars:
    """Show one progress bar per stage on stderr; implements the flow's watcher."""

    def __init__(self, console: Console) -> None:
        self._bars = Progress(
            SpinnerColumn(finished_text="[green]✓"),
            TextColumn("{task.fields[stage]:<16}"),
            BarColumn(bar_width=28),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
            TextColumn("[dim]{task.fields[remaining]}"),
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
        """Show a step outside the stages."""
        self._end_waiting()
        self._waiting = self._bars.add_task(message, stage=stage, remaining="", total=None)

    def on_start(self, entry: StageEntry) -> None:
        """Add a bar for the stage."""
        self._end_waiting()
        self._tasks[entry.name] = self._bars.add_task("", stage=entry.name, remaining="", total=None)
        self._paces[entry.name] = Pace(time.monotonic())

    def on_progress(self, stage: str, fraction: float, message: str) -> None:
        """Update the stage's bar."""
        now, pace = time.monotonic(), self._paces[stage]
        pace.reached(fraction, message, now)
        self._bars.update(
            self._tasks[stage],
            total=1.0,
            completed=min(fraction, 0.999),
            description=message,
            remaining=pace.left(now),
        )

    def on_finish(self, report: StageReport) -> None:
        """Complete the stage's bar."""
        self._bars.update(
            self._tasks[report.name], total=1.0, completed=1.0, description=result_word(report), remaining=""
        )

    def on_picture(self, stage: str, path: Path) -> None:
        """Print the path of the live picture, once per stage."""
        if stage not in self._pictured:
            self._pictured.add(stage)
            self._bars.console.print(f"{stage}: {seen_in(path)}", markup=False, highlight=False)

    def _end_waiting(self) -> None:
        if self._waiting is not None:
            self._bars.remove_task(self._waiting)
            self._waiting = None


# Shell completion; imports nothing heavy.


def _project() -> Project | None:
    try:
        return find_project()
    except InputError:
        return None


def scan_ids(incomplete: str) -> list[str]:
    """Complete ids of registered scans."""
    project = _project()
    return [] if project is None else [name for name in project.scan_ids() if name.startswith(incomplete)]


def stage_names(incomplete: str) -> list[str]:
    """Complete names of stages, in order of execution."""
    from pipelines.dvc.pipeline_file import read_template

    project = _project()
    entries = () if project is None else read_template(project.template)
    return [entry.name for entry in entries if entry.name.startswith(incomplete)]


def robots(incomplete: str) -> list[str]:
    """Complete names of robots."""
    from stages.shared.robots.robot import ROBOTS

    return [name for name in ROBOTS if name.startswith(incomplete)]


def materials(incomplete: str) -> list[str]:
    """Complete names of materials."""
    from disect_sim.parameters import MATERIALS

    return [name for name in MATERIALS if name.startswith(incomplete)]


_PIPE_WIDTH = 120
"""Columns used when stdout is not a terminal."""

out = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
err = Console(stderr=True)
DEBUG_VARIABLE = "SCAN2CUT_DEBUG"
"""Environment variable: show the traceback of an error."""

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]


class OnlyJson:
    """Redirect stdout to stderr, except for one JSON object."""

    def __init__(self) -> None:
        sys.stdout.flush()
        self._real = os.dup(1)
        os.dup2(2, 1)

    def print(self, value: Any) -> None:
        """Write the object to the original stdout."""
        sys.stdout.flush()
        os.dup2(self._real, 1)
        os.close(self._real)
        print_json(value)


def print_json(value: Any) -> None:
    """Write one line of JSON to stdout."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def this_project() -> Project:
    """Return the project of the current directory and set its environment variables; say which, if it is elsewhere."""
    project = find_project()
    if project.is_workspace:
        from pipelines.workspace import refresh_workspace

        refresh_workspace(project)
    elif project.root not in (here := Path.cwd().absolute(), *here.parents):
        print_note(
            f"Workspace: {project.root}, the clone of the code. For data of your own use 'scan2cut init DIR' and work "
            "there."
        )
    apply_environment(project)
    return project


def stop_soon_on_signals(message: str | None = None) -> None:
    """End within two seconds on Ctrl-C, SIGTERM or SIGHUP and print one line: `message`, or the stopped stage."""
    from pipelines.dvc.stopping import stop_on_signals
    from pipelines.runs.server import EMBEDDED_SERVER

    stop_on_signals(EMBEDDED_SERVER.kill, message)


def print_text(console: Console, text: str) -> None:
    """Print plain text without markup, highlighting or wrapping."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_note(message: str) -> None:
    """Print a message to stderr."""
    print_text(err, message)


def print_error(message: str) -> None:
    """Print an error message to stderr."""
    err.print("[red]error:[/red] ", end="")
    print_text(err, message)
