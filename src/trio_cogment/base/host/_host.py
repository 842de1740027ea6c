"""`Host`: one object for everything that comes from outside a program."""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

import trio

from trio_cogment.base.host.blocking import Runner, ThreadRunner
from trio_cogment.base.host.files import Files, SystemFiles
from trio_cogment.base.host.tcp import listen_tcp

#: Connects to a name or address and a port.
Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]


class Listen(Protocol):
    """Opens a port on every address that some names stand for; see `listen_tcp`."""

    async def __call__(
        self, addresses: str | Sequence[str] = "0.0.0.0", port: int = 0
    ) -> Sequence[trio.abc.Listener[Any]]:
        """See the class."""


def new_uuid() -> str:
    """Return a random UUID as text."""
    return str(uuid.uuid4())


def system_random(_name: str) -> Random:
    """Return a generator that the system has seeded."""
    return Random()


async def system_resolve(name: str, port: int) -> list[str]:
    """Return the addresses of a name, or of an address itself, in the order in which they should be tried.

    Raises:
        OSError: it has none, or is not a name.
    """
    try:
        found = await trio.socket.getaddrinfo(name, port, 0, socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"no host's name looks like {name!r}") from error
    return list(dict.fromkeys(str(address[4][0]) for address in found))


async def system_address() -> str:
    """Return the first IPv4 address of this machine's name, preferring one that is not a loopback address.

    Raises:
        OSError: the name has no IPv4 address.
    """
    name = socket.gethostname()
    try:
        found = await trio.socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OSError(f"this host's own name, {name!r}, has no IPv4 address: {error}") from error
    addresses = [str(address[4][0]) for address in found]
    return next((address for address in addresses if not address.startswith("127.")), addresses[0])


_SYSTEM_FILES = SystemFiles()


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a program takes from outside itself. ``Host()`` is the system; each part can be replaced on its own.

    Time that passes is Trio's (`trio.current_time`), and so replaced with Trio's clock. UNIX sockets, SQLite's own
    files, the files that a user's program names to the SDK, and spec files, which are read once, are the system's on
    purpose.

    Attributes:
        wall_clock: returns the time of the day in nanoseconds since the epoch.
        new_id: returns an id that nobody else has, as text.
        secret_bytes: returns this many random bytes that nobody can guess.
        random: returns a generator for a purpose, by its name: what one draws does not change what others get. It is
            for pauses and for sharing out load, never for secrets.
        connect: connects to a name or address and a port; raises OSError.
        resolve: returns the addresses that a name stands for, as `connect` takes them; raises OSError.
        listen: opens a port on some addresses; raises OSError.
        own_address: returns an address under which others reach this machine; raises OSError.
        files: the file system.
        runner: returns what runs blocking functions, given how many run at a time; more wait.
    """

    wall_clock: Callable[[], int] = time.time_ns
    new_id: Callable[[], str] = new_uuid
    secret_bytes: Callable[[int], bytes] = os.urandom
    random: Callable[[str], Random] = system_random
    connect: Connect = trio.open_tcp_stream
    resolve: Callable[[str, int], Awaitable[Sequence[str]]] = system_resolve
    listen: Listen = listen_tcp
    own_address: Callable[[], Awaitable[str]] = system_address
    files: Files = _SYSTEM_FILES
    runner: Callable[[int], Runner] = ThreadRunner
