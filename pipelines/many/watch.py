"""`scan2cut watch`: run every scan that arrives in a folder with its log."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Protocol

from pipelines.dvc.pipeline_file import needed_for, read_template
from pipelines.dvc.stopping import check_stop, inside_flow
from pipelines.many.batch import Say, scan_pool
from pipelines.many.inbox import (
    Delivery,
    InboxMemory,
    Remembered,
    Settling,
    State,
    find_deliveries,
    signature,
)
from pipelines.project import Project
from pipelines.runs.run_summary import RunResult, exit_code_of, message_of
from pipelines.scans.register import (
    PlaceError,
    Request,
    forget_scan,
    register_scan,
    registered_scan,
    scan_id_of,
)
from stages.runtime.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, InputError
from stages.runtime.files import sha256_of_file, sha256_of_start, sha256_of_value

_STATES: dict[int, State] = {EXIT_DONE: "done", EXIT_REFUSED: "done", EXIT_BAD_INPUT: "refused"}
_MAX_SETTLE_S = 3600.0
_LEAST_PAUSE_S = 0.05
"""Least time between two polls. The inbox is polled because files must be unchanged for a while anyway, network drives
send no notifications, and a subscription would follow links out of the inbox."""
_FINAL: tuple[State, ...] = ("done", "refused")
"""States after which the same contents are not run again."""


class _Runner(Protocol):
    """Runs requests in the background."""

    def submit(self, request: Request, *, target: str | None = None) -> Future[RunResult]:
        """Queue one scan, up to the target if given."""
        ...


class _InboxWatcher:
    """Poll the inbox and start runs; a poll is cheap and may be repeated at any time."""

    def __init__(
        self,
        project: Project,
        inbox: Path,
        memory: InboxMemory,
        runner: _Runner,
        say: Say,
        *,
        settle_s: float,
        target: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._project, self._inbox, self._memory = project, inbox, memory
        self._runner, self._say, self._target = runner, say, target
        self._clock = clock
        self._settling = Settling(settle_s)
        self._decided: dict[str, object] = {}
        """Delivery → signatures of its files when it was handled, so that nothing is hashed twice."""
        self._running: dict[str, tuple[Remembered, Future[RunResult], bool]] = {}
        """Key → record, run, and whether the scan was new."""
        self._tried: set[str] = set()
        """Keys that failed since this watcher started; retried after a restart."""
        self.exit_code = EXIT_DONE
        """Worst exit code so far: 0, 1 for a failure, 2 for a rejected input."""

    def look(self) -> None:
        """Collect finished runs, then start complete deliveries. No file in the inbox can end the watcher."""
        self.collect()
        try:
            deliveries = find_deliveries(self._inbox)
        except OSError as error:
            self._say_once("", f"Can't read {self._inbox} ({error.strerror}); retrying.")
            return
        for delivery in deliveries:
            signatures = tuple(signature(path) for path in delivery.files)
            if self._decided.get(delivery.name) == (signatures, delivery.waits_for):
                continue
            if delivery.waits_for or delivery.problem:
                self._decided[delivery.name] = (signatures, delivery.waits_for)
                self._say(delivery.problem or f"{delivery.name}: waiting for {delivery.waits_for}.")
                self._note(EXIT_BAD_INPUT if delivery.problem else EXIT_DONE)
            elif self._settling.is_whole(delivery.files, self._clock()):
                try:
                    self._decide(delivery)
                except Exception as error:  # noqa: BLE001 -- a failed delivery must not affect the others
                    self._say(f"{delivery.name}: {message_of(error)}")
                    self._note(exit_code_of(error))
                self._decided[delivery.name] = (signatures, delivery.waits_for)

    def _say_once(self, name: str, message: str) -> None:
        if self._decided.get(name) != message:
            self._decided[name] = message
            self._say(message)

    def _note(self, exit_code: int) -> None:
        self.exit_code = max(self.exit_code, exit_code)

    @property
    def idle(self) -> bool:
        """Return whether no run is active."""
        return not self._running

    def _decide(self, delivery: Delivery) -> None:
        assert delivery.scan is not None
        contents = {str(path): (path.stat().st_size, sha256_of_file(path)) for path in delivery.files}
        key = sha256_of_value([digest for _, digest in contents.values()])
        earlier = self._memory.state(key)
        if earlier and (key in self._running or key in self._tried or earlier.state in _FINAL):
            if earlier.scan != str(delivery.scan):
                self._say(f"{delivery.name} has the same content as {earlier.scan_id}; skipped.")
            return
        self._start(delivery, key, contents)

    def _start(self, delivery: Delivery, key: str, contents: dict[str, tuple[int, str]]) -> None:
        assert delivery.scan is not None
        choices = delivery.choices
        scan_id = scan_id_of(Path(str(choices.get("id", delivery.scan.stem)) + ".x"))
        request = Request(
            delivery.scan,
            delivery.log,
            scan_id=scan_id,
            material=choices.get("material"),
            overrides=choices.get("settings", {}),
            air=delivery.air,
            further=delivery.further,
            replace=any(self._has_grown(Path(path), size) for path, (size, _) in contents.items()),
        )
        is_new = scan_id not in self._project.scan_ids()
        line = Remembered(key, str(delivery.scan), scan_id, "started", contents=contents)
        self._memory.add(line)
        try:
            register_scan(self._project, request)
        except PlaceError:
            raise  # not the delivery's fault: retried after a restart
        except InputError as error:
            self._finish(line, "refused", str(error))
            self._note(EXIT_BAD_INPUT)
            return
        self._say(f"{delivery.name} is complete; starting run {scan_id}.")
        stored, _ = registered_scan(self._project, scan_id)
        future = self._runner.submit(Request(stored, scan_id=scan_id), target=self._target)
        self._running[key] = (line, future, is_new)

    def _has_grown(self, path: Path, size: int) -> bool:
        """Return whether an earlier run used only the beginning of this file, because copying had stalled."""
        before = self._memory.content(path)
        return before is not None and before[0] < size and sha256_of_start(path, before[0]) == before[1]

    def collect(self) -> None:
        """Record the outcome of finished runs."""
        for key, (line, future, is_new) in list(self._running.items()):
            if not future.done():
                continue
            del self._running[key]
            try:
                self._record(key, line, future.result(), is_new=is_new)
            except Exception as error:  # noqa: BLE001 -- e.g. a full disk; other deliveries continue
                self._tried.add(key)
                self._say(f"{line.scan_id}: failed. {message_of(error)}")
                self._note(EXIT_FAILED)

    def _record(self, key: str, line: Remembered, result: RunResult, *, is_new: bool) -> None:
        is_final = not isinstance(result.exception, PlaceError)
        state = _STATES.get(result.exit_code, "failed") if is_final else "failed"
        self._note(result.exit_code)
        if state == "failed":
            self._tried.add(key)
        if state == "refused" and is_new:
            forget_scan(self._project, line.scan_id or "")
        self._finish(line, state, "" if result.in_words == "done" else result.in_words)

    def _finish(self, line: Remembered, state: State, message: str) -> None:
        self._memory.add(replace(line, state=state, sentence=message))
        outcome = "rejected" if state == "refused" else state
        self._say(f"{line.scan_id}: {outcome}. {message}".rstrip())


def watch(
    project: Project,
    inbox: Path,
    *,
    scans_at_once: int,
    settle_s: float,
    say: Say,
    stop: Event,
    once: bool = False,
    target: str | None = None,
) -> int:
    """Watch the inbox until `stop` is set, or with `once` until its current files have run; return an exit code.

    With a target, run only that stage and its upstream stages.
    """
    if target is not None:
        needed_for(target, read_template(project.template))  # rejects an unknown stage
    if not inbox.is_dir():
        raise InputError(f"{inbox} is not a folder. The inbox must be an existing folder. Create it first.")
    if not 0 < settle_s <= _MAX_SETTLE_S:
        raise InputError(
            f"--settle-s must be above 0 and at most {_MAX_SETTLE_S:g} seconds, got {settle_s:g}. Use e.g. 5."
        )
    memory = InboxMemory(project.scans_dir.parent / "inbox_memory.jsonl")
    memory.check_place()
    with scan_pool(project, scans_at_once, say) as pool, inside_flow():
        watcher = _InboxWatcher(project, inbox, memory, pool, say, settle_s=settle_s, target=target)
        say(f"Watching {inbox}, up to {scans_at_once} scans in parallel. Press Ctrl-C to stop.")
        watcher.look()
        started_s = time.monotonic()
        pause_s = max(_LEAST_PAUSE_S, settle_s / 2.0)
        while not stop.wait(pause_s):
            watcher.look()
            if once and watcher.idle and time.monotonic() - started_s > 3 * settle_s + 1.0:
                break
        check_stop()
        while not watcher.idle:
            time.sleep(0.2)
            check_stop()
            watcher.collect()
    return watcher.exit_code if once else EXIT_DONE
