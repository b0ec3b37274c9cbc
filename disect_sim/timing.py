"""CPU seconds by activity."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Stopwatch:
    """Adds up process CPU time under names."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._started = time.process_time()

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time spent in the `with` block under this name."""
        start = time.process_time()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - start

    def split(self) -> dict[str, float]:
        """Seconds by activity, with what was not named as "other"."""
        total = time.process_time() - self._started
        return self.seconds | {"other": max(0.0, total - sum(self.seconds.values()))}
