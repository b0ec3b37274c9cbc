"""Progress of a run where there is no terminal: a line when something happens, and every half minute."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pipelines.dvc.pipeline_file import StageEntry
from pipelines.dvc.stage import StageReport

# How long something still takes, from how far it is and how long that took.


_LEAST_FRACTION = 0.03
"""Below this share the first steps (reading, compiling) would be taken for the pace of all."""
_LEAST_S = 3.0
"""Before this time the clock says as little."""


@dataclass
class Pace:
    """One stage: when it began and how far it is. Times in seconds, of any one clock."""

    began_s: float
    fraction: float = 0.0
    message: str = ""
    reported_s: float = 0.0
    """When the fraction was true."""

    def reached(self, fraction: float, message: str, now_s: float) -> None:
        """The stage has come this far."""
        self.fraction, self.message, self.reported_s = fraction, message, now_s

    def left_s(self, now_s: float) -> float | None:
        """An estimate of what is left [s]; None while it would be a guess."""
        spent_s = self.reported_s - self.began_s
        if self.fraction < _LEAST_FRACTION or spent_s < _LEAST_S:
            return None
        total_s = spent_s / self.fraction
        return max(0.0, total_s - (now_s - self.began_s))

    def left(self, now_s: float) -> str:
        """The estimate in words, empty while there is none or when it was too short."""
        left_s = self.left_s(now_s)
        return "" if left_s is None or left_s < 1.0 else f"about {duration(left_s)} left"


def duration(seconds: float) -> str:
    """A time as a person says it: 8 s, 2 min 10 s, 1 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


_EVERY_S = 30.0


def seen_in(path: Path) -> str:
    """Where to look while a stage runs."""
    return f"see it in {path}, renewed while it runs"


class ProgressLines:
    """A watcher of the flow that says each stage's start, end and progress; made for logs and pipes."""

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
