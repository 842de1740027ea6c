"""A simulated network: hosts, links with a latency, and the faults of both.

It behaves as TCP does: bytes arrive in order or not at all, loss means delay, and a sender learns only after a long
time that a network is gone. Time is Trio's clock; nothing here has a task of its own.
"""

from __future__ import annotations

import errno
import random
import socket
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import trio

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.suggestions import suggestion
from trio_cogment.rpc import Channel
from trio_cogment.testing.sim.links import BREAK, Flow, Link, Path
from trio_cogment.testing.sim.stream import SimStream

#: How long a connection attempt lasts when nothing answers, as in Linux.
CONNECT_SECONDS = 127.0
#: Connections that wait for a listener's `accept`; more are refused.
BACKLOG = 128


@dataclass(eq=False, slots=True)
class SimConnection:
    """One connection between two hosts, as the network sees it.

    Attributes:
        source: the host that connected.
        target: the host it connected to.
        port: there.
        client: the source's end.
        server: the target's end.
    """

    source: str
    target: str
    port: int
    client: SimStream
    server: SimStream

    def reset(self) -> None:
        """Reset it: the next read at either end raises an error."""
        for end in (self.client, self.server):
            end.outgoing.push_marker(BREAK)

    def go_dark(self) -> None:
        """Make it half-open for good: whatever either end sends is lost, its FIN included, and no error is raised."""
        for end in (self.client, self.server):
            end.outgoing.go_dark()

    def lose_end(self, host: str, *, dark: bool) -> None:
        """Close one host's end with its host; the other end is reset, or hears nothing if `dark`."""
        gone = self.client if host == self.source else self.server
        if dark:
            self.go_dark()
        else:
            gone.outgoing.push_marker(BREAK)
        gone.break_now(f"{host} is down")

    @property
    def over(self) -> bool:
        """Whether both ends are closed."""
        return self.client.gone and self.server.gone


class SimListener(trio.abc.Listener[SimStream]):
    """A port of a simulated host, to be served like any listener. Make it with `SimHost.listen`."""

    def __init__(self, host: SimHost, port: int) -> None:
        self.host = host
        self.port = port
        self._waiting: list[SimStream] = []
        self._lot = trio.lowlevel.ParkingLot()
        self._closed = False

    async def accept(self) -> SimStream:
        """See `trio.abc.Listener.accept`. After `Cancelled` no connection is lost."""
        await trio.lowlevel.checkpoint()
        while not self._closed and not self._waiting:
            await self._lot.park()
        if self._closed:
            raise trio.ClosedResourceError
        return self._waiting.pop(0)

    async def aclose(self) -> None:
        """Stop listening; connections that nobody has accepted are reset."""
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """As `aclose`, at once."""
        if self._closed:
            return
        self._closed = True
        self.vanish()
        self._lot.unpark_all()

    def vanish(self) -> None:
        """Take no more connections without waking `accept`: the task in it is about to be cancelled."""
        self.host.listeners.pop(self.port, None)
        for stream in self._waiting:
            stream.outgoing.push_marker(BREAK)
            stream.close()
        self._waiting.clear()

    def offer(self, stream: SimStream) -> bool:
        """Take a new connection; False when there are too many already."""
        if self._closed or len(self._waiting) >= BACKLOG:
            return False
        self._waiting.append(stream)
        self._lot.unpark()
        return True


