"""Keeps native libraries from writing to standard output, which belongs to the caller."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def native_stdout_silenced() -> Iterator[None]:
    """Discard what C code prints inside the `with` block (cholespy's CHOLMOD announces every indefinite matrix)."""
    flush = ctypes.CDLL(None).fflush
    flush(None)
    kept = os.dup(1)
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, 1)
    try:
        yield
    finally:
        flush(None)
        os.dup2(kept, 1)
        os.close(sink)
        os.close(kept)
