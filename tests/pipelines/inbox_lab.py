"""A watcher of an inbox with a clock and runs that the test commands."""

from concurrent.futures import Future

from pipelines.many.inbox import InboxMemory
from pipelines.many.watch import _InboxWatcher
from pipelines.runs.run_summary import RunResult

SETTLE_S = 5.0


class Runs:
    """Stands in for the pool: remembers requests, finishes them on command."""

    def __init__(self):
        self.requests, self.futures, self.targets = [], [], []

    def submit(self, request, *, target=None):
        future = Future()
        self.requests.append(request)
        self.targets.append(target)
        self.futures.append(future)
        return future

    def finish(self, exit_code=0, error=None):
        self.futures[-1].set_result(RunResult(exit_code=exit_code, error=error))

    @property
    def ids(self):
        return [request.scan_id for request in self.requests]


class Lab:
    """A watcher with a clock of its own."""

    def __init__(self, project, folder):
        self.project, self.inbox = project, folder / "inbox"
        self.inbox.mkdir(exist_ok=True)
        self.lines, self.now, self.runs = [], 0.0, Runs()
        self.restart()

    def restart(self):
        memory = InboxMemory(self.project.root / "data" / "inbox_memory.jsonl")
        self.watcher = _InboxWatcher(
            self.project,
            self.inbox,
            memory,
            self.runs,
            self.lines.append,
            settle_s=SETTLE_S,
            clock=lambda: self.now,
        )

    def put(self, name, text):
        path = self.inbox / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    def look(self, seconds=0.0):
        self.now += seconds
        self.watcher.look()

    def settle(self):
        self.look()
        self.look(SETTLE_S)
