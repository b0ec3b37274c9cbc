"""Print the progress of a run without a terminal: a line per event and every 30 s, with the remaining time."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pipelines.dvc.pipeline_file import StageEntry
from pipelines.dvc.stage import StageReport
from pipelines.report.page import result_word

_LEAST_FRACTION = 0.03
"""Below this fraction start-up (reading, compiling) dominates and no estimate is made."""
_LEAST_S = 3.0
"""Before this time no estimate is made."""


@dataclass
class Pace:
    """Progress of one stage and estimate of its remaining time; times in seconds of one clock."""

    began_s: float
    fraction: float = 0.0
    message: str = ""
    reported_s: float = 0.0
    """Time of the last report."""

    def reached(self, fraction: float, message: str, now_s: float) -> None:
        """Record the stage's progress."""
        self.fraction, self.message, self.reported_s = fraction, message, now_s

    def left_s(self, now_s: float) -> float | None:
        """Return the estimated remaining time [s]; None if it is too early to estimate."""
        spent_s = self.reported_s - self.began_s
        if self.fraction < _LEAST_FRACTION or spent_s < _LEAST_S:
            return None
        total_s = spent_s / self.fraction
        return max(0.0, total_s - (now_s - self.began_s))

    def left(self, now_s: float) -> str:
        """Return the estimate as text; empty if there is none or it is below 1 s."""
        remaining_s = self.left_s(now_s)
        return "" if remaining_s is None or remaining_s < 1.0 else f"about {duration(remaining_s)} left"


def duration(seconds: float) -> str:
    """Return a duration as text: 8 s, 2 min 10 s, 1 h 05 min."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60:02d} s"
    return f"{total // 3600} h {total % 3600 // 60:02d} min"


_EVERY_S = 30.0


def seen_in(path: Path) -> str:
    """Return a note with the path of the live picture."""
    return f"live picture in {path}"


class ProgressLines:
    """Watcher of the flow that prints start, progress and end of each stage; for logs and pipes."""

    def __init__(
        self,
        say: Callable[[str], None],
        *,
        every_s: float = _EVERY_S,
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
        """Report a step outside the stages."""
        self._begin(stage)
        self._pace.message = message

    def on_start(self, entry: StageEntry) -> None:
        """Begin a stage; it is reported as started at its first progress."""
        self._begin(entry.name)

    def on_progress(self, stage: str, fraction: float, message: str) -> None:
        """Record progress; report the start once."""
        with self._lock:
            self._pace.reached(fraction, message, self._clock())
            if not self._began:
                self._began = True
                self._say(f"{stage}: started")

    def on_finish(self, report: StageReport) -> None:
        """Report the outcome of a stage."""
        with self._lock:
            self._say(f"{report.name}: {result_word(report)}, {duration(report.seconds)}")
            self._stage = ""

    def on_picture(self, stage: str, path: Path) -> None:
        """Report the path of the live picture, once per stage."""
        with self._lock:
            if stage not in self._pictured:
                self._pictured.add(stage)
                self._say(f"{stage}: {seen_in(path)}")

    def still(self) -> None:
        """Report progress and remaining time; nothing between two stages."""
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
            if self._clock() - self._pace.began_s > 0.5 * self._every_s:  # skip a stage that has just begun
                self.still()
