"""A look at a lock, without taking it, for whoever wants to know before anything slow is imported."""

from __future__ import annotations

import os

#: What comes behind the name of a file, or stands alone in a folder, for the lock of whoever uses it.
LOCK = ".lock"


def is_locked(path: str) -> bool:
    """Tell whether a process holds the lock that `Files.lock` takes on this file; False if that cannot be found out.

    Whoever needs the lock has to take it afterwards nevertheless.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (OSError, ValueError):  # a name with a null character
        return False
    try:
        import fcntl  # not on every system, and needed only where there is a file

        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return False
    finally:
        os.close(descriptor)
    return False
