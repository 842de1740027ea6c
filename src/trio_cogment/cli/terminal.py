"""Whether the terminal of a process is still there.

SIGHUP has two meanings: the terminal was closed, and files are to be read again. A server that was started in a window
must not outlive it, so the two are told apart. Nothing slow is imported here: it is needed before Trio is.
"""

from __future__ import annotations

import os
import signal


class Terminal:
    """The terminal that controls this process when this is made, if one does."""

    def __init__(self) -> None:
        # With nohup the end of the terminal is not to be noticed.
        hangup = getattr(signal, "SIGHUP", None)
        self._noticed = hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN and _is_there()

    def is_gone(self) -> bool:
        """Tell whether there was one, and is none any more."""
        return self._noticed and not _is_there()


def _is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True
