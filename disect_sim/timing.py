"""Seconds by activity."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up time under names: the clock's, which costs nothing to ask; the CPU's own is a system call."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.perf_counter()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time spent in the `with` block under this name."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start

    def split(self) -> dict[str, float]:
        """Seconds by activity, with what was not named as "other"."""
        total = time.perf_counter() - self._started
        return self.seconds | {"other": max(0.0, total - sum(self.seconds.values()))}
