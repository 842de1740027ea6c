"""The calls of one participant to its old server: one after the other, and without a task where that is possible.

An event of the trial brings calls, and their replies bring actions or observations. Where the server is connected, all
of it happens in the tasks that bring events and replies, so that a tick needs no task switch for it. Where a call has
to wait (for a connection, or in process), a task makes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeAlias

import trio

from trio_cogment.base.errors import CogmentError, RpcError
from trio_cogment.gateways.legacy.messages import CallOut
from trio_cogment.gateways.legacy.old_server import OldServer
from trio_cogment.rpc import ClientCall, OwnNursery

#: Takes the reply.
Then: TypeAlias = Callable[[Any], None]
#: Takes the error instead, and has dealt with it.
Otherwise: TypeAlias = Callable[[CogmentError], None]


class _Entry(NamedTuple):
    call: CallOut | None
    then: Then
    otherwise: Otherwise | None


class CallLine:
    """See the module.

    Args:
        server: takes the calls.
    """

    def __init__(self, server: OldServer) -> None:
        self._server = server
        self._waiting: deque[_Entry] = deque()
        self._current: _Entry | None = None
        self._open: ClientCall | None = None
        self._slow = trio.Event()
        self._over = False
        self._failure: Exception | None = None
        self._scope = trio.CancelScope()

    async def run(self, handling: Callable[[], Awaitable[None]]) -> None:
        """Make calls for as long as something runs that brings them.

        Args:
            handling: brings them; it is cancelled when a call fails.

        Raises:
            CogmentError: a call has failed, or its reply makes no sense.
        """
        try:
            async with OwnNursery() as nursery:
                nursery.start_soon(self._make_slow_calls, name="calls to an old server")
                with self._scope:
                    await handling()
                nursery.cancel_scope.cancel()
        finally:
            self._over = True
            if self._open is not None:
                self._open.cancel()
        if self._failure is not None:
            raise self._failure

    def put(self, call: CallOut | None, then: Then, otherwise: Otherwise | None = None) -> None:
        """Make a call when those before it are answered.

        Args:
            call: None: there is none, and `then` is called with None.
            then: takes the reply.
            otherwise: takes the error; without it, an error ends everything.
        """
        self._waiting.append(_Entry(call, then, otherwise))
        self._next()

    def _next(self) -> None:
        while self._waiting and self._current is None and not self._over:
            entry = self._current = self._waiting.popleft()
            if entry.call is None:
                self._answered(None, None)
                continue
            try:
                self._open = self._server.call_nowait(entry.call, self._on_reply)
            except RpcError as error:
                self._answered(None, error)
                continue
            if self._open is None and self._current is entry:
                self._slow.set()

    def _on_reply(self, reply: Any, error: RpcError | None) -> None:
        self._open = None
        self._answered(reply, error)
        if self._waiting:
            self._next()

    def _answered(self, reply: Any, error: RpcError | None) -> None:
        entry, self._current = self._current, None
        if self._over or entry is None:
            return
        try:
            if error is None:
                entry.then(reply)
                return
            assert entry.call is not None
            failure = self._server.failure_of(entry.call, error)
            if entry.otherwise is None:
                raise failure from error
            entry.otherwise(failure)
        except Exception as problem:  # noqa: BLE001  raised by `run`
            self._failure = problem
            self._over = True
            self._scope.cancel()

    async def _make_slow_calls(self) -> None:
        while True:
            await self._slow.wait()
            self._slow = trio.Event()
            entry = self._current
            if entry is None or entry.call is None:
                continue
            reply, failure = None, None
            try:
                reply = await self._server.unary(entry.call)
            except RpcError as error:
                failure = error
            self._answered(reply, failure)
            self._next()
