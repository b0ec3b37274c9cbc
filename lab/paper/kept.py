"""What an experiment has found so far, as JSON: a killed one goes on with the step that it was in."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from stages.runtime.files import write_bytes_atomic

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "experiments"
TELL_S = 10.0
UNFINISHED = "unfinished"
"""In the file: the step that a killed run was in, and the CPU time that it had taken."""


class Kept:
    """Steps that are done, by name; delete the file to begin again. One that was done in another size is done again."""

    def __init__(self, name: str, folder: Path = FOLDER) -> None:
        self.folder = folder / name
        """For checkpoints of the steps."""
        self._path = folder / f"{name}.json"
        self._last_s = time.monotonic()
        self._begun: tuple[str, str, float] | None = None
        """The step that is being done, its size, and the CPU time that it began at, killed runs before it included."""
        self.steps: dict[str, Any] = json.loads(self._path.read_text()) if self._path.is_file() else {}

    def once(self, step: str, size: object, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The step's result: kept, or found now; `cpu_s` is what it took in processes and their children.

        What killed runs of the step took counts, but for their last seconds (see `tell`).
        """
        if self.steps.get(step, {}).get("size") != repr(size):
            spent = self.steps.get(UNFINISHED, {})
            same = (spent.get("step"), spent.get("size")) == (step, repr(size))
            self._begun = (step, repr(size), _cpu_s() - (spent["cpu_s"] if same else 0.0))
            found = _plain(work())
            self.steps[step] = found | {"cpu_s": round(_cpu_s() - self._begun[2], 1), "size": repr(size)}
            if self.steps.get(UNFINISHED, {}).get("step") == step:
                del self.steps[UNFINISHED]
            self._begun = None
            self._save()
        result: dict[str, Any] = self.steps[step]
        return result

    def tell(self, share: float, text: str) -> None:
        """A line of progress on the terminal, not more often than every TELL_S; the time so far is kept then."""
        if time.monotonic() - self._last_s >= TELL_S:
            self._last_s = time.monotonic()
            sys.stderr.write(f"{self._path.stem} {100.0 * share:3.0f} % {text}\n")
            if self._begun is not None:
                step, size, since = self._begun
                self.steps[UNFINISHED] = {"step": step, "size": size, "cpu_s": round(_cpu_s() - since, 1)}
                self._save()

    def _save(self) -> None:
        write_bytes_atomic(self._path, (json.dumps(self.steps, indent=1) + "\n").encode())


def _cpu_s() -> float:
    times = time.process_time()
    import resource

    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return times + children.ru_utime + children.ru_stime


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value
