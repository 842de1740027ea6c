"""Listening TCP sockets of the standard library: every address on one port, and never two servers on one port.

Nothing here waits, but for names that have to be resolved, and nothing needs Trio. Binding and listening are apart: a
server takes its ports at its start, and lets nobody connect before it serves.
"""

from __future__ import annotations

import errno
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from typing import TypeAlias

    #: Family, type, protocol, address.
    Address: TypeAlias = tuple[int, int, int, tuple[Any, ...]]
    #: What `getaddrinfo` returns.
    Resolved: TypeAlias = Iterable[tuple[int, int, int, str, tuple[Any, ...]]]

#: Connections that wait for `accept`; the system may allow fewer.
BACKLOG = 1024
#: The port that the system chose for the first address may be taken on another; then all are bound again.
_PORT_ATTEMPTS = 20
#: This machine does not have that address, or not that family.
_NOT_HERE = frozenset([errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT])


def bound_sockets(names: Sequence[str], port: int) -> list[socket.socket]:
    """Bind sockets as `host.tcp.listen_tcp` does, at once: it blocks where a name has to be resolved.

    Nobody can connect before `listen_on`.

    Raises:
        OSError: see there.
    """
    return bind_all({name: socket.getaddrinfo(_for_lookup(name), port, **lookup(name)) for name in names}, port)


def _for_lookup(name: str) -> str | bytes:
    # Of a text, even of an address, Python makes an IDNA name, whose module takes long to import.
    return name.encode() if name.isascii() and is_literal(name) else name


def lookup(name: str) -> dict[str, int]:
    """Return the arguments of `getaddrinfo` for a name or an address."""
    flags = 0 if is_literal(name) else socket.AI_ADDRCONFIG
    return {"type": socket.SOCK_STREAM, "flags": flags | socket.AI_PASSIVE}


def is_literal(name: str) -> bool:
    """Tell whether it is an address and not a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name.partition("%")[0])
        except (OSError, ValueError):
            continue
        return True
    return False


def listen_on(sockets: Iterable[socket.socket]) -> None:
    """Let clients connect to bound sockets.

    Raises:
        OSError: another process has bound the same port at the same moment and listens already; the text says where.
            The sockets are left open.
    """
    for one in sockets:
        try:
            one.listen(BACKLOG)
        except OSError as error:
            cannot_listen(error, one.family, one.getsockname())


def bind_all(resolved: Mapping[str, Resolved], port: int) -> list[socket.socket]:
    """Bind a socket to every address of some names, on one port; to none when one of them cannot be bound.

    Args:
        resolved: for each name, what it stands for. Of the addresses of a name, those that this machine does not have
            are left out as long as one remains; an address that was given itself is never left out.
        port: 0 lets the system choose one that is free on all addresses.

    Raises:
        OSError: the text says which address cannot be bound.
    """
    literal: dict[Address, bool] = {}
    for name, found in resolved.items():
        for family, kind, protocol, _, address in found:
            key = (int(family), int(kind), protocol, tuple(address))
            literal[key] = literal.get(key, False) or is_literal(name)
    attempt = 0
    while True:
        attempt += 1
        try:
            return _bind_once(literal, port)
        except OSError as error:
            if port or error.errno != errno.EADDRINUSE or attempt == _PORT_ATTEMPTS:
                raise


def _bind_once(literal: dict[Address, bool], port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    missing: OSError | None = None
    for (family, kind, protocol, address), given in literal.items():
        try:
            bound = _bind(family, kind, protocol, (address[0], port, *address[2:]))
        except OSError as error:
            if given or error.errno not in _NOT_HERE:
                for one in sockets:
                    one.close()
                raise
            missing = error
            continue
        sockets.append(bound)
        port = port or bound.getsockname()[1]
    if not sockets and missing is not None:
        raise missing
    return sockets


def _bind(family: int, kind: int, protocol: int, address: tuple[Any, ...]) -> socket.socket:
    try:
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        cannot_listen(error, family, address)
    try:
        if sys.platform == "win32":
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # A restart must not wait for TIME_WAIT; here it does not let two listeners share a port.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        cannot_listen(error, family, address)
    return bound


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
