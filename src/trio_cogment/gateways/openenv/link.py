"""A session with an OpenEnv server: a WebSocket, and the task that keeps it alive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio

from trio_cogment.base.errors import CogmentError, UnavailableError
from trio_cogment.gateways.openenv.addresses import Address, LinkOptions
from trio_cogment.gateways.openenv.client_socket import ClientSocket, ClosedSocketError, RefusedSocketError
from trio_cogment.gateways.openenv.results import parse_answer
from trio_cogment.rpc import OwnNursery
from trio_cogment.spaces.json_values import dumps

#: How long a server may take to hear that a session is over.
CLOSE_SECONDS = 2.0


class Link:
    """A session; one question at a time, from one task at a time.

    Attributes:
        usable: a question can be asked. After one that had no answer there is no other, because the late answer would
            be taken for that of the next.
    """

    def __init__(self, address: Address, options: LinkOptions) -> None:
        """Prepare a session, which `run` begins."""
        self._address = address
        self._options = options
        self._socket: ClientSocket | None = None
        self._closing = trio.Event()
        self.usable = False

    async def run(self, *, task_status: trio.TaskStatus[Link] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the session until it is closed, by either side; `task_status` is told when it has begun.

        Raises:
            UnavailableError: it could not begin.
        """
        options = self._options
        expected = f"{self._address.url}: expected a WebSocket at /ws"
        try:
            async with (
                self._address.connect(options) as stream,
                OwnNursery() as tasks,
            ):
                socket = ClientSocket(stream, options.max_message_bytes)
                try:
                    with trio.move_on_after(options.connect_timeout_seconds) as opening:
                        await socket.open(self._address.authority, f"{self._address.path}/ws")
                except RefusedSocketError as error:
                    raise UnavailableError(f"{expected}: {error}") from None
                if opening.cancelled_caught:
                    raise UnavailableError(f"{expected} within {options.connect_timeout_seconds:g} s")
                tasks.start_soon(socket.run)
                self._socket = socket
                self.usable = True
                task_status.started(self)
                await self._closing.wait()
                await self._say_goodbye(socket)
                tasks.cancel_scope.cancel()
        finally:
            self.usable = False

    async def _say_goodbye(self, socket: ClientSocket) -> None:
        with trio.move_on_after(CLOSE_SECONDS):
            try:
                await socket.send(dumps({"type": "close"}))
            except ClosedSocketError:
                return
            await socket.close()

    def close(self) -> None:
        """End the session, without waiting."""
        self.usable = False
        self._closing.set()

    @property
    def broken(self) -> bool:
        """Whether the server has ended the session, or cannot be reached any more."""
        return self._socket is None or bool(self._socket.closed)

    async def ask(self, kind: str, data: Mapping[str, Any]) -> Any:
        """Send a message and return the data of its answer.

        Raises:
            UnavailableError: the server refuses, is gone, or does not answer in time.
            RemoteProtocolError: it answers with something else.

        After `Cancelled` the session cannot be used any more.
        """
        if self._socket is None or not self.usable:
            raise UnavailableError(f"{self._address.url}: {kind}: the session is over")
        self.usable = False
        seconds = self._options.message_timeout_seconds
        try:
            with trio.move_on_after(seconds):
                await self._socket.send(dumps({"type": kind, "data": dict(data)}))
                text = await self._socket.receive()
                # Whatever it says, it was the answer.
                self.usable = True
                return parse_answer(text, kind)
        except ClosedSocketError as closed:
            self.usable = False
            raise UnavailableError(f"{self._address.url}: {kind}: the server is gone: {closed}") from None
        except CogmentError as error:
            raise type(error)(f"{self._address.url}: {error}") from None
        raise UnavailableError(f"{self._address.url}: {kind}: expected an answer within {seconds:g} s")


class Links:
    """The sessions with one server.

    Args:
        address: of the server.
        options: of the sessions.
        nursery: keeps sessions between trials; without one each trial has its own.
        max_kept: the maximum number of sessions that are kept while no trial uses them.
    """

    def __init__(self, address: Address, options: LinkOptions, nursery: trio.Nursery | None, max_kept: int) -> None:
        self._address = address
        self._options = options
        self._nursery = nursery
        self._max_kept = max_kept
        self._kept: dict[str, Link] = {}

    @asynccontextmanager
    async def borrow(self, instance: str) -> AsyncIterator[Link]:
        """Have a session for the time of the block: the one of an instance, if there is one.

        Raises:
            UnavailableError: the server cannot be reached.
        """
        if self._nursery is None or not instance:
            async with OwnNursery() as nursery:
                link = await self._open(nursery)
                try:
                    yield link
                finally:
                    link.close()
            return
        kept = self._kept.pop(instance, None)
        if kept is not None and kept.broken:
            kept.close()
            kept = None
        link = kept or await self._open(self._nursery)
        try:
            yield link
        finally:
            self._keep(instance, link)

    async def _open(self, nursery: trio.Nursery) -> Link:
        link: Link = await nursery.start(Link(self._address, self._options).run)
        return link

    def _keep(self, instance: str, link: Link) -> None:
        if not link.usable or instance in self._kept:
            link.close()
            return
        self._kept[instance] = link
        if len(self._kept) > self._max_kept:
            self._kept.pop(next(iter(self._kept))).close()
