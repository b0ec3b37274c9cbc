"""Errors a user can correct, exit codes, disk errors as messages, and processes without a parent.

Stages and pipelines raise `InputError` with what was wrong, the rule and the remedy.
"""

import difflib
import errno
import os
from collections.abc import Iterable

from disect_sim.outcome import InputError

__all__ = ["InputError"]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
"""Input rejected; a message on stderr says what is wrong, the rule and the remedy."""
EXIT_REFUSED = 3
"""Every stage ran, but the motion is not certified, or a simulated cut did not happen."""
EXIT_INPUTS_CHANGED = 75
"""EX_TEMPFAIL of sysexits.h: retry."""
EXIT_INTERRUPTED = 130
"""Exit code of a shell for Ctrl-C."""


REASONS = {
    errno.ENOSPC: ("the disk is full", "Free some space"),
    errno.EDQUOT: ("the disk quota is exceeded", "Free some space or raise the quota"),
    errno.EFBIG: ("the file is larger than this account may write", "Raise the limit (ulimit -f)"),
    errno.EROFS: ("the disk is read-only", "Remount it writable"),
    errno.EACCES: ("this account may not write there", "Change the owner or the permissions"),
    errno.EPERM: ("this account lacks permission", "Change the owner or the permissions"),
    errno.ENAMETOOLONG: ("the file name is too long", "Choose a shorter one"),
    errno.ELOOP: ("symbolic links form a loop", "Give the file itself"),
    errno.EIO: ("disk input/output error", "Check the disk (dmesg, smartctl)"),
}


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return " Did you mean 'apple'?" for the choice nearest to a misspelt word; empty if none is near."""
    near = difflib.get_close_matches(word[:100].lower(), list(choices), n=1, cutoff=0.6)
    return f" Did you mean {near[0]!r}?" if near else ""


_NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Permanent until permissions change; reject as bad input if hit before any work started."""

_NO_NAME = (errno.ENAMETOOLONG, errno.ELOOP)
"""Errors caused by a given file name."""


def is_bad_input(error: BaseException) -> bool:
    """Return whether the user must change permissions or a file name."""
    return is_not_allowed(error) or (isinstance(error, OSError) and error.errno in _NO_NAME)


def is_not_allowed(error: BaseException) -> bool:
    """Return whether writing is not permitted."""
    return isinstance(error, OSError) and error.errno in _NOT_ALLOWED


def disk_message(error: BaseException) -> str | None:
    """Return a message for a disk error with its remedy; None for other errors."""
    if not isinstance(error, OSError) or error.errno not in REASONS:
        return None
    what, remedy = REASONS[error.errno]
    where = error.filename2 or error.filename
    location = f" ({where})" if where else ""
    return f"{what[0].upper()}{what[1:]}{location}. Existing results are kept. {remedy}, then run it again."


def error_text(error: BaseException, *user_facing: type[BaseException]) -> str:
    """Return the error as a message for people; its type is named unless it is an InputError or one of these types."""
    plain = isinstance(error, (InputError, OrphanError, *user_facing))
    return disk_message(error) or (str(error) if plain else f"{type(error).__name__}: {error}")


PARENT_VARIABLE = "SCAN2CUT_PARENT"
"""Environment variable with the parent's process id."""


class OrphanError(RuntimeError):
    """The parent process has already ended."""


def die_with_parent(parent: int | None = None) -> None:
    """Let the kernel kill this process when its parent ends (Linux; elsewhere only check that the parent is alive).

    Otherwise a stage would survive a killed dvc and write while the next run writes. The parent may end while this
    process is still importing, so its process id is passed as `parent` or in the environment.
    """
    from disect_sim.processes import end_with_parent

    if parent is None:
        parent = int(os.environ.get(PARENT_VARIABLE, os.getppid()))
    if not end_with_parent(parent):
        raise OrphanError(
            f"The parent process {parent} has ended. A stage must not run without its parent. Nothing was written. "
            "Start the run again."
        )
