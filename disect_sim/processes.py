"""Worker processes for long jobs, with live messages, that end with the process that started them; cores, threads and
standard streams of a process."""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

_PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""
_LIBC = ctypes.CDLL(None)


def end_with_parent(parent: int) -> bool:
    """Ask the kernel to kill this process when its parent dies (Linux only); return False if the parent is already
    gone.

    The parent may die while this process is still importing, so its process id is compared as well.
    """
    if sys.platform.startswith("linux"):
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


_POLL_S = 0.5
"""Interval at which the parent polls for messages [s]."""
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Environment variables with which NumPy and torch limit their threads."""
_Job = TypeVar("_Job")
_Answer = TypeVar("_Answer")
_Listener = Callable[[Any], None]

_send: _Listener | None = None
"""Message callback of the current job, in a worker or in-process."""
_queue: Any = None
"""Message queue to the parent, in a worker."""


class WorkerLostError(RuntimeError):
    """A worker process ended without an answer."""


def cores_given() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def limit_torch_to_one_thread() -> None:
    """Let torch use one thread: the tensors here are small, and more threads only cost overhead."""
    import torch

    torch.set_num_threads(1)


STDOUT, STDERR = 1, 2


@contextmanager
def native_output_silenced(descriptor: int) -> Iterator[None]:
    """Discard what native libraries write to STDOUT or STDERR inside the `with` block."""
    _LIBC.fflush(None)
    kept = os.dup(descriptor)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, descriptor)
        yield
    finally:
        _LIBC.fflush(None)
        os.dup2(kept, descriptor)
        os.close(sink)
        os.close(kept)


def report_to_parent(message: Any) -> None:
    """Send a message from a job to the `on_message` of its run; no effect outside of a job."""
    if _send is not None:
        _send(message)


class Workers:
    """Up to `processes` processes (0: one per core) that take jobs until the block ends.

    They start with the first jobs and stay alive, because starting costs seconds. With one process, or for a single
    job, the work runs in this process with the same answers.
    """

    def __init__(self, processes: int = 0) -> None:
        self.processes = processes if processes > 0 else cores_given()
        self._pool: ProcessPoolExecutor | None = None
        self._messages: Any = None
        self._batch = 0

    def __enter__(self) -> "Workers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def run(
        self,
        work: Callable[[_Job], _Answer],
        jobs: Iterable[_Job],
        *,
        on_message: _Listener = lambda message: None,
        on_done: Callable[[int], None] = lambda done: None,
    ) -> list[_Answer]:
        """Run `work` on every job; answers are in job order. Work, jobs and answers must be picklable.

        `on_message` receives everything that the jobs report, `on_done` the number of finished jobs. The first error
        is raised after the running jobs have ended; jobs that have not begun are dropped.
        """
        waiting = list(jobs)
        if self.processes == 1 or len(waiting) < 2:
            return _run_here(work, waiting, on_message, on_done)
        self._batch += 1
        pool = self._started()
        try:
            futures = [pool.submit(_run_one, self._batch, pickle.dumps((work, job))) for job in waiting]
            self._wait(futures, on_message, on_done)
            return [pickle.loads(future.result()) for future in futures]
        except BrokenProcessPool as error:
            raise WorkerLostError(
                f"One of {self.processes} worker processes ended without an answer, as happens when memory is short. "
                "Each process needs its own memory. Lower the number of processes, or free memory."
            ) from error

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")  # a fork would copy threads of torch and Warp
            self._messages = (
                context.SimpleQueue()
            )  # written before the answer, so that no message arrives after it
            self._pool = ProcessPoolExecutor(
                self.processes,
                mp_context=context,
                initializer=_prepare,
                initargs=(self._messages, os.getpid()),
            )
        return self._pool

    def _wait(
        self, futures: list[Future[bytes]], on_message: _Listener, on_done: Callable[[int], None]
    ) -> None:
        open_futures = set(futures)
        while open_futures:
            done, open_futures = wait(open_futures, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            self._pass_on(on_message)
            failed = next((future for future in done if future.exception() is not None), None)
            if failed is not None:
                self._let_end(open_futures)
                failed.result()
            if done:
                on_done(len(futures) - len(open_futures))

    def _let_end(self, futures: set[Future[bytes]]) -> None:
        """Drop pending jobs and read messages while the rest runs: a job whose messages are not read does not end."""
        running = {future for future in futures if not future.cancel()}
        while running:
            running = wait(running, timeout=_POLL_S).not_done
            self._pass_on(lambda message: None)

    def _pass_on(self, on_message: _Listener) -> None:
        """Deliver messages of this batch; drop those of earlier batches."""
        while not self._messages.empty():
            batch, message = pickle.loads(self._messages.get())
            if batch == self._batch:
                on_message(message)


def run_parallel(
    work: Callable[[_Job], _Answer],
    jobs: Iterable[_Job],
    *,
    processes: int,
    on_message: _Listener = lambda message: None,
) -> list[_Answer]:
    """Run one batch in new workers; see Workers.run."""
    with Workers(processes) as workers:
        return workers.run(work, jobs, on_message=on_message)


def _run_here(
    work: Callable[[_Job], _Answer], jobs: list[_Job], on_message: _Listener, on_done: Callable[[int], None]
) -> list[_Answer]:
    global _send
    before, _send = _send, on_message
    answers = []
    try:
        for job in jobs:
            answers.append(work(job))
            on_done(len(answers))
    finally:
        _send = before
    return answers


def _prepare(messages: Any, parent: int) -> None:
    """Initialise a worker before its first job."""
    global _queue
    if not end_with_parent(parent):
        os._exit(1)
    for variable in THREAD_VARIABLES:  # the workers share the cores already
        os.putenv(variable, "1")
    if "torch" in sys.modules:  # too late for the variables
        limit_torch_to_one_thread()
    _queue = messages


def _run_one(batch: int, work_and_job: bytes) -> bytes:
    """Run one job in a worker.

    Arguments and answers are bytes: torch would share tensors through sockets in a temporary folder.
    """
    global _send
    _send = partial(_put, batch)
    work, job = pickle.loads(work_and_job)
    return pickle.dumps(work(job))


def _put(batch: int, message: Any) -> None:
    _queue.put(pickle.dumps((batch, message)))
