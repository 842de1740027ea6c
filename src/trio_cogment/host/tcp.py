"""Listening on TCP: every address of a name on one port, and never two servers on one port."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NoReturn

import trio

#: Connections that wait for `accept`; the system may allow fewer.
BACKLOG = 1024
#: The port that the system chose for the first address may be taken on another; then all are bound anew.
_PORT_ATTEMPTS = 20
#: This machine does not have that address, or not that family.
_NOT_HERE = frozenset([errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT])

_Address = tuple[int, int, int, tuple[Any, ...]]  # family, type, protocol, address


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
    literal: dict[_Address, bool] = {}
    for name in names:
        for address in await _resolve(name, port):
            literal[address] = literal.get(address, False) or _is_literal(name)
    return _bind_all(literal, port)


async def _resolve(host: str, port: int) -> list[_Address]:
    flags = 0 if _is_literal(host) else socket.AI_ADDRCONFIG
    found = await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags | socket.AI_PASSIVE)
    return [(family, kind, protocol, tuple(address)) for family, kind, protocol, _, address in found]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _bind_all(literal: dict[_Address, bool], port: int) -> list[trio.SocketListener]:
    attempt = 0
    while True:
        attempt += 1
        try:
            return _bind_once(literal, port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or attempt == _PORT_ATTEMPTS:
                raise


def _bind_once(literal: dict[_Address, bool], port: int) -> list[trio.SocketListener]:
    listeners: list[trio.SocketListener] = []
    missing: OSError | None = None
    with ExitStack() as on_failure:
        for (family, kind, protocol, address), given in literal.items():
            try:
                listener = _bind(family, kind, protocol, (address[0], port, *address[2:]))
            except OSError as error:
                if given or error.errno not in _NOT_HERE:
                    raise
                missing = error
                continue
            on_failure.callback(listener.socket.close)
            listeners.append(listener)
            port = port or listener.socket.getsockname()[1]
        if not listeners and missing is not None:
            raise missing
        on_failure.pop_all()
    return listeners


def _bind(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> trio.SocketListener:
    try:
        plain = socket.socket(family, kind, protocol)
    except OSError as error:
        cannot_listen(error, family, address)
    try:
        if sys.platform == "win32":
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # A restart must not wait for TIME_WAIT; here it does not let two listeners share a port.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            plain.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        plain.bind(address)
        plain.listen(BACKLOG)
        return trio.SocketListener(trio.socket.from_stdlib_socket(plain))
    except OSError as error:
        plain.close()
        cannot_listen(error, family, address)


def cannot_listen(error: OSError, family: int, address: object) -> NoReturn:
    """Raise an OSError like this one whose text says where."""
    where = format_address(family, address)
    raise OSError(error.errno, f"cannot listen on {where}: {error.strerror or error}") from error


def format_address(family: int, address: object) -> str:
    """Return an address in gRPC's notation: ``ipv4:127.0.0.1:9000``, ``ipv6:[::1]:9000``, ``unix:/run/x``."""
    if isinstance(address, tuple) and family == socket.AF_INET:
        return f"ipv4:{address[0]}:{address[1]}"
    if isinstance(address, tuple) and family == socket.AF_INET6:
        return f"ipv6:[{address[0]}]:{address[1]}"
    return f"unix:{address}" if isinstance(address, str) else "unix:"
