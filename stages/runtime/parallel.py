"""A few long jobs in processes of their own, with live messages, that die with the stage."""

import multiprocessing
import os
import queue
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from typing import Any, TypeVar

import torch

from stages.runtime.guard import die_with_parent

POLL_S = 0.5
"""How often the parent looks for messages [s]."""
Job = TypeVar("Job")
Answer = TypeVar("Answer")
_messages: Any = None
"""In a worker: the queue to the parent."""


def _prepare(messages: Any, parent: int) -> None:
    global _messages
    die_with_parent(parent)
    torch.set_num_threads(1)  # the jobs share the cores already
    _messages = messages


def report_to_parent(message: Any) -> None:
    """Send a message from a job to the `on_message` of its run_parallel; in the parent itself nothing happens."""
    if _messages is not None:
        _messages.put(message)


def run_parallel(
    work: Callable[[Job], Answer],
    jobs: Iterable[Job],
    *,
    processes: int,
    on_message: Callable[[Any], None] = lambda message: None,
) -> list[Answer]:
    """`work` of every job, in the order of the jobs; both must be picklable. The first error is raised here."""
    waiting = list(jobs)
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    workers = max(1, min(processes, len(waiting)))
    preparation = (messages, os.getpid())
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_prepare, initargs=preparation) as pool:
        futures = [pool.submit(work, job) for job in waiting]
        open_futures = set(futures)
        while open_futures:
            done, open_futures = wait(open_futures, timeout=POLL_S, return_when=FIRST_COMPLETED)
            _pass_on(messages, on_message)
            failed = next((future for future in done if future.exception() is not None), None)
            if failed is not None:
                pool.shutdown(wait=False, cancel_futures=True)
                failed.result()
        return [future.result() for future in futures]


def _pass_on(messages: Any, on_message: Callable[[Any], None]) -> None:
    while True:
        try:
            on_message(messages.get_nowait())
        except queue.Empty:
            return
