"""Signals that come before Trio waits for them: remembered, so that a server that is still being loaded stops in order.

Nothing slow is imported here: importing Trio and gRPC is most of a server's start.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from trio_cogment.cli.terminal import Terminal

#: What ends a server; so does SIGHUP, if its terminal is gone.
STOPPING = tuple(number for number in signal.Signals if number.name in ("SIGTERM", "SIGINT", "SIGQUIT"))
#: Not every system has it.
HANGUP = tuple(number for number in signal.Signals if number.name == "SIGHUP")


class EarlySignals:
    """Remembers a signal that comes before Trio waits for signals.

    A second one ends the process at once. A request to read files again is passed over: they have just been read, or
    will be.

    Attributes:
        came: a signal has come that ends a server.
        terminal: that in which the server was started.
    """

    def __init__(self) -> None:
        self.came = False
        self.terminal = Terminal()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> EarlySignals:
        for number in STOPPING + HANGUP:
            self._before[number] = signal.signal(number, self._remember)
        return self

    def __exit__(self, *_error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _remember(self, number: int, _frame: object) -> None:
        if number in HANGUP and not self.terminal.is_gone():
            return
        if self.came:
            os._exit(128 + number)
        self.came = True
