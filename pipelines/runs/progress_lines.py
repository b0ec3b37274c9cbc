"""Progress of a run where there is no terminal: a line when something happens, and every half minute."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from pipelines.dvc.stage import StageReport
from pipelines.dvc.template import StageEntry
from pipelines.runs.pace import Pace, duration

EVERY_S = 30.0


def seen_in(path: Path) -> str:
    """Where to look while a stage runs."""
    return f"see it in {path}, renewed while it runs"


class ProgressLines:
    """A watcher of the flow that says each stage's start, end and progress; made for logs and pipes."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        every_s: float = EVERY_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._say, self._every_s, self._clock = say, every_s, clock
        self._lock = threading.Lock()
        self._stage, self._pace, self._began = "", Pace(clock()), False
        self._pictured: set[str] = set()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def wait(self, stage: str, message: str) -> None:
        """Something without stages that takes a while."""
        self._begin(stage)
        self._pace.message = message

    def on_start(self, entry: StageEntry) -> None:
        """A stage's turn; whether it has to run is seen at its first progress."""
        self._begin(entry.name)

    def on_progress(self, stage: str, fraction: float, message: str) -> None:
        """A stage has come this far."""
        with self._lock:
            self._pace.reached(fraction, message, self._clock())
            if not self._began:
                self._began = True
                self._say(f"{stage}: started")

    def on_finish(self, report: StageReport) -> None:
        """A stage is up to date."""
        with self._lock:
            self._say(f"{report.name}: {report.outcome.value}, {duration(report.seconds)}")
            self._stage = ""

    def on_picture(self, stage: str, path: Path) -> None:
        """A picture of the stage's progress lies there; said once a stage, it is renewed in its place."""
        with self._lock:
            if stage not in self._pictured:
                self._pictured.add(stage)
                self._say(f"{stage}: {seen_in(path)}")

    def still(self) -> None:
        """Say where it is; nothing between two stages."""
        with self._lock:
            if not self._stage:
                return
            now, pace = self._clock(), self._pace
            share = f"{100.0 * pace.fraction:.0f} %, " if self._began else ""
            words = [f"{share}{pace.message}".rstrip(", "), f"{duration(now - pace.began_s)} so far"]
            self._say(f"{self._stage}: {'; '.join(filter(None, (*words, pace.left(now))))}")

    def _begin(self, stage: str) -> None:
        with self._lock:
            self._stage, self._pace, self._began = stage, Pace(self._clock()), False

    def _repeat(self) -> None:
        while not self._ended.wait(self._every_s):
            if (
                self._clock() - self._pace.began_s > 0.5 * self._every_s
            ):  # what just began is not worth a line
                self.still()
