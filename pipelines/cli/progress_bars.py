"""Progress bars for a run, on stderr so that stdout stays free for results."""

import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from pipelines.dvc.stage import StageReport
from pipelines.dvc.template import StageEntry
from pipelines.runs.pace import Pace
from pipelines.runs.progress_lines import seen_in


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
