"""Ctrl-C: whatever runs ends within two seconds, with one line, and can go on later."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from stages.runtime.errors import EXIT_INTERRUPTED

_PATIENCE_S = float(os.environ.get("SCAN2CUT_PATIENCE_S", "1.5"))
"""After this the process ends wherever it is: results are safe against that, as they are against kill -9. Where a busy
machine needs longer to tell the dashboard, the run stays Running there."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP = threading.Event()
"""Set when the user wants everything to end; stages look at it."""


class StoppedError(RuntimeError):
    """The user stopped it."""

    def __str__(self) -> str:
        return stopped_message()


class _Now:
    """What this process is doing."""

    def __init__(self) -> None:
        self.stages: dict[str, str] = {}
        """Scan → the stage that runs."""
        self.stopped_in: dict[str, str] = {}
        self.exit_code = EXIT_INTERRUPTED
        self.inside_flow = 0
        self.lock = threading.RLock()
        self.said = threading.Lock()
        """Taken by whoever says that it was stopped: once is enough."""
        self.at_end: list[Callable[[], None]] = []
        self.sentence: str | None = None
        """In place of the one about stages."""


_NOW = _Now()


def stopped_message() -> str:
    """Where it was stopped, and what to do."""
    if _NOW.sentence:
        return _NOW.sentence
    stages = _NOW.stopped_in
    if not stages:
        return "Stopped; the same command goes on from here."
    if len(stages) == 1:
        return f"Stopped in {next(iter(stages.values()))}; the same command goes on there."
    places = ", ".join(f"{stage} ({scan})" for scan, stage in sorted(stages.items()))
    return f"Stopped in {places}; the same command goes on there."


@contextmanager
def running_stage(scan_id: str, stage: str) -> Iterator[None]:
    """Remember what runs; StoppedError if the user wants nothing to begin."""
    _NOW.stages[scan_id] = stage
    try:
        check_stop()
        yield
    finally:
        if not STOP.is_set():
            _NOW.stages.pop(scan_id, None)


def check_stop() -> None:
    """StoppedError if the user wants everything to end."""
    if STOP.is_set():
        raise StoppedError


@contextmanager
def inside_flow() -> Iterator[None]:
    """Within this, Ctrl-C sets STOP and interrupts nothing else: the flow ends in order, its run is Cancelled."""
    _NOW.inside_flow += 1
    try:
        yield
    finally:
        _NOW.inside_flow -= 1


def stop_on_signals(at_end: Callable[[], None], sentence: str | None = None) -> None:
    """Let SIGINT, SIGTERM and SIGHUP end this process soon; `at_end` is called before it is ended by force.

    The sentence is for what has no stages of its own. Python runs handlers in the main thread, which may be waiting
    for other threads; so a thread of its own hears them.
    """
    _NOW.at_end.append(at_end)
    _NOW.sentence = sentence
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(reading,), daemon=True).start()
    for number in _SIGNALS:
        signal.signal(number, _on_signal)


def _listen(reading: int) -> None:
    while True:
        for number in os.read(reading, 16):
            if number in _SIGNALS:
                _begin_to_stop(number)


def _on_signal(number: int, _frame: FrameType | None) -> None:
    _begin_to_stop(number)
    if not _NOW.inside_flow:
        raise KeyboardInterrupt


def _begin_to_stop(number: int) -> None:
    with _NOW.lock:
        if STOP.is_set():
            return
        _NOW.stopped_in = dict(_NOW.stages)
        _NOW.exit_code = 128 + number
        STOP.set()
    timer = threading.Timer(_PATIENCE_S, _say_and_end)
    timer.daemon = True
    timer.start()


def say_stopped() -> None:
    """The one line about it, on stderr."""
    if _NOW.said.acquire(blocking=False):
        over_the_echo = "\r" if os.isatty(2) else ""
        os.write(2, f"{over_the_echo}{stopped_message()}\n".encode())


def _say_and_end() -> None:
    say_stopped()
    end_process()


def end_process() -> NoReturn:
    """End this process and its children now; nobody waits for anything."""
    import psutil

    for action in _NOW.at_end:
        action()
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.Error:
            continue
    os._exit(_NOW.exit_code)
