"""A process that must not outlive the one that started it."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h."""
_LIBC = ctypes.CDLL(None)


def end_with_parent(parent: int) -> bool:
    """Ask the kernel to kill this process when its parent dies (Linux only); False if that is gone already.

    The parent may die while this process is still importing, so its process id is compared as well.
    """
    if sys.platform.startswith("linux"):
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent
