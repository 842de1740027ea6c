"""The ports of a server process: taken at its start, opened to clients and announced when it serves."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Iterable, Sequence
from typing import TypeVar

from trio_cogment.base.host.binding import bound_sockets, listen_on
from trio_cogment.cli.errors import Failure

_T = TypeVar("_T")

#: The port in `cannot listen on ipv4:127.0.0.1:9000: ...`.
_IN_USE_PORT = re.compile(r"cannot listen on ipv[46]:\S+:(\d+): ")


class Ports:
    """The ports of a process.

    Attributes:
        servers: the sockets of each server, in the order of their ports.
        metrics: the sockets of the metrics.
        web: the sockets for pages of any origin.
    """

    def __init__(self) -> None:
        self.servers: list[list[socket.socket]] = []
        self.metrics: list[socket.socket] = []
        self.web: list[socket.socket] = []

    @property
    def numbers(self) -> list[int]:
        """The port of each server."""
        return [sockets[0].getsockname()[1] for sockets in self.servers]

    def bind(self, hosts: Sequence[str], ports: Sequence[int], metrics_port: int, web_port: int = 0) -> None:
        """Take the ports of the servers, each once, and those of the metrics and for any page if they are not 0.

        Nobody can connect yet: see `listen`.

        Raises:
            Failure: one of them cannot be had; others may be taken.
        """
        try:
            for port in dict.fromkeys(ports):
                self.servers.append(bound_sockets(hosts, port))
            if metrics_port:
                self.metrics = bound_sockets(hosts, metrics_port)
            if web_port:
                self.web = bound_sockets(hosts, web_port)
        except (OSError, UnicodeError) as error:
            raise Failure(_cannot_listen(error, hosts)) from error

    def close(self) -> None:
        """Close what is still open."""
        for sockets in (*self.servers, self.metrics, self.web):
            for one in sockets:
                one.close()


def listen(sockets: Iterable[socket.socket]) -> None:
    """Let clients connect to some of the ports.

    Raises:
        Failure: another process was faster, since the ports were taken.
    """
    try:
        listen_on(sockets)
    except OSError as error:
        raise Failure(_cannot_listen(error, ())) from error


def announcement(name: str, sockets: Iterable[socket.socket], services: Sequence[str]) -> list[str]:
    """Return a line for each address of a server.

    Args:
        name: of what is served.
        sockets: of the server.
        services: their names, without their package; none: the lines do not list them.
    """
    listed = f" ({', '.join(services)})" if services else ""
    return [f"{name} listening on {_address(one)}{listed}" for one in sockets]


def merged(ports: Sequence[int], items: Sequence[Sequence[_T]]) -> list[list[_T]]:
    """Return what belongs to each server; there is one for each distinct port."""
    found: dict[int, list[_T]] = {}
    for port, some in zip(ports, items, strict=True):
        found.setdefault(port, []).extend(some)
    return list(found.values())


def _address(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _cannot_listen(error: OSError | UnicodeError, hosts: Iterable[str]) -> str:
    # A message of `binding` names the address; what looking up a name raises does not.
    text = (error.strerror if isinstance(error, OSError) else "no host's name looks like that") or str(error)
    if not text.startswith("cannot listen"):
        text = f"cannot listen on {', '.join(hosts)}: {text}"
    if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
        used = _IN_USE_PORT.search(text)
        doctor = f"trio-cogment doctor --port={used[1]}" if used else "trio-cogment doctor"
        text += f"; name another port, or stop what uses it (`{doctor}` tells)"
    return text
