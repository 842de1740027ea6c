"""The memory that the connections of a process borrow, and whatever else waits in it for a peer.

There is one for all servers and channels of a run of Trio, because they share its process: what a server receives often
waits to be sent on, by another server or by a channel. Servers bring what may be lent
(`RpcConfig.server_memory_bytes`); a run without a server has no such limit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import trio

from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.budget.byte_pool import BytePool

# Whoever has borrowed memory that others wait for has to get on: pure, told the time.
#
# Memory is borrowed for what waits: for the rest of messages, and for a peer that reads. Nobody minds how long that
# takes while there is enough. When somebody cannot borrow, those are looked at who have: a message of which nothing
# comes ends its call, and a peer that reads nothing loses its connection.

#: A message must come further by so much while others wait for its memory, or be complete.
_LEAST_BYTES = 16 * 1024
#: The code of HTTP/2 for what is not wanted any more (RFC 9113, 7).
_CANCEL = 0x8


class Unfinished(Protocol):
    """A message that is not whole, as far as debts are concerned: that of a stream, or of a browser.

    Attributes:
        call: what it belongs to, if anything does; it has `on_broken`.
    """

    call: Any

    @property
    def missing(self) -> int:
        """How much is still to come, or anything else that shrinks by what comes."""


class DebtorsEngine(Protocol):
    """The engine of a connection, as far as debts are concerned."""

    def incomplete(self) -> Iterable[Unfinished]:
        """Return the messages that are not whole, as the streams have them, where they make this connection borrow."""

    def reset(self, stream: Any, code: int) -> None:
        """End one of these that has no call."""

    def send_mark(self) -> object:
        """Return something that changes when what waits to be sent gets any further; None if nothing is borrowed."""

    def settle(self) -> None:
        """Give back the memory for what is not there any more."""


class Debtor(Protocol):
    """A connection that may have borrowed."""

    @property
    def engine(self) -> DebtorsEngine:
        """Of the connection."""

    def wake(self) -> None:
        """Send the engine's output."""

    def close(self, reason: RpcError) -> None:
        """Close the connection."""


class Debts:
    """What all connections have borrowed, and since when nothing has come of it.

    Args:
        message_seconds: how long a message may come no further.
        reader_seconds: how long a peer may read nothing.
    """

    def __init__(self, message_seconds: float, reader_seconds: float) -> None:
        self._message_seconds = message_seconds
        self._reader_seconds = reader_seconds
        self._messages: dict[Unfinished, tuple[float, int]] = {}
        self._readers: dict[Debtor, tuple[float, object]] = {}

    def look(self, debtors: Iterable[Debtor], now: float) -> None:
        """End what has not come any further; call it again and again while memory is short, with all connections."""
        messages: dict[Unfinished, tuple[float, int]] = {}
        readers: dict[Debtor, tuple[float, object]] = {}
        for debtor in debtors:
            engine = debtor.engine
            engine.settle()
            for stream in engine.incomplete():
                since, missing = self._messages.get(stream, (now, stream.missing))
                if stream.missing > missing or missing - stream.missing >= _LEAST_BYTES:
                    since, missing = now, stream.missing
                if now - since >= self._message_seconds:
                    self._end(debtor, stream)
                else:
                    messages[stream] = since, missing
            mark = engine.send_mark()
            if mark is not None:
                since, before = self._readers.get(debtor, (now, mark))
                if before != mark:
                    since = now
                readers[debtor] = since, mark
        self._messages, self._readers = messages, readers
        for debtor, (since, _) in readers.items():
            if now - since >= self._reader_seconds:
                text = (
                    f"server_memory_bytes: nothing was read for {self._reader_seconds:g} s, and others wait for memory"
                )
                debtor.close(RpcError(StatusCode.RESOURCE_EXHAUSTED, text))

    def forget(self) -> None:
        """Memory is not short any more."""
        self._messages.clear()
        self._readers.clear()

    def _end(self, debtor: Debtor, stream: Unfinished) -> None:
        text = (
            f"server_memory_bytes: a message has come no further for {self._message_seconds:g} s, and others wait for "
            "memory"
        )
        if stream.call is not None:
            stream.call.on_broken(StatusCode.RESOURCE_EXHAUSTED, text)
        else:
            debtor.engine.reset(stream, _CANCEL)
        debtor.wake()


#: A large message has to fit into what one connection may borrow, with others beside it.
_LARGE_MESSAGES = 16
#: How long borrowed memory may be of no use while others wait for it: see `Debts`.
_MESSAGE_SECONDS = 2.0
_READER_SECONDS = 10.0
_LOOK_SECONDS = 0.5


class ConnectionMemory:
    """What connections borrow from.

    Attributes:
        messages: for bytes that wait: to be received by the application, or to be taken by the peer.
        windows: for what peers may send without being asked, beyond the first 64 KiB of each. It is another pool,
            because a promise cannot be taken back: those who were promised much and send nothing would otherwise keep
            what others need for messages.
    """

    def __init__(self) -> None:
        self.messages = BytePool()
        self.windows = BytePool()
        self._debtors: dict[Debtor, None] = {}
        self._debts = Debts(_MESSAGE_SECONDS, _READER_SECONDS)
        self._looking = False
        self._servers: list[int] = []

    @contextmanager
    def lent_by(self, config: RpcConfig) -> Iterator[None]:
        """Lend what a server brings, for the time of the block."""
        size = max(config.server_memory_bytes, _LARGE_MESSAGES * config.max_receive_message_bytes)
        self._servers.append(size)
        self._add_up()
        try:
            yield
        finally:
            self._servers.remove(size)
            self._add_up()

    def watch(self, debtor: Debtor) -> None:
        """Look after what a connection borrows, until it is forgotten."""
        self._debtors[debtor] = None

    def forget(self, debtor: Debtor) -> None:
        """The connection is gone."""
        del self._debtors[debtor]

    def look_at_debts(self) -> None:
        """See to it that those who have borrowed get on, as long as others wait for it."""
        if not self._looking:
            self._looking = True
            trio.lowlevel.spawn_system_task(self._look_while_short, name="memory of connections")

    async def _look_while_short(self) -> None:
        try:
            while self.messages.short:
                self._debts.look(list(self._debtors), trio.current_time())
                self.messages.ask()  # some need nothing any more
                await trio.sleep(_LOOK_SECONDS)
        finally:
            self._debts.forget()
            self._looking = False

    def _add_up(self) -> None:
        total = sum(self._servers) if self._servers else math.inf
        self.messages.total = total
        self.windows.total = total / 2


_memory: trio.lowlevel.RunVar[ConnectionMemory] = trio.lowlevel.RunVar("trio_cogment.rpc memory")


def memory_of_run() -> ConnectionMemory:
    """Return the memory of this run of Trio."""
    try:
        return _memory.get()
    except LookupError:
        memory = ConnectionMemory()
        memory.messages.on_short = memory.look_at_debts
        _memory.set(memory)
        return memory
