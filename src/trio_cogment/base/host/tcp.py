"""Listening on TCP with Trio; the sockets are those of `binding`."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from trio_cogment.base.host.binding import bind_all, listen_on, lookup


async def listen_tcp(addresses: str | Sequence[str] = "0.0.0.0", port: int = 0) -> list[trio.SocketListener]:
    """Bind and listen on TCP.

    Args:
        addresses: names or addresses, IPv4 or IPv6. Every address they stand for is bound, on the same port; those that
            a name resolves to and this machine does not have are left out as long as one remains. ``"::"`` means IPv6
            only: for everything on both, give ``["0.0.0.0", "::"]``.
        port: 0 lets the system choose one that is free on all addresses.

    Raises:
        OSError: the port is taken, also by another server of this kind: SO_REUSEPORT is not set, on purpose.

    After `Cancelled` nothing is left open.
    """
    names = [addresses] if isinstance(addresses, str) else list(addresses)
    if not names:
        raise ValueError("addresses: expected one at least")
    resolved = {name: await trio.socket.getaddrinfo(name, port, **lookup(name)) for name in names}
    sockets = bind_all(resolved, port)
    try:
        listen_on(sockets)
    except OSError:
        for bound in sockets:
            bound.close()
        raise
    return [trio.SocketListener(trio.socket.from_stdlib_socket(bound)) for bound in sockets]
