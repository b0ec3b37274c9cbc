"""A real `scan2cut watch` as a process of its own, with the Prefect server that it starts."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil

from pipelines.project import Project
from tests.pipelines.tiny_project import environment

POLL_S = 0.2


class WatchProcess:
    """Started here; ended with Ctrl-C, or when the block that holds it is left."""

    def __init__(self, project: Project, inbox: Path, said: Path, *options: str) -> None:
        self._said = said
        with said.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pipelines.cli.main", "watch", str(inbox), *options],
                cwd=project.root,
                env=environment(project) | {"PREFECT_API_URL": ""},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                process_group=0,  # not a session of its own, which would have its own share of the cores
            )

    def __enter__(self) -> "WatchProcess":
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def lines(self) -> list[str]:
        """What it has said so far."""
        return self._said.read_text(encoding="utf-8", errors="replace").splitlines()

    def finished(self) -> list[str]:
        """Ids of the scans whose run is over, in that order."""
        ends = (": done.", ": rejected.", ": failed.")
        return [line.partition(":")[0] for line in self.lines() if any(end in line for end in ends)]

    def wait_until(self, holds: Callable[[], bool], limit_s: float) -> None:
        """AssertionError with its last lines if that takes longer, or if the watcher ends before."""
        end = time.monotonic() + limit_s
        while not holds():
            last = "\n".join(self.lines()[-20:])
            assert self.process.poll() is None, f"the watcher ended with {self.process.returncode}:\n{last}"
            assert time.monotonic() < end, f"not within {limit_s:g} s:\n{last}"
            time.sleep(POLL_S)

    def memory_mb(self) -> tuple[float, float]:
        """Memory of the watcher and of its server [MB]."""
        own = psutil.Process(self.process.pid)
        return own.memory_info().rss / 1e6, sum(p.memory_info().rss for p in self.servers()) / 1e6

    def servers(self) -> list[psutil.Process]:
        """Prefect's server, if it lives."""
        children = psutil.Process(self.process.pid).children()
        return [p for p in children if alive(p) and "pipelines.runs.server" in " ".join(p.cmdline())]

    def end(self) -> int:
        """Ctrl-C; returns the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def alive(process: psutil.Process) -> bool:
    """False once it was killed, also while nobody has asked for its exit code."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
