"""Listening sockets: TCP on any hosts, UNIX sockets, either with TLS.

Any other `trio.abc.Listener` can be served as well. A port or path belongs to one server: a second one gets an error,
whatever it is.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
import stat
from collections.abc import Sequence
from typing import Any, overload

import trio

from trio_cogment.base.host import Host
from trio_cogment.base.host.binding import BACKLOG, cannot_listen
from trio_cogment.rpc.tls import FilePath, RenewableListener, secured

#: How long other servers may hold a directory while they put their socket there.
_LOCK_SECONDS = 5.0


@overload
async def open_listeners(
    addresses: str | Sequence[str] = "0.0.0.0",
    port: int = 0,
    *,
    tls: None = None,
    host: None = None,
    http1: bool = False,
) -> list[trio.SocketListener]: ...


@overload
async def open_listeners(
    addresses: str | Sequence[str] = "0.0.0.0",
    port: int = 0,
    *,
    tls: ssl.SSLContext,
    host: None = None,
    http1: bool = False,
) -> list[trio.SSLListener[trio.SocketStream]]: ...


@overload
async def open_listeners(
    addresses: str | Sequence[str] = "0.0.0.0",
    port: int = 0,
    *,
    tls: ssl.SSLContext | None = None,
    host: Host | None,
    http1: bool = False,
) -> list[trio.abc.Listener[trio.abc.Stream]]: ...


async def open_listeners(
    addresses: str | Sequence[str] = "0.0.0.0",
    port: int = 0,
    *,
    tls: ssl.SSLContext | None = None,
    host: Host | None = None,
    http1: bool = False,
) -> Any:
    """Listen on TCP.

    Args:
        addresses: names or addresses, IPv4 or IPv6. Every address they stand for is bound, on the same port; those that
            a name resolves to and this machine does not have are left out as long as one remains. ``"::"`` means IPv6
            only: for everything on both, give ``["0.0.0.0", "::"]``.
        port: 0 lets the system choose one that is free on all addresses.
        tls: encrypt connections; see `trio_cogment.rpc.server_tls`. ALPN is set on the context.
        host: where to listen; the system's network unless given.
        http1: with TLS, browsers are served, too: for a server with `web`.

    Raises:
        OSError: the port is taken, also by another server of this kind: SO_REUSEPORT is not set, on purpose.

    After `Cancelled` nothing is left open.
    """
    listeners = await (host or Host()).listen(addresses, port)
    return listeners if tls is None else [secured(listener, tls, http1=http1) for listener in listeners]


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
        plain.listen(BACKLOG)
        return UnixListener(plain, path)
    except OSError as error:
        plain.close()
        if made:
            os.unlink(path)
        cannot_listen(error, socket.AF_UNIX, path)


def _remove_stale(path: str) -> None:
    try:
        kind = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(kind):
        raise OSError(errno.EEXIST, "there is a file that is not a socket")
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
    while isinstance(listener, trio.SSLListener | RenewableListener):
        listener = listener.transport_listener
    return listener.socket if isinstance(listener, trio.SocketListener | UnixListener) else None
