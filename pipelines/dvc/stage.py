"""Run one stage of one scan: a single DVC subprocess decides, executes and records."""

import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pipelines.dvc.commands import BUSY_MESSAGE, EventsTail, redact
from pipelines.dvc.freshness import note_recorded
from pipelines.dvc.pipeline_file import (
    StageEntry,
    listed_while_it_runs,
    refresh_pipeline_file,
    resolve,
    scan_entries,
    stage_address,
)
from pipelines.dvc.repair import (
    check_disk_space,
    damaged,
    discard,
    keep_spare_lock_file,
    kept_outputs,
    kept_stages,
    recorded_outputs,
    recorded_stages,
    recovered_from_broken_rwlock,
    restore_broken_lock_file,
    restore_outputs,
)
from pipelines.dvc.stopping import STOP, check_stop, end_child, running_stage
from pipelines.project import Project, scan_lock
from stages.runtime.artifacts import read_metrics
from stages.runtime.checkpoint import remove_checkpoints
from stages.runtime.errors import (
    EXIT_BAD_INPUT,
    EXIT_INPUTS_CHANGED,
    PARENT_VARIABLE,
    REASONS,
    InputError,
)
from stages.runtime.files import read_mapping, remove_abandoned
from stages.runtime.scan_file import SCAN_FILE_NAME, read_scan_file
from stages.runtime.stage_io import EVENTS_VARIABLE

_OS_ERROR = re.compile(r"\[Errno (?P<number>\d+)\][^\n:]*(: '(?P<path>[^'\n]+)')?")
"""An operating system error in DVC's output."""
_BUSY_WAIT_S = 2.0
_POLL_S = 0.2


class Outcome(StrEnum):
    """Outcome of updating a stage with DVC; also the name of the Prefect state."""

    UNCHANGED = "Unchanged"
    CACHED = "Cached"
    COMPLETED = "Completed"


class StageFailedError(RuntimeError):
    """The stage failed for a reason other than its input; a retry would fail too."""


class TryAgainError(RuntimeError):
    """The stage must be retried: its inputs changed while it ran."""


@dataclass(frozen=True)
class StageReport:
    """Result of updating one stage."""

    name: str
    outcome: Outcome
    seconds: float
    outputs: tuple[str, ...]
    """Paths relative to the project."""
    metrics: dict[str, Any] = field(default_factory=dict)
    text_files: dict[str, str] = field(default_factory=dict)
    """From a cluster worker: the scan's small text files, including dvc.lock and metrics."""
    pages: dict[str, str] = field(default_factory=dict)
    """Ids of its dashboard artifacts: metrics, preview."""

    @property
    def cached(self) -> bool:
        """Return whether nothing had to be computed."""
        return self.outcome is not Outcome.COMPLETED


@dataclass(frozen=True)
class Listeners:
    """Callbacks invoked while a stage runs."""

    on_line: Callable[[str], None] = lambda line: None
    """Called with each message of the runner, such as waiting for another run."""
    on_output: Callable[[str], None] = lambda line: None
    """Called with each line of output of the stage or DVC."""
    on_progress: Callable[[float, str], None] = lambda fraction, message: None
    """Called with a fraction (0 to 1) and a description."""
    on_picture: Callable[[Path], None] = lambda path: None
    """Called with the path of the live picture each time it is updated."""


