"""The ports of a server process, from when they are opened, and signals that come before Trio runs.

Its ports are open and announced before click is imported if `plain` can read the command line, and before Trio is
otherwise. So this module imports no more than sockets and signals need.
"""

from __future__ import annotations

import os
import signal
import sys

from trio_cogment.cli.announced import announcements
from trio_cogment.cli.terminal import Terminal, can_draw
from trio_cogment.host.binding import is_literal, listening_sockets
from trio_cogment.host.lock_probe import is_locked

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from typing import Any

    from trio_cogment.cli.plain import Plan


class OpenPorts:
    """The open ports of a process.

    Attributes:
        servers: the sockets of each server, in the order of their ports.
        metrics: the sockets of the metrics.
        web: the sockets for pages of any origin.
    """

    def __init__(self) -> None:
        self.servers: list[list[socket.socket]] = []
        self.metrics: list[socket.socket] = []
        self.web: list[socket.socket] = []

    def open(self, hosts: Sequence[str], ports: Sequence[int], metrics_port: int, web_port: int = 0) -> None:
        """Open the ports of the servers, each once, and those of the metrics and for any page if they are not 0.

        Raises:
            OSError: one of them cannot be opened; others may be open.
            UnicodeError: a host is not a name.
        """
        for port in dict.fromkeys(ports):
            self.servers.append(listening_sockets(hosts, port))
        if metrics_port:
            self.metrics = listening_sockets(hosts, metrics_port)
        if web_port:
            self.web = listening_sockets(hosts, web_port)

    def close(self) -> None:
        """Close what is still open."""
        for sockets in (*self.servers, self.metrics, self.web):
            for one in sockets:
                one.close()


#: What ends a server; so does SIGHUP, if its terminal is gone.
STOPPING = tuple(number for number in signal.Signals if number.name in ("SIGTERM", "SIGINT", "SIGQUIT"))
#: Not every system has it.
HANGUP = tuple(number for number in signal.Signals if number.name == "SIGHUP")


class EarlySignals:
    """Remembers a signal that comes when the server is announced but Trio does not yet wait for signals.

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


class Early:
    """A server whose ports are open before its flags are read by click; it is announced when this is entered.

    Attributes:
        ports: its open ports.
        lines: what is announced.
        silent: nothing is said yet, because a screen will show it.
        signals: those that come from then on.
    """

    def __init__(self, ports: OpenPorts, lines: list[str], *, silent: bool = False) -> None:
        self.ports = ports
        self.lines = lines
        self.silent = silent
        self.signals = EarlySignals()

    def __enter__(self) -> Early:
        self.signals.__enter__()
        if not self.silent:
            for line in self.lines:
                say(line)
        return self

    def __exit__(self, *_error: object) -> None:
        self.ports.close()
        self.signals.__exit__()


def opened(plan: Plan) -> Early | None:
    """Open the ports of a server; None: it cannot start, as will be reported at the next attempt."""
    if not all(map(is_literal, plan.hosts)):
        return None  # to look up a name may take long
    if any(map(is_locked, plan.locks)):
        return None
    ports = OpenPorts()
    try:
        ports.open(plan.hosts, plan.ports, plan.metrics_port)
    except (OSError, UnicodeError):
        ports.close()
        return None
    lines = announcements(plan.name, plan.ports, plan.services, ports.servers)
    return Early(ports, lines, silent=plan.draws and can_draw())


def say(line: str) -> None:
    """Print a line; that nobody reads it, or that it finds no room, does not stop a server."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.write(f"{line}\n")  # in one piece; `print` may write the end of the line for itself
        sys.stdout.flush()
    except OSError:
        pass
