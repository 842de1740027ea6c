"""Whoever has borrowed memory that others wait for has to get on: pure, told the time.

Memory is borrowed for what waits: for the rest of messages, and for a peer that reads. Nobody minds how long that takes
while there is enough. When somebody cannot borrow, those are looked at who have: a message of which nothing comes ends
its call, and a peer that reads nothing loses its connection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from trio_cogment.base.errors import RpcError, StatusCode

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
