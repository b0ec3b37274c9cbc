"""Errors a user can correct, exit codes, and disk errors as messages.

Stages and pipelines raise `InputError` with what was wrong, the rule and the remedy.
"""

import errno

from disect_sim.outcome import InputError

__all__ = ["InputError"]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
"""Input rejected; a message on stderr says what is wrong, the rule and the remedy."""
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
