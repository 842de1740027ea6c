"""Shared state of the parts of one running server: who is connected, and whether it drains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import trio

from trio_cogment.rpc.relay import Served


class ServerGroup:
    """The connections and the accepting tasks of one `serve`.

    Args:
        on_drain: called when the drain begins.

    Attributes:
        done: `serve` has ended.
    """

    def __init__(self, on_drain: Callable[[], None] | None = None) -> None:
        self._on_drain = on_drain
        self.done = trio.Event()
        self._connections: dict[Served, None] = {}  # in an order that is the same in every run
        self._accepting: list[trio.CancelScope] = []
        self._beginning: dict[trio.CancelScope, None] = {}
        self._deadline: float | None = None  # of the calls, once the server drains

    def accepting(self) -> trio.CancelScope:
        """Return a scope for a task that accepts connections; a drain ends it."""
        scope = trio.CancelScope()
        self._accepting.append(scope)
        if self._deadline is not None:
            scope.cancel()
        return scope

    @contextmanager
    def beginning(self) -> Iterator[trio.CancelScope]:
        """Hold the block in which is found out what a connection speaks; a drain ends it."""
        with trio.CancelScope() as scope:
            self._beginning[scope] = None
            if self._deadline is not None:
                scope.cancel()
            try:
                yield scope
            finally:
                del self._beginning[scope]

    def connections(self) -> list[Served]:
        """Return those that are open."""
        return list(self._connections)

    @contextmanager
    def connected(self, connection: Served) -> Iterator[None]:
        """Hold the block in which a connection runs."""
        self._connections[connection] = None
        if self._deadline is not None:  # accepted just before
            connection.drain(self._deadline)
        try:
            yield
        finally:
            self._connections.pop(connection, None)

    def drain(self, grace_seconds: float) -> None:
        """Accept nothing more, and end every connection in order. Asked again, a shorter grace counts."""
        if self._on_drain is not None:
            self._on_drain()
        deadline = trio.current_time() + grace_seconds
        if self._deadline is not None:
            deadline = min(deadline, self._deadline)
        self._deadline = deadline
        for scope in (*self._accepting, *self._beginning):
            scope.cancel()
        for connection in list(self._connections):
            connection.drain(deadline)
