"""The terminal of a process: lines for it, whether it is still there, and whether lines can be redrawn on it.

SIGHUP has two meanings: the terminal was closed, and files are to be read again. A server that was started in a window
must not outlive it, so the two are told apart. Nothing slow is imported here: it is needed before Trio is.
"""

from __future__ import annotations

import os
import signal
import sys


class Terminal:
    """The terminal that controls this process when this is made, if one does."""

    def __init__(self) -> None:
        # With nohup the end of the terminal is not to be noticed.
        hangup = getattr(signal, "SIGHUP", None)
        self._noticed = hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN and _is_there()

    def is_gone(self) -> bool:
        """Tell whether there was one, and is none any more."""
        return self._noticed and not _is_there()


def can_draw() -> bool:
    """Tell whether standard output and standard error are a terminal on which lines can be redrawn."""
    streams = (sys.stdout, sys.stderr)
    return all(one is not None and one.isatty() for one in streams) and os.environ.get("TERM") != "dumb"


def on_terminal() -> bool:
    """Tell whether standard output is a terminal: somebody sees it, and nothing keeps it."""
    return sys.stdout is not None and sys.stdout.isatty()


def say(line: str) -> None:
    """Print a line; that nobody reads it, or that it finds no room, does not stop a server."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(f"{line}\n")  # in one piece; `print` may write the end of the line for itself
        sys.stdout.flush()
    except OSError:
        pass


def _is_there() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True