def bring_up_to_date(
    project: Project,
    scan_id: str,
    entry: StageEntry,
    *,
    listeners: Listeners | None = None,
    force: bool = False,
    fresh: bool = False,
) -> StageReport:
    """Run the stage with DVC if it is stale. Raises InputError, TryAgainError or StageFailedError.

    `fresh`: DVC has just reported the stage as fresh; skip DVC and only verify the outputs.
    """
    listeners = listeners or Listeners()
    scan_dir = project.scan_dir(scan_id)
    read_scan_file(scan_dir)  # rejects names that are unsafe in a command line or path
    scan_yaml = read_mapping(scan_dir / SCAN_FILE_NAME)
    outputs = _outputs(project, scan_yaml, entry)
    start = time.monotonic()
    check_disk_space(project.root)
    with (
        running_stage(scan_id, entry.name),
        scan_lock(
            project,
            scan_id,
            lambda: listeners.on_line("Another run is using this scan; waiting for it to finish."),
            entry.name,
        ),
        kept_outputs(scan_dir, entry.name, outputs, lambda: _is_recorded(project, scan_id, entry.name)),
    ):
        remove_abandoned(scan_dir)
        _restore_others(project, scan_yaml, scan_dir, entry)
        for message in (restore_broken_lock_file(project, scan_id), refresh_pipeline_file(project, scan_id)):
            if message:
                listeners.on_line(message)
        with listed_while_it_runs(project, scan_id, entry.name):
            skip = fresh and not force
            outcome = Outcome.UNCHANGED if skip else _run_dvc(project, scan_id, entry, listeners, force)
            if damaged(recorded_outputs(project, scan_id, entry.name)):
                outcome = _run_again(project, scan_id, entry, listeners)
        remove_checkpoints(scan_dir, entry.name)
        keep_spare_lock_file(project, scan_id)
        note_recorded(project, scan_id)
    metrics: dict[str, Any] = {}
    for path in entry.metrics:
        metrics |= read_metrics(project.root / resolve(path, scan_yaml))
    return StageReport(
        name=entry.name,
        outcome=outcome,
        seconds=round(time.monotonic() - start, 3),
        outputs=tuple(str(path.relative_to(project.root)) for path in outputs),
        metrics=metrics,
    )


def _outputs(project: Project, scan_yaml: dict[str, Any], entry: StageEntry) -> list[Path]:
    return [project.root / resolve(path, scan_yaml) for path in entry.outs]


def _restore_others(project: Project, scan_yaml: dict[str, Any], scan_dir: Path, entry: StageEntry) -> None:
    """Restore outputs kept by killed runs of other stages; the scan's lock is held, so none of them is alive."""
    killed = set(kept_stages(scan_dir)) - {entry.name}
    for other in scan_entries(project, scan_dir.name) if killed else ():
        if other.name in killed:
            restore_outputs(scan_dir, other.name, _outputs(project, scan_yaml, other))


def _run_dvc(project: Project, scan_id: str, entry: StageEntry, listeners: Listeners, force: bool) -> Outcome:
    command = [
        sys.executable,
        "-m",
        "pipelines.dvc.child",
        "--wait-for-lock",
        "repro",
        "--single-item",
        stage_address(project, scan_id, entry.name),
    ]
    if force:
        command.append("--force")
    deadline = time.monotonic() + entry.timeout_s
    events_path = project.state_dir / f"{scan_id}.events.jsonl"
    while True:
        began_s = time.time()
        before = _recorded_and_present(project, scan_id, entry)
        watched = _run_watched(command, project.root, events_path, listeners, deadline)
        text, error = "\n".join(watched.lines), watched.error
        if watched.exit_code == 0:
            break
        check_stop()
        if BUSY_MESSAGE in text and time.monotonic() < deadline:
            listeners.on_line("A 'dvc' command is using this scan; waiting for it to finish.")
            time.sleep(_BUSY_WAIT_S)
            continue
        if (
            error is None
            and time.monotonic() < deadline
            and recovered_from_broken_rwlock(project, text, began_s)
        ):
            listeners.on_line("A killed run left DVC's lock table corrupt; removed it, retrying.")
            continue
        raise _failure(
            entry.name, text, error, timed_out=time.monotonic() >= deadline, limit_s=entry.timeout_s
        )
    if watched.started:
        return Outcome.COMPLETED
    # The stage did not run: either all was there, or DVC took outputs from its cache.
    unchanged = before == _recorded_and_present(project, scan_id, entry)
    return Outcome.UNCHANGED if unchanged else Outcome.CACHED


def _recorded_and_present(project: Project, scan_id: str, entry: StageEntry) -> tuple[Any, list[Any]]:
    """Return what dvc.lock records of the stage, and inode, time and size of every output file."""
    scan_yaml = read_mapping(project.scan_dir(scan_id) / SCAN_FILE_NAME)
    files = [
        file
        for path in _outputs(project, scan_yaml, entry)
        for file in (sorted(path.rglob("*")) if path.is_dir() else [path])
    ]
    present = [(str(file), *_stamp(file)) for file in files]
    return recorded_stages(project.scan_dir(scan_id)).get(entry.name), present


def _stamp(file: Path) -> tuple[int, ...]:
    try:
        status = file.stat()
    except FileNotFoundError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size


def _is_recorded(project: Project, scan_id: str, stage: str) -> bool:
    recorded = recorded_outputs(project, scan_id, stage)
    return bool(recorded) and not damaged(recorded)


