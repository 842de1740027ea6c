"""The screen of `serve` on a terminal: where it listens, what it keeps where, its trials, and what went wrong last."""

from __future__ import annotations

import logging
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from trio_cogment.cli.trials_screen import TrialsScreen
from trio_cogment.sdk import Controller

#: Warnings that are shown.
_TROUBLES = 3
#: Lines of the log that wait to be shown.
_MOST_LINES = 10_000


class ScreenLog(logging.Handler):
    """Keeps what is logged until the screen shows it; records may come from any thread.

    Attributes:
        lines: those that have not been shown yet; the oldest are dropped when there are too many. At the default level
            these are warnings and errors, since the table of trials says the rest.
        troubles: the last warnings and errors, in one line each.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: deque[str] = deque(maxlen=_MOST_LINES)
        self.troubles: deque[str] = deque(maxlen=_TROUBLES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        try:
            if record.levelno >= logging.WARNING or logging.getLogger().level != logging.INFO:
                self.lines.append(self.format(record))
            if record.levelno >= logging.WARNING:
                when = time.strftime("%H:%M:%S", time.localtime(record.created))
                self.troubles.append(f"{when} {record.levelname} {record.getMessage()}")
        except Exception:  # noqa: BLE001  as all handlers of logging do
            self.handleError(record)

    def summary(self) -> list[str]:
        """Return the last warnings as lines with a heading, if there are any."""
        return ["last warnings", *self.troubles] if self.troubles else []

    def taken(self) -> bytes:
        """Return what has not been shown, and forget it."""
        taken = []
        while self.lines:
            taken.append(f"{self.lines.popleft()}\n")
        return "".join(taken).encode(errors="backslashreplace")


@asynccontextmanager
async def shown_on_screen(header: Callable[[], Sequence[str]], controller: Controller) -> AsyncIterator[None]:
    """Draw the screen for the time of the block; what is logged to the terminal stands above it.

    Args:
        header: returns what stands above the trials, a line each.
        controller: of the trials.
    """
    root = logging.getLogger()
    handler, *others = root.handlers  # the process's own is the first
    on_terminal = isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr
    log = ScreenLog(handler.formatter or logging.Formatter())
    for condition in handler.filters:
        log.addFilter(condition)
    root.handlers[:] = [log, *others] if on_terminal else [handler, log, *others]
    screen = TrialsScreen(controller, header=header, footer=log.summary, written=log.taken if on_terminal else bytes)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(screen.follow)
            nursery.start_soon(screen.draw_for_ever)
            yield
            nursery.cancel_scope.cancel()
    finally:
        root.handlers[:] = [handler, *others]
        await screen.leave()
        if on_terminal and (rest := log.taken()):
            sys.stderr.write(rest.decode(errors="backslashreplace"))
            sys.stderr.flush()
