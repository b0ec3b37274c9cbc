"""Start a run, wait until the victim lives, kill it some time later, and see who outlives the run."""

import contextlib
import random
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

MARK = "SCAN2CUT_KILL_ROUND"
"""In the environment of a run's processes, whoever started them."""
WORDS = {"server": "pipelines.runs.server", "dvc": "pipelines.dvc.child", "stage": "-m stages "}
"""In the command of a run's processes, in the order in which they are started."""
POLL_S, LAST_POLL_S = 0.1, 0.02
WAITING = 0.1
"""What a second counts in which nobody could work, so that moments of waiting are among those of the kills."""
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
    """Work of the run while the victim lived [s], if the kill came too late and there was a stage to run."""


def strike(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    kind: str,
    delay_s: float,
    draw: random.Random,
) -> Strike:
    """Kill the stage, dvc, the runner, the server or all of them at once ("group").

    The kill comes when the run has done `delay_s` of work since the victim was first seen: its CPU time, which hardly
    depends on what else the machine does, and a little for the time in which nobody of it has anything to do.
    """
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
        cpu_s, done_s, computes = _cpu_of_s(_family(runner.pid)), 0.0, False
        while victim in (alive := _named(runner.pid)) and done_s < delay_s:
            computes = computes or "stage" in alive
            poll_s = POLL_S if delay_s - done_s > POLL_S else LAST_POLL_S
            time.sleep(poll_s)
            before_s, cpu_s = cpu_s, max(cpu_s, _cpu_of_s(_family(runner.pid)))
            done_s += cpu_s - before_s if cpu_s > before_s else WAITING * poll_s * _wait(_family(runner.pid))
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
        return Strike(phase, exit_code, said, orphans, done_s if phase == "too late" and computes else None)


def _orphans(token: str) -> tuple[str, ...]:
    """Those that still live when they must have ended; they are ended here.

    A busy machine may not let a killed process end for long: what counts is what they work, or that they wait.
    """
    left_s, cpu_s = ORPHAN_S, _cpu_of_s(_marked(token))
    while (left := list(_marked(token))) and left_s > 0.0:
        time.sleep(POLL_S)
        before_s, cpu_s = cpu_s, max(cpu_s, _cpu_of_s(left))
        left_s -= cpu_s - before_s if cpu_s > before_s else POLL_S * _wait(left)
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


def _cpu_of_s(processes: Iterable[psutil.Process]) -> float:
    """CPU time of these and of what they started and saw end [s]."""
    used_s = 0.0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            used_s += sum(process.cpu_times()[:4])  # user, system, and those of its children that have ended
    return used_s


def _wait(processes: Iterable[psutil.Process]) -> bool:
    """Whether none of these could work, even if the machine were free."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_RUNNING:
                return False
    return True


def _family(pid: int) -> list[psutil.Process]:
    """This process and all that it and its children started; none once it is over.

    From the kernel's own lists: psutil would read every process of the machine, several times a second.
    """
    found: list[psutil.Process] = []
    pids = [pid]
    while pids:
        with contextlib.suppress(psutil.Error, OSError):
            found.append(psutil.Process(pid := pids.pop(0)))
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                pids += [int(child) for child in children.read_text().split()]
    return found


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
