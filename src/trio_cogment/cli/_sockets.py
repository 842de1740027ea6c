"""The sockets of a server process: all of them bound, or none."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import trio

from trio_cogment.cli._settings import Failure
from trio_cogment.rpc import open_listeners

Sockets: TypeAlias = Sequence[trio.SocketListener] | Sequence[trio.SSLListener[trio.SocketStream]]


class Listeners:
    """What a process listens on.

    Attributes:
        servers: the sockets of each server, in the order of their ports.
        metrics: those of the metrics' endpoint.
    """

    def __init__(self) -> None:
        self.servers: list[Sockets] = []
        self.metrics: list[trio.SocketListener] = []

    async def open(
        self, hosts: Sequence[str], ports: Iterable[int], *, metrics_port: int, tls: ssl.SSLContext | None
    ) -> None:
        """Bind everything; nothing is left open when that fails.

        Args:
            hosts: where to listen.
            ports: one for each server; 0 means any free one.
            metrics_port: 0 means no metrics.
            tls: what the servers expect; the metrics never have it.

        Raises:
            Failure: naming the address.
        """
        listen: Any = open_listeners  # which kind it returns hangs on `tls`
        try:
            for port in ports:
                self.servers.append(await listen(hosts, port, tls=tls))
            if metrics_port:
                self.metrics = await open_listeners(hosts, metrics_port)
        except (OSError, UnicodeError) as error:
            self.close()
            raise Failure(_cannot_listen(error, hosts)) from error

    def close(self) -> None:
        """Close what is still open."""
        for sockets in (*self.servers, self.metrics):
            for listener in sockets:
                plain = listener.transport_listener if isinstance(listener, trio.SSLListener) else listener
                assert isinstance(plain, trio.SocketListener)
                plain.socket.close()


def _cannot_listen(error: OSError | UnicodeError, hosts: Sequence[str]) -> str:
    # A message of `open_listeners` names the address; what looking up a name raises does not.
    text = (error.strerror if isinstance(error, OSError) else "no host's name looks like that") or str(error)
    return text if text.startswith("cannot listen") else f"cannot listen on {', '.join(hosts)}: {text}"
