"""`scan2cut watch`: a run for every scan that arrives in a folder with its log."""

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
from stages.runtime.errors import EXIT_BAD_INPUT, EXIT_DONE, EXIT_FAILED, InputError
from stages.runtime.files import sha256_of_file, sha256_of_start, sha256_of_value

_STATES: dict[int, State] = {EXIT_DONE: "done", EXIT_BAD_INPUT: "refused"}
_MAX_SETTLE_S = 3600.0
_LEAST_PAUSE_S = 0.05
"""Between two looks. The inbox is looked at, not subscribed to: a file must be left alone for a while anyway, network
drives announce nothing, and a subscription follows links out of the inbox, to folders that it may not read."""
_FINAL: tuple[State, ...] = ("done", "refused")
"""States in which the same contents are not run again."""


class _Runner(Protocol):
    """What runs a request in the background."""

    def submit(self, request: Request, *, target: str | None = None) -> Future[RunResult]:
        """Queue one scan, up to the target if there is one."""
        ...


class InboxWatcher:
    """Looks at the inbox and decides; one look is cheap and may be repeated at any time."""

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
        """Delivery → the look of its files when it was decided on, so that nothing is hashed twice."""
        self._running: dict[str, tuple[Remembered, Future[RunResult], bool]] = {}
        """Key → its line, its run, and whether the scan was new."""
        self._tried: set[str] = set()
        """Keys that failed since this watcher began; they are tried again after a restart."""
        self.exit_code = EXIT_DONE
        """The worst of what this watcher has seen: 0, 1 for a failure, 2 for a refusal."""

    def look(self) -> None:
        """Take note of finished runs, then start what has arrived whole. No file in the inbox can end the watcher."""
        self.collect()
        try:
            deliveries = find_deliveries(self._inbox)
        except OSError as error:
            self._say_once("", f"{self._inbox} can't be looked at ({error.strerror}); trying again.")
            return
        for delivery in deliveries:
            look = tuple(signature(path) for path in delivery.files)
            if self._decided.get(delivery.name) == (look, delivery.waits_for):
                continue
            if delivery.waits_for or delivery.problem:
                self._decided[delivery.name] = (look, delivery.waits_for)
                self._say(delivery.problem or f"{delivery.name} waits for {delivery.waits_for}.")
                self._note(EXIT_BAD_INPUT if delivery.problem else EXIT_DONE)
            elif self._settling.is_whole(delivery.files, self._clock()):
                try:
                    self._decide(delivery)
                except Exception as error:  # noqa: BLE001 -- one delivery must not end those after it
                    self._say(f"{delivery.name}: {message_of(error)}")
                    self._note(exit_code_of(error))
                self._decided[delivery.name] = (look, delivery.waits_for)

    def _say_once(self, name: str, sentence: str) -> None:
        if self._decided.get(name) != sentence:
            self._decided[name] = sentence
            self._say(sentence)

    def _note(self, exit_code: int) -> None:
        self.exit_code = max(self.exit_code, exit_code)

    @property
    def idle(self) -> bool:
        """True if nothing runs."""
        return not self._running

    def _decide(self, delivery: Delivery) -> None:
        assert delivery.scan is not None
        contents = {str(path): (path.stat().st_size, sha256_of_file(path)) for path in delivery.files}
        key = sha256_of_value([digest for _, digest in contents.values()])
        known = self._memory.state(key)
        if known and (key in self._running or key in self._tried or known.state in _FINAL):
            if known.scan != str(delivery.scan):
                self._say(f"{delivery.name} has the same content as {known.scan_id}; it is not run again.")
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
            raise  # the delivery may be good: it is tried again after a restart
        except InputError as error:
            self._finish(line, "refused", str(error))
            self._note(EXIT_BAD_INPUT)
            return
        self._say(f"{delivery.name} is complete: run {scan_id} begins.")
        stored, _ = registered_scan(self._project, scan_id)
        future = self._runner.submit(Request(stored, scan_id=scan_id), target=self._target)
        self._running[key] = (line, future, is_new)

    def _has_grown(self, path: Path, size: int) -> bool:
        """True if an earlier run took the beginning of this file: its copy had stalled."""
        before = self._memory.content(path)
        return before is not None and before[0] < size and sha256_of_start(path, before[0]) == before[1]

    def collect(self) -> None:
        """Take note of finished runs."""
        for key, (line, future, is_new) in list(self._running.items()):
            if not future.done():
                continue
            del self._running[key]
            try:
                self._take_note(key, line, future.result(), is_new=is_new)
            except Exception as error:  # noqa: BLE001 -- a full disk must not end the other deliveries
                self._tried.add(key)
                self._say(f"{line.scan_id}: failed. {message_of(error)}")
                self._note(EXIT_FAILED)

    def _take_note(self, key: str, line: Remembered, result: RunResult, *, is_new: bool) -> None:
        is_final = not isinstance(result.exception, PlaceError)
        state = _STATES.get(result.exit_code, "failed") if is_final else "failed"
        self._note(result.exit_code)
        if state == "failed":
            self._tried.add(key)
        if state == "refused" and is_new:
            forget_scan(self._project, line.scan_id or "")
        self._finish(line, state, "" if result.in_words == "done" else result.in_words)

    def _finish(self, line: Remembered, state: State, sentence: str) -> None:
        self._memory.add(replace(line, state=state, sentence=sentence))
        self._say(f"{line.scan_id}: {state}. {sentence}".rstrip())


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
    """Watch until `stop` is set; with `once`, until everything that is there now has been run. Returns an exit code.

    With a target, only that stage and what it needs is run.
    """
    if target is not None:
        needed_for(target, read_template(project.template))  # refuses a stage that does not exist
    if not inbox.is_dir():
        raise InputError(f"{inbox} is not a folder. Scans and logs are put into one. Make it first.")
    if not 0 < settle_s <= _MAX_SETTLE_S:
        raise InputError(
            f"--settle-s is {settle_s:g}. It is a time in seconds, at most {_MAX_SETTLE_S:g}. Give one, e.g. 5."
        )
    memory = InboxMemory(project.scans_dir.parent / "inbox_memory.jsonl")
    memory.check_place()
    with scan_pool(project, scans_at_once, say) as pool, inside_flow():
        watcher = InboxWatcher(project, inbox, memory, pool, say, settle_s=settle_s, target=target)
        say(f"Watching {inbox}; {scans_at_once} at once; Ctrl-C ends it.")
        watcher.look()
        begun_s = time.monotonic()
        pause_s = max(_LEAST_PAUSE_S, settle_s / 2.0)
        while not stop.wait(pause_s):
            watcher.look()
            if once and watcher.idle and time.monotonic() - begun_s > 3 * settle_s + 1.0:
                break
        check_stop()
        while not watcher.idle:
            time.sleep(0.2)
            check_stop()
            watcher.collect()
    return watcher.exit_code if once else EXIT_DONE