class SimHost:
    """A machine in the network; `SimNetwork.host` makes it.

    Attributes:
        name: what others connect to.
        up: programs can run on it.
        answers: its system takes packets, though it may be only to refuse them: it has power.
        listeners: its open ports.
    """

    def __init__(self, network: SimNetwork, name: str) -> None:
        self.network = network
        self.name = name
        self.up = True
        self.answers = True
        self.listeners: dict[int, SimListener] = {}
        self._scopes: dict[trio.CancelScope, None] = {}

    def listen(self, port: int) -> SimListener:
        """Open a port.

        Raises:
            OSError: it is open already, or the host is down.
        """
        self.check_up()
        if port in self.listeners:
            raise OSError(errno.EADDRINUSE, f"{self.name}:{port} is taken")
        listener = self.listeners[port] = SimListener(self, port)
        return listener

    async def connect(self, host: str, port: int) -> SimStream:
        """Connect from here to a port of a host; see `SimNetwork.connect`."""
        return await self.network.connect(self.name, host, port)

    def channel(
        self, host: str, port: int, *, config: RpcConfig | None = None, compression: str | None = None, token: str = ""
    ) -> Channel:
        """Return a gRPC channel from here to a port of a host, as `trio_cogment.rpc.Channel` is: bytes, HTTP/2 and all.

        Use it as `async with here.channel("there", 9000) as channel`.
        """

        async def connect() -> trio.abc.Stream:
            return await self.connect(host, port)

        rng = self.network.stream(f"channel {self.name}>{host}:{port}")
        authority = f"{host}:{port}"
        return Channel.over(connect, authority=authority, config=config, rng=rng, compression=compression, token=token)

    def running(self) -> trio.CancelScope:
        """Return a scope for a program that runs on this host: `crash` cancels it."""
        self.check_up()
        scope = trio.CancelScope()
        self._scopes = {one: None for one in self._scopes if not one.cancel_called}
        self._scopes[scope] = None
        return scope

    def crash(self, *, power: bool = False) -> None:
        """Cancel everything that runs on this host at once; no byte leaves it any more.

        Args:
            power: the machine has no power: peers hear nothing at all. Otherwise its system resets connections and
                refuses new ones.
        """
        self.up = False
        self.answers = not power
        for listener in list(self.listeners.values()):
            listener.vanish()
        for connection in self.network.connections(self.name):
            connection.lose_end(self.name, dark=power)
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    def restart(self) -> None:
        """Let the host run again; programs have to be started again."""
        self.up = self.answers = True

    def check_up(self) -> None:
        """Raise OSError when the host is down."""
        if not self.up:
            raise OSError(errno.ENETDOWN, f"{self.name} is down")


