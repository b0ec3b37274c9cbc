"""Start a run, wait until the victim lives, kill it some time later, and see who outlives the run."""

import contextlib
import random
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "SCAN2CUT_KILL_ROUND"
"""In the environment of a run's processes, whoever started them."""
WORDS = {"server": "pipelines.runs.server", "dvc": "pipelines.dvc.child", "stage": "-m stages "}
"""In the command of a run's processes, in the order in which they are started."""
POLL_S = 0.1
ORPHAN_S = 15.0
"""A process whose run is over must end within this; the kernel or the closed pipe tells it at once."""
LIMIT_S = 1800.0
"""A run that was not killed itself ends within this."""


@dataclass(frozen=True)
class Strike:
    """One kill."""

    phase: str
    """The last process that had been started: runner, server, dvc, stage; "too late" if all was over."""
    exit_code: int | None
    """Of the runner; None if it did not end."""
    said: str
    orphans: tuple[str, ...]
    """Commands of those that were still alive afterwards."""
    lived_s: float | None
    """How long the victim was seen to live, if the kill came too late."""


def strike(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    kind: str,
    delay_s: float,
    draw: random.Random,
) -> Strike:
    """Kill the stage, dvc, the runner, the server or all of them at once ("group"), `delay_s` after it lives."""
    token = uuid.uuid4().hex
    with tempfile.TemporaryFile() as output:
        runner = subprocess.Popen(
            command,
            cwd=folder,
            env={**environment, MARK: token},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,  # not a session of its own, which would have its own share of the cores
        )
        victim = "runner" if kind == "group" else kind
        while victim not in _named(runner.pid) and runner.poll() is None:
            time.sleep(POLL_S)
        began_s = time.monotonic()
        while (left_s := began_s + delay_s - time.monotonic()) > 0 and victim in _named(runner.pid):
            time.sleep(min(left_s, POLL_S))
        lived_s = time.monotonic() - began_s
        alive = _named(runner.pid)
        phase = "too late"
        if victim in alive:
            phase = list(alive)[-1]
            targets = list(_marked(token)) if kind == "group" else [alive[victim]]
            draw.shuffle(targets)
            for process in targets:
                with contextlib.suppress(psutil.Error):
                    process.kill()
        try:
            exit_code: int | None = runner.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            exit_code = None
            runner.kill()
            runner.wait()
        orphans = _orphans(token)
        output.seek(0)
        said = output.read().decode(errors="replace")
        return Strike(phase, exit_code, said, orphans, lived_s if phase == "too late" else None)


def _orphans(token: str) -> tuple[str, ...]:
    """Those that still live when they must have ended; they are ended here."""
    end = time.monotonic() + ORPHAN_S
    while (left := list(_marked(token))) and time.monotonic() < end:
        time.sleep(POLL_S)
    words = tuple(_command(process) for process in left)
    for process in left:
        with contextlib.suppress(psutil.Error):
            process.kill()
    return words


def _named(runner: int) -> dict[str, psutil.Process]:
    """Those of the run that live, by name, in the order in which they are started."""
    commands = {process: _command(process) for process in _family(runner)}
    found: dict[str, psutil.Process] = {}
    for process, command in commands.items():
        if process.pid == runner and command:
            found["runner"] = process
    for name, words in WORDS.items():
        for process, command in commands.items():
            if words in command and "exec python" not in command and process.pid != runner:
                found[name] = process
    return found


def _family(pid: int) -> list[psutil.Process]:
    """This process and all that it and its children started; none once it is over."""
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def _marked(token: str) -> Iterator[psutil.Process]:
    """Those of the run that live, whoever their parent is by now."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == token:
                yield process


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline()) + " "
    except psutil.Error:
        return ""
