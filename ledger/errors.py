"""Every error that the ledger raises on purpose.

    LedgerError
      Usage                exit 2    the call cannot be understood or used as given
      Refused              exit 1    a rule of the ledger or of the study forbids it
        StaleVersion                 a stream has moved on since it was read
        LeaseLost                    another process has taken the command over
        RecordRefused                the event cannot be written as a canonical record
      Integrity            exit 3    stored bytes contradict each other, or replay differs
      Unfinished           exit 5    unreadable, locked, disk full, input or output error
        UnknownOutcome               a commit raised: reopen and look before doing anything
      PreflightMismatch    exit 6    something is not as the study froze it
      SafetyStop           exit 7    a declared safety condition; resumable

Each message says what to do next. The command line prints the message and leaves with the status;
anything that is not a LedgerError is a fault of ours and shows a traceback. The one exception is a
condition of the machine (``of_the_machine``) that can arise at every file that is touched.
"""

import errno
from typing import ClassVar


class LedgerError(Exception):
    exit_status: ClassVar[int] = 5


class Usage(LedgerError):
    exit_status = 2


class Refused(LedgerError):
    exit_status = 1


class StaleVersion(Refused):
    """A stream's version differs from the expected one; read it again and decide anew."""


class LeaseLost(Refused):
    """The lease under which a process worked is no longer its own; nothing was written."""


class RecordRefused(Refused):
    """The event cannot be encoded as a canonical record (NaN, too large, too deep, …)."""


class Integrity(LedgerError):
    exit_status = 3


class Unfinished(LedgerError):
    exit_status = 5


class UnknownOutcome(Unfinished):
    """A commit raised. It may have been written: reopen the log and look for the event ids."""


class PreflightMismatch(LedgerError):
    exit_status = 6


class SafetyStop(LedgerError):
    exit_status = 7


OF_ALL_FOLDERS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
}
"""Met again wherever it is tried; the others are of one path, and may be a stranger's work."""
_CONDITIONS_OF_THE_MACHINE = OF_ALL_FOLDERS | {
    errno.EFBIG,
    errno.EACCES,
    errno.EPERM,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ELOOP,
}


def of_the_machine(error: OSError, where: object = "") -> Unfinished | None:
    """What to tell the user where the disk is full, something is read-only or may not be read, and
    the like; None for every other error of the operating system, which we should have foreseen.

    ``where`` is named in the message if the error does not name a file.
    """
    if error.errno not in _CONDITIONS_OF_THE_MACHINE:
        return None
    place = error.filename if error.filename is not None else where
    return Unfinished(
        f"{place}{': ' if place else ''}{error.strerror}; look at the free space and at the "
        "permissions, then run the command again: it goes on"
    )