class SimNetwork:
    """Hosts, the links between them, and the faults of both.

    Args:
        stream: gives a generator of random numbers for a name; each connection has its own.
        link: what every link is like that is not set with `set_link`.

    Attributes:
        stream: see above.
    """

    def __init__(self, stream: Callable[[str], random.Random], link: Link | None = None) -> None:
        self.stream = stream
        self._default = link or Link()
        self._hosts: dict[str, SimHost] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        self._connections: list[SimConnection] = []
        self._numbers: dict[tuple[str, str, int], int] = {}
        self._named: dict[str, None] = {}
        self._changed = trio.lowlevel.ParkingLot()

    def host(self, name: str) -> SimHost:
        """Return the host of a name; it comes into being when it is first asked for."""
        if name not in self._hosts:
            self._hosts[name] = SimHost(self, name)
        return self._hosts[name]

    def unknown_hosts(self) -> list[str]:
        """Return the names of hosts that somebody has given here and that no host has, or not yet."""
        return [name for name in self._named if name not in self._hosts]

    def advice_for(self, unknown: str) -> str:
        """Return what a name that no host has may have been meant for."""
        hosts = f"the hosts are {', '.join(map(repr, self._hosts))}" if self._hosts else "there are no hosts"
        return suggestion(unknown, self._hosts, hosts)

    def set_default_link(self, link: Link) -> None:
        """Say what links are like that have not been used or set yet."""
        self._default = link

    def set_link(self, one: str, other: str, link: Link) -> None:
        """Say what the link between two hosts is like from now on, in both directions; they may be hosts to come."""
        self._names([one, other])
        for ends in ((one, other), (other, one)):
            self._path(*ends).link = link

    def _path(self, source: str, target: str) -> Path:
        if (source, target) not in self._paths:
            self._paths[source, target] = Path(self._default)
        return self._paths[source, target]

    def _between(self, ones: Iterable[str], others: Iterable[str] | None) -> Iterator[Path]:
        ones = self._names(ones)
        others = [name for name in self._hosts if name not in ones] if others is None else self._names(others)
        for one in ones:
            for other in others:
                if one != other:
                    yield self._path(one, other)
                    yield self._path(other, one)

    def partition(self, ones: Iterable[str], others: Iterable[str] | None = None) -> None:
        """Let nothing through between two groups of hosts (without `others`: between one and everybody else there is).

        Connections stay open; what is on its way, or sent from now on, arrives after `heal`, unless one end has given
        up by then (see `Link.give_up_seconds`). Names that no host has yet are those of hosts to come; a run in which
        one does not come fails in the end.

        Raises:
            TypeError: a group is not some names, but one.
        """
        for path in self._between(ones, others):
            path.cut()

    def heal(self, ones: Iterable[str] | None = None, others: Iterable[str] | None = None) -> None:
        """End every partition, or let everything through again between two groups of hosts, as `partition` has them.

        Raises:
            TypeError: as for `partition`; or `others` were given alone.
        """
        if ones is None and others is not None:
            raise TypeError("others: expected `ones` beside them")
        for path in self._paths.values() if ones is None else self._between(ones, others):
            path.heal()
        self._changed.unpark_all()

    def connections(self, one: str | None = None, other: str | None = None) -> list[SimConnection]:
        """Return the connections there are, of everybody, of one host, or between two, by their names."""
        self._names([name for name in (one, other) if name is not None])
        self._connections = [connection for connection in self._connections if not connection.over]
        found = self._connections
        for name in (one, other):
            if name is not None:
                found = [connection for connection in found if name in (connection.source, connection.target)]
        return list(found)

    def left_open(self) -> list[str]:
        """Name the connections that one end at least has not closed, and the ports that are open."""
        ends = [f"connection {one.source}>{one.target}:{one.port}" for one in self.connections()]
        return ends + [f"port {host.name}:{port}" for host in self._hosts.values() for port in host.listeners]

    async def connect(self, source: str, target: str, port: int) -> SimStream:
        """Connect two hosts.

        Raises:
            OSError: the name is unknown, nobody listens there, or (after `CONNECT_SECONDS`) nobody answers.

        After `Cancelled` the other end sees its connection closed, if it has seen it at all.
        """
        self.host(source).check_up()
        if target not in self._hosts:
            await trio.lowlevel.checkpoint()
            raise socket.gaierror(socket.EAI_NONAME, f"{target}: no such host")
        number = self._numbers[source, target, port] = self._numbers.get((source, target, port), 0) + 1
        rng = self.stream(f"connection {source}>{target}:{port} #{number}")
        there, back = self._path(source, target), self._path(target, source)
        with trio.move_on_after(CONNECT_SECONDS):
            await self._travel(there, rng, target)
            listener = self._hosts[target].listeners.get(port)
            client, server = make_connection(there, back, rng)
            taken = listener is not None and listener.offer(server)
            if taken:
                self._connections.append(SimConnection(source, target, port, client, server))
            answered = False
            try:
                await self._travel(back, rng, source)
                answered = taken
            finally:
                if not answered:
                    client.close()
            if answered:
                return client
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{target}:{port}: nobody listens there")
        raise TimeoutError(errno.ETIMEDOUT, f"{target}:{port}: nobody answers")

    async def _travel(self, path: Path, rng: random.Random, target: str) -> None:
        """Let one small packet go over a path, again and again while it is cut or nobody is there."""
        while True:
            await trio.sleep(path.delay(rng))
            if not path.is_cut and self._hosts[target].answers:
                return
            if path.is_cut:
                await self._changed.park()
            else:
                await trio.sleep(1.0)  # a machine that is off answers nothing; the packet is sent again

    def _names(self, names: Iterable[str]) -> list[str]:
        """Return names of hosts as a list, and remember them; refuse what would be names that nobody has."""
        found = [] if isinstance(names, str) else list(names)
        if isinstance(names, str) or not all(isinstance(name, str) for name in found):
            raise TypeError(f"expected names of hosts, as in ['desk'], got {found or names!r}")
        self._named.update(dict.fromkeys(found))
        return found


def make_connection(there: Path, back: Path, rng: random.Random) -> tuple[SimStream, SimStream]:
    """Return the two ends of a connection over two paths."""
    forward, backward = Flow(there, rng), Flow(back, rng)
    client, server = SimStream(backward, forward), SimStream(forward, backward)
    forward.ends = client, server
    backward.ends = server, client
    return client, server
