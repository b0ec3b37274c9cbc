"""Errors a user can correct, exit codes, and disk errors as messages.

Stages and pipelines raise `InputError` with what was wrong, the rule and the remedy.
"""

import errno

from disect_sim.outcome import InputError

__all__ = ["InputError"]

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
"""A sentence on stderr says what was wrong, the rule and the remedy."""
EXIT_INPUTS_CHANGED = 75
"""EX_TEMPFAIL of sysexits.h: run it again."""
EXIT_INTERRUPTED = 130
"""What a shell reports for Ctrl-C."""


REASONS = {
    errno.ENOSPC: ("the disk is full", "Free some space"),
    errno.EDQUOT: ("the disk quota is used up", "Free some space or ask for more"),
    errno.EFBIG: ("the file is larger than this account may write", "Raise the limit (ulimit -f)"),
    errno.EROFS: ("the disk is read-only", "Mount it for writing"),
    errno.EACCES: ("this account may not write there", "Change the owner or the permissions"),
    errno.EPERM: ("this account may not do that", "Change the owner or the permissions"),
    errno.ENAMETOOLONG: ("the name is longer than a disk allows", "Give another"),
    errno.ELOOP: ("links lead in a circle", "Give the file itself"),
    errno.EIO: ("the disk can't read or write it", "Check the disk (dmesg, smartctl)"),
}

_NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)
"""Stays so until somebody changes the place: who meets it before anything has begun refuses."""

_NO_NAME = (errno.ENAMETOOLONG, errno.ELOOP)
"""The fault of whoever gave the name."""


def is_bad_input(error: BaseException) -> bool:
    """True if the person who asked has to change something: the place, or a name."""
    return is_not_allowed(error) or (isinstance(error, OSError) and error.errno in _NO_NAME)


def is_not_allowed(error: BaseException) -> bool:
    """True if the place may not be written."""
    return isinstance(error, OSError) and error.errno in _NOT_ALLOWED


def disk_message(error: BaseException) -> str | None:
    """What happened, that nothing was lost, and what to do; None if the error is no error of the disk."""
    if not isinstance(error, OSError) or error.errno not in REASONS:
        return None
    what, remedy = REASONS[error.errno]
    where = error.filename2 or error.filename
    place = f" ({where})" if where else ""
    return (
        f"{what[0].upper()}{what[1:]}{place}. Results that were there are kept. {remedy}, then run it again."
    )
