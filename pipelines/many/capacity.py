"""How many scans this machine can work on at once: bounded by cores and by memory."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

from disect_sim.errors import InputError

SQLITE_LIMIT = 4
"""More writers at once made Prefect's SQLite answer 503 (docs/scaling.md); PostgreSQL has no such limit."""
DATABASE_VARIABLE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
CGROUP = Path("/sys/fs/cgroup")
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS")


@dataclass(frozen=True)
class Capacity:
    """A number of scans and the reason for it."""

    scans: int
    reason: str


def capacity(memory_gb_per_scan: float, wanted: int | None = None) -> Capacity:
    """As many scans as there are cores and as fit in the free memory; `wanted` is checked against the memory."""
    if not 0 < memory_gb_per_scan < math.inf:
        raise InputError(
            f"--memory-gb is {memory_gb_per_scan:g}. A scan needs some memory. Give the peak of one scan, e.g. 2."
        )
    if wanted is not None and wanted < 1:
        raise InputError(f"--workers is {wanted}. At least one scan must run. Give 1 or more.")
    free_gb = free_memory_gb()
    fitting = max(1, int(free_gb / memory_gb_per_scan))
    bounds = {
        "cores": cores(),
        f"{free_gb:.1f} GB of free memory at {memory_gb_per_scan:g} GB a scan": fitting,
    }
    if wanted is not None:
        bounds = {"--workers": wanted, **dict(list(bounds.items())[1:])}
    elif not os.environ.get(DATABASE_VARIABLE, "").startswith("postgresql"):
        bounds["Prefect's SQLite"] = SQLITE_LIMIT
    reason = min(bounds, key=lambda name: bounds[name])
    return Capacity(bounds[reason], reason)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory_gb() -> float:
    """Memory that is free [GB]: the machine's, or the container's if that is less."""
    import psutil

    free = int(psutil.virtual_memory().available)
    limit, used = _number(CGROUP / "memory.max"), _number(CGROUP / "memory.current")
    if limit is not None and used is not None:
        free = min(free, max(0, limit - used))
    return free / 1e9


def share_cores(scans: int) -> None:
    """Let the stages' libraries start no more threads than their share of the cores."""
    for variable in THREAD_VARIABLES:
        os.environ.setdefault(variable, str(max(1, cores() // scans)))


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
