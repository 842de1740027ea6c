"""The screen of `serve` on a terminal: where it listens, what it keeps where, its trials, and what went wrong last."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import trio

from trio_cogment.api.orchestrator_pb2 import TrialListEntry
from trio_cogment.cli.last_lines import LastLines
from trio_cogment.cli.text import printable
from trio_cogment.cli.trials_view import Trials
from trio_cogment.errors import RpcError
from trio_cogment.sdk import Controller

_OUT, _ERR = 1, 2
_DRAW_SECONDS = 0.5
#: For the last drawing, which a terminal may not take.
_FAREWELL_SECONDS = 0.2
#: Warnings that are shown.
_TROUBLES = 3
#: Lines of the log that wait to be shown.
_MOST_LINES = 10_000
#: With fewer lines for the trials, what is above them has to give way.
_LEAST_TRIALS = 4


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

    def taken(self) -> bytes:
        """Return what has not been shown, and forget it."""
        taken = []
        while self.lines:
            taken.append(f"{self.lines.popleft()}\n")
        return "".join(taken).encode(errors="backslashreplace")


def page(header: Sequence[str], trials: Trials, troubles: Sequence[str], *, width: int, height: int) -> list[str]:
    """Return the lines of the screen: as many as there is room for, none wider than the terminal.

    Args:
        header: what stands above the trials; the first line is the most important one.
        trials: those that are followed.
        troubles: the last warnings.
        width: of the terminal.
        height: of the terminal.
    """
    from rich.cells import set_cell_size

    last = ["", "last warnings", *troubles] if troubles else []
    room = height - 1 - len(last)
    if room - len(header) - 1 < _LEAST_TRIALS:
        header = header[:1]  # where it listens
    lines = [*header, "", *trials.lines(room - len(header) - 1), *last]
    return [set_cell_size(printable(line), width - 1).rstrip() for line in lines[: height - 1]]


class _Screen:
    def __init__(
        self, header: Callable[[], Sequence[str]], controller: Controller, log: ScreenLog, *, shows_log: bool
    ) -> None:
        self._header = header
        self._controller = controller
        self._log = log
        self._shows_log = shows_log
        self._trials = Trials()
        self._lines = LastLines(_OUT)

    async def follow(self) -> None:
        """Follow the states of all trials, until the orchestrator stops."""
        try:
            async with self._controller.watch_trials(full_info=True) as watch:
                entry: TrialListEntry
                async for entry in watch:
                    self._trials.changed(entry.info)
        except RpcError as error:
            logging.getLogger(__name__).debug("the screen follows the trials no more: %s", error)

    async def draw_for_ever(self) -> None:
        while True:
            await self._measure()
            await self.draw()
            await trio.sleep(_DRAW_SECONDS)

    async def _measure(self) -> None:
        shown = self._trials.to_measure(shutil.get_terminal_size().lines)
        if shown:
            try:
                infos = await self._controller.trial_infos(shown)
            except RpcError:
                return  # it is stopping
            self._trials.measured(infos, trio.current_time())

    async def draw(self) -> None:
        size = shutil.get_terminal_size()
        lines = page(self._header(), self._trials, self._log.troubles, width=size.columns, height=size.lines)
        text = self._log.taken()
        shown = text if self._shows_log else b""
        await self._lines.write(_ERR, shown, [line.encode(errors="backslashreplace") for line in lines])

    def leave(self) -> None:
        self._lines.leave()


@asynccontextmanager
async def shown_on_screen(header: Callable[[], Sequence[str]], controller: Controller) -> AsyncIterator[None]:
    """Draw the screen for the time of the block; what is logged to the terminal stands above it.

    Args:
        header: returns what stands above the trials, a line each.
        controller: of the trials.
    """
    root = logging.getLogger()
    [handler] = root.handlers
    on_terminal = isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr
    log = ScreenLog(handler.formatter or logging.Formatter())
    for condition in handler.filters:
        log.addFilter(condition)
    root.handlers[:] = [log] if on_terminal else [handler, log]
    screen = _Screen(header, controller, log, shows_log=on_terminal)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(screen.follow)
            nursery.start_soon(screen.draw_for_ever)
            yield
            nursery.cancel_scope.cancel()
    finally:
        root.handlers[:] = [handler]
        with trio.move_on_after(_FAREWELL_SECONDS, shield=True):
            await screen.draw()
        screen.leave()
        if on_terminal and (rest := log.taken()):
            sys.stderr.write(rest.decode(errors="backslashreplace"))
            sys.stderr.flush()
