"""Listening sockets: TCP on any hosts, UNIX sockets, either with TLS.

Any other `trio.abc.Listener` can be served as well. A port or path belongs to one server: a second one gets an error,
whatever it is.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import ssl
import stat
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NoReturn, overload

import trio

from trio_cogment.rpc._pipe import format_address
from trio_cogment.rpc.tls import FilePath, secured

_BACKLOG = 1024
#: The port that the system chose for the first address may be taken on another; then all are bound anew.
_PORT_ATTEMPTS = 20
#: How long other servers may hold a directory while they put their socket there.
_LOCK_SECONDS = 5.0
#: This machine does not have that address, or not that family.
_NOT_HERE = frozenset([errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT])

_Address = tuple[int, int, int, tuple[Any, ...]]  # family, type, protocol, address


@overload
async def open_listeners(
    hosts: str | Sequence[str] = "0.0.0.0", port: int = 0, *, tls: None = None
) -> list[trio.SocketListener]: ...


@overload
async def open_listeners(
    hosts: str | Sequence[str] = "0.0.0.0", port: int = 0, *, tls: ssl.SSLContext
) -> list[trio.SSLListener[trio.SocketStream]]: ...


async def open_listeners(
    hosts: str | Sequence[str] = "0.0.0.0", port: int = 0, *, tls: ssl.SSLContext | None = None
) -> Any:
    """Bind and listen on TCP.

    Args:
        hosts: names or addresses, IPv4 or IPv6. Every address they stand for is bound, on the same port; those that a
            name resolves to and this machine does not have are left out as long as one remains. ``"::"`` means IPv6
            only: for everything on both, give ``["0.0.0.0", "::"]``.
        port: 0 lets the system choose one that is free on all addresses.
        tls: encrypt connections; see `trio_cogment.rpc.server_tls`. ALPN is set on the context.

    Raises:
        OSError: the port is taken, also by another server of this kind: SO_REUSEPORT is not set, on purpose.

    After `Cancelled` nothing is left open.
    """
    names = [hosts] if isinstance(hosts, str) else list(hosts)
    if not names:
        raise ValueError("hosts: expected one at least")
    literal: dict[_Address, bool] = {}
    for name in names:
        for address in await _resolve(name, port):
            literal[address] = literal.get(address, False) or _is_literal(name)
    listeners = _bind_all(literal, port)
    return listeners if tls is None else [secured(listener, tls) for listener in listeners]


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
        _cannot_listen(error, family, address)
    try:
        if sys.platform == "win32":
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:
            # A restart must not wait for TIME_WAIT; here it does not let two listeners share a port.
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            plain.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        plain.bind(address)
        plain.listen(_BACKLOG)
        return trio.SocketListener(trio.socket.from_stdlib_socket(plain))
    except OSError as error:
        plain.close()
        _cannot_listen(error, family, address)


def _cannot_listen(error: OSError, family: int, address: object) -> NoReturn:
    where = format_address(family, address)
    raise OSError(error.errno, f"cannot listen on {where}: {error.strerror or error}") from error


# --- UNIX sockets ---


class UnixListener(trio.abc.Listener[trio.SocketStream]):
    """A listening UNIX socket that removes its file when it is closed.

    Attributes:
        socket: the listening socket.
        path: where it is.
    """

    def __init__(self, listening: socket.socket, path: str) -> None:
        self.path = path
        self.socket = trio.socket.from_stdlib_socket(listening)
        self._listener = trio.SocketListener(self.socket)
        self._identity = _identity(path)

    async def accept(self) -> trio.SocketStream:
        """Accept a connection."""
        return await self._listener.accept()

    async def aclose(self) -> None:
        """Remove the file, unless it is another one by now, and close the socket."""
        if self.socket.fileno() != -1 and _identity(self.path) == self._identity:
            try:
                os.unlink(self.path)
            except OSError:
                pass  # the next server finds it and sees that nobody listens
        await self._listener.aclose()


@overload
async def open_unix_listener(path: FilePath, *, mode: int = 0o600, tls: None = None) -> UnixListener: ...


@overload
async def open_unix_listener(
    path: FilePath, *, mode: int = 0o600, tls: ssl.SSLContext
) -> trio.SSLListener[trio.SocketStream]: ...


async def open_unix_listener(path: FilePath, *, mode: int = 0o600, tls: ssl.SSLContext | None = None) -> Any:
    """Listen on a UNIX socket.

    A socket file that a dead server has left is replaced; closing the listener removes the file.

    Args:
        path: of the socket file; its directory must exist.
        mode: the file's permissions, in force from its first moment on: who may connect. The default is this user only.
        tls: encrypt connections; see `trio_cogment.rpc.server_tls`. ALPN is set on the context.

    Raises:
        OSError: a server listens there (EADDRINUSE), something else than a socket is there (EEXIST), or the file cannot
            be made.

    After `Cancelled` nothing is left behind.
    """
    path = os.fspath(path)
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        # Otherwise two servers that start together could both find a dead socket, and one remove the other's new one.
        await _lock(folder)
        listener = _bind_unix(path, mode)
    finally:
        os.close(folder)
    return listener if tls is None else secured(listener, tls)


async def _lock(descriptor: int) -> None:
    import fcntl  # not on every system; where it is missing, so are UNIX sockets

    deadline = trio.current_time() + _LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if trio.current_time() > deadline:
                raise
            await trio.sleep(0.01)
        else:
            return


def _bind_unix(path: str, mode: int) -> UnixListener:
    plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    made = False
    try:
        _remove_stale(path)
        try:
            os.fchmod(plain.fileno(), mode)  # Linux makes the file with these bits; nobody gets in before `chmod`
        except OSError:
            pass  # elsewhere the process's umask decides for a moment
        plain.bind(path)
        made = True
        os.chmod(path, mode)
        plain.listen(_BACKLOG)
        return UnixListener(plain, path)
    except OSError as error:
        plain.close()
        if made:
            os.unlink(path)
        _cannot_listen(error, socket.AF_UNIX, path)


def _remove_stale(path: str) -> None:
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(errno.EEXIST, "there is a file that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)  # nobody listens: its server is dead
            return
        except BlockingIOError:
            pass  # its queue is full, so somebody does
    raise OSError(errno.EADDRINUSE, "a server listens there")


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


# --- for the server ---


def socket_of(listener: trio.abc.Listener[Any]) -> Any:
    """Return a listener's socket, None if there is none."""
    while isinstance(listener, trio.SSLListener):
        listener = listener.transport_listener
    return listener.socket if isinstance(listener, trio.SocketListener | UnixListener) else None
