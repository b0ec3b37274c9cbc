"""A bound on the memory that reading one file may take: a few kilobytes can unpack to gigabytes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from disect_sim.errors import InputError

EXPANSION = 10
"""Memory over file size that an honest recording may take while it is read: its messages become Python objects."""


@contextmanager
def memory_bound(max_bytes: int, source: str) -> Iterator[None]:
    """Within the block this process may take EXPANSION * max_bytes more than it has; InputError where it wants more.

    The bound is the kernel's, so it holds for whatever library unpacks. `max_bytes` is the largest file that is read.
    """
    before = resource.getrlimit(resource.RLIMIT_AS)
    allowed = _address_space() + EXPANSION * max_bytes
    if before[1] != resource.RLIM_INFINITY:
        allowed = min(allowed, before[1])
    resource.setrlimit(resource.RLIMIT_AS, (allowed, before[1]))
    try:
        yield
    except MemoryError as error:
        raise InputError(
            f"{source} unpacks to more than {EXPANSION * max_bytes / 1e6:.0f} MB. At most {EXPANSION} times "
            f"ingest.max_bytes are unpacked. Record a shorter cut, or raise ingest.max_bytes."
        ) from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def _address_space() -> int:
    """Bytes of this process's address space (Linux)."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * resource.getpagesize()