def _run_again(project: Project, scan_id: str, entry: StageEntry, listeners: Listeners) -> Outcome:
    """Replace outputs that differ from their recorded hashes: from the cache if it is valid, else recompute them."""
    bad = damaged(recorded_outputs(project, scan_id, entry.name))
    names = ", ".join(item.path.name for item in bad)
    listeners.on_line(f"{entry.name}: content of {names} differs from the recorded hash; recreating it.")
    discard(project, bad)
    outcome = _run_dvc(project, scan_id, entry, listeners, force=False)
    bad = damaged(recorded_outputs(project, scan_id, entry.name))
    if not bad:
        return outcome
    raise StageFailedError(
        f"{entry.name}: {bad[0].path} changed on disk right after writing. Its content must match the recorded hash. "
        "Check the disk (dmesg, smartctl)."
    )


def _failure(
    stage: str, text: str, error: dict[str, Any] | None, *, timed_out: bool, limit_s: float
) -> InputError | TryAgainError | StageFailedError | OSError:
    if timed_out:
        return StageFailedError(
            f"{stage}: timed out after {limit_s:.0f} s. A stage must finish within its timeout. Use a coarser mesh or "
            f"fewer iterations, or raise timeout_s of {stage} in its description.py and run 'scan2cut dev pipeline'."
        )
    os_error = _OS_ERROR.search(text) if error is None else None
    if os_error and int(os_error["number"]) in REASONS:
        return OSError(
            int(os_error["number"]), os.strerror(int(os_error["number"])), os_error["path"] or "DVC's cache"
        )
    if error is None:
        tail = "\n".join(text.splitlines()[-12:])
        return StageFailedError(f"{stage}: DVC could not run the stage. Its output:\n{tail}")
    if error["exit_code"] == EXIT_BAD_INPUT:
        return InputError(error["message"])
    if error["exit_code"] == EXIT_INPUTS_CHANGED:
        return TryAgainError(error["message"])
    return StageFailedError(error["message"])


@dataclass(frozen=True)
class _Watched:
    """A finished DVC process."""

    exit_code: int
    lines: list[str]
    started: bool
    """Whether DVC started the stage."""
    error: dict[str, Any] | None
    """The stage's own error event."""


def _run_watched(
    command: list[str], cwd: Path, events_path: Path, listeners: Listeners, deadline: float
) -> _Watched:
    """Run the command and pass on its lines and the stage's events."""
    lines: list[str] = []
    error: dict[str, Any] | None = None
    started = False
    with _empty_file(events_path):
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=_environment(str(events_path)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,  # Ctrl-C reaches only the runner, which then kills this process
        )
        tail = EventsTail(events_path)
        incoming = _lines_of(process)
        finished = False
        try:
            while not finished:
                try:
                    line = incoming.get(timeout=_POLL_S)
                    finished = line is None
                except queue.Empty:
                    line = None
                for event in tail.new_events():
                    started = started or event["kind"] == "started"
                    if event["kind"] == "progress":
                        listeners.on_progress(event["fraction"], event["message"])
                    elif event["kind"] == "picture":
                        listeners.on_picture(Path(event["path"]))
                    elif event["kind"] == "error":
                        error = event
                if line:
                    line = redact(line)
                    lines.append(line)
                    listeners.on_output(line)
                if time.monotonic() > deadline or STOP.is_set():
                    process.kill()
            return _Watched(process.wait(), lines, started, error)
        finally:
            end_child(process)


@contextmanager
def _empty_file(path: Path) -> Iterator[None]:
    """Create an empty file and remove it at the end; reuse one left by a killed run."""
    path.write_bytes(b"")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _lines_of(process: subprocess.Popen[str]) -> "queue.Queue[str | None]":
    """Return a queue of the process's output lines, then None; a thread reads, so that the caller can time out."""
    incoming: queue.Queue[str | None] = queue.Queue()

    def pump() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            incoming.put(line.rstrip("\n"))
        incoming.put(None)

    threading.Thread(target=pump, daemon=True).start()
    return incoming


def _environment(events_path: str) -> dict[str, str]:
    return {
        **os.environ,
        EVENTS_VARIABLE: events_path,
        PARENT_VARIABLE: str(os.getpid()),
        "PYTHONUNBUFFERED": "1",
    }
