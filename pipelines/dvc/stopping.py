"""Handle Ctrl-C: end everything within two seconds, print one line, stay resumable."""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, NoReturn

from stages.runtime.errors import EXIT_INTERRUPTED

_PATIENCE_S = float(os.environ.get("SCAN2CUT_PATIENCE_S", "1.5"))
"""Time until the process is ended by force. Results are safe, as with kill -9; on a busy machine the dashboard may keep
showing the run as Running."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
STOP = threading.Event()
"""Set when the user stops the command; polled while stages run."""


class StoppedError(RuntimeError):
    """The user stopped the run."""

    def __str__(self) -> str:
        return stopped_message()


class _State:
    """Running stages and pending stop of this process."""

    def __init__(self) -> None:
        self.stages: dict[str, str] = {}
        """Scan → running stage."""
        self.stopped_in: dict[str, str] = {}
        self.exit_code = EXIT_INTERRUPTED
        self.inside_flow = 0
        self.lock = threading.RLock()
        self.reported = threading.Lock()
        """Acquired by the thread that prints the stop message, so that it is printed once."""
        self.at_end: list[Callable[[], None]] = []
        self.message: str | None = None
        """Printed instead of the message about stages."""


_STATE = _State()


def stopped_message() -> str:
    """Return the message that names the stopped stages and the remedy."""
    if _STATE.message:
        return _STATE.message
    stages = _STATE.stopped_in
    if not stages:
        return "Stopped. Run the same command to resume."
    if len(stages) == 1:
        return f"Stopped in {next(iter(stages.values()))}. Run the same command to resume."
    stopped = ", ".join(f"{stage} ({scan})" for scan, stage in sorted(stages.items()))
    return f"Stopped in {stopped}. Run the same command to resume."


@contextmanager
def running_stage(scan_id: str, stage: str) -> Iterator[None]:
    """Register the running stage; raise StoppedError if the user has stopped the command."""
    _STATE.stages[scan_id] = stage
    try:
        check_stop()
        yield
    finally:
        if not STOP.is_set():
            _STATE.stages.pop(scan_id, None)


def check_stop() -> None:
    """Raise StoppedError if the user has stopped the command."""
    if STOP.is_set():
        raise StoppedError


@contextmanager
def inside_flow() -> Iterator[None]:
    """Make Ctrl-C only set STOP within the block, so that the flow ends in order and its run is Cancelled."""
    _STATE.inside_flow += 1
    try:
        yield
    finally:
        _STATE.inside_flow -= 1


def stop_on_signals(at_end: Callable[[], None], message: str | None = None) -> None:
    """End this process on SIGINT, SIGTERM or SIGHUP; call `at_end` before it is ended by force.

    `message` is printed by commands without stages. Python runs signal handlers in the main thread, which may be
    waiting for other threads; therefore a separate thread listens for signals.
    """
    _STATE.at_end.append(at_end)
    _STATE.message = message
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
    if not _STATE.inside_flow:
        raise KeyboardInterrupt


def _begin_to_stop(number: int) -> None:
    with _STATE.lock:
        if STOP.is_set():
            return
        _STATE.stopped_in = dict(_STATE.stages)
        _STATE.exit_code = 128 + number
        STOP.set()
    timer = threading.Timer(_PATIENCE_S, _report_and_end)
    timer.daemon = True
    timer.start()


def say_stopped() -> None:
    """Print the stop message to stderr, once."""
    if _STATE.reported.acquire(blocking=False):
        overwrite_echo = "\r" if os.isatty(2) else ""
        os.write(2, f"{overwrite_echo}{stopped_message()}\n".encode())


def _report_and_end() -> None:
    say_stopped()
    end_process()


def end_child(process: "subprocess.Popen[Any]", patience_s: float = 0.0) -> int:
    """End a child process and return its exit code: ask it to terminate if it gets time for that [s], then kill it."""
    if patience_s > 0.0:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            return process.wait(patience_s)
    process.kill()
    return process.wait()


def end_process() -> NoReturn:
    """Kill this process and its children immediately."""
    import psutil

    for action in _STATE.at_end:
        action()
    for child in psutil.Process().children(recursive=True):
        try:
            child.kill()
        except psutil.Error:
            continue
    os._exit(_STATE.exit_code)
