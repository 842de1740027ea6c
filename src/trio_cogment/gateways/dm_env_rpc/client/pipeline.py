"""Requests on their way to a server of dm_env_rpc, in order, and replies on their way back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

import trio

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import CogmentError, RemoteProtocolError, RpcError, StatusCode, UnavailableError
from trio_cogment.gateways.dm_env_rpc.client.requests import Received, Reply, Requests
from trio_cogment.rpc import ClientCall

T = TypeVar("T")

#: This many requests of one connection may wait for their replies; another one waits until there is room.
MAX_REQUESTS_UNDER_WAY = 4096


class Pipeline:
    """Sends the requests of one connection, whoever makes them, and takes the replies where they arrive.

    Attributes:
        requests: those under way.
        failure: why nothing can be asked any more; None while it can.
    """

    def __init__(self, call: ClientCall, server: str) -> None:
        """Use a call that is open, from now on alone."""
        self.requests = Requests(server)
        self.failure: CogmentError | None = None
        self._server = server
        self._call = call
        self._room = trio.Semaphore(MAX_REQUESTS_UNDER_WAY)
        self._unsent: deque[pb.EnvironmentRequest] = deque()
        self._work = trio.Event()
        call.set_consumer(self)

    async def begin(
        self, request: pb.EnvironmentRequest, convert: Callable[[Received], T], world: str = ""
    ) -> Reply[T]:
        """Send a request, which is not to be changed afterwards; wait only while too many others are under way.

        After `Cancelled` it has not been sent, and will not be.

        Args:
            request: with a payload.
            convert: makes of the reply what its receiver gets.
            world: that the request names, if it does.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        try:
            self._room.acquire_nowait()
        except trio.WouldBlock:
            await self._room.acquire()
        return self._begin(request, convert, world)  # without a checkpoint: what is noted is sent

    def begin_nowait(self, request: pb.EnvironmentRequest, convert: Callable[[Received], T]) -> Reply[T]:
        """As `begin`, for a request that names no world.

        Raises:
            trio.WouldBlock: too many others are under way; it is not sent.
        """
        self._room.acquire_nowait()
        return self._begin(request, convert, "")

    def _begin(self, request: pb.EnvironmentRequest, convert: Callable[[Received], T], world: str) -> Reply[T]:
        kind = request.WhichOneof("payload")
        assert kind is not None
        reply = self.requests.add(kind, world, convert)
        if self.failure is not None:
            self.requests.fail(self.failure)
            self._room.release()
            return reply
        self._unsent.append(request)
        if len(self._unsent) == 1:
            self._send_nowait()
        return reply

    def _send_nowait(self) -> None:
        try:
            if len(self.requests) == 1:
                self._call.flush_next()
            self._call.hand_over_nowait(self._unsent[0])
            if self._unsent:  # in process it may bring the end
                self._unsent.popleft()
        except trio.WouldBlock:
            self._work.set()
        except RpcError as error:
            self._fail(self._lost(error))

    async def write(self) -> None:
        """Send what the call could not take at once. It ends when it is cancelled, or with the call."""
        while self.failure is None:
            await self._work.wait()
            self._work = trio.Event()
            while self._unsent:
                try:
                    await self._call.send(self._unsent[0])
                except RpcError as error:
                    self._fail(self._lost(error))
                    return
                if self._unsent:  # it may have failed meanwhile
                    self._unsent.popleft()

    def on_message(self, message: pb.EnvironmentResponse) -> None:
        """Take a reply; the call calls it."""
        if self.failure is not None:
            return
        try:
            self.requests.take(message)
        except RemoteProtocolError as error:
            self._fail(error)
            self._call.cancel()
        else:
            self._room.release()

    def on_end(self, error: RpcError | None) -> None:
        """Learn that no reply comes any more; the call calls it."""
        self._fail(self._lost(error))

    def close(self) -> None:
        """Close the connection, without waiting; who waits for a reply gets UnavailableError."""
        self._fail(UnavailableError(f"{self._server}: the connection has been closed"))
        self._call.cancel()

    def _lost(self, error: RpcError | None) -> CogmentError:
        if error is not None and error.code is StatusCode.RESOURCE_EXHAUSTED:
            return UnavailableError(f"{self._server}: a message was too large, or the server at a limit: {error}")
        reason = "the server has ended it" if error is None else str(error)
        return UnavailableError(f"{self._server}: the connection was lost: {reason}")

    def _fail(self, error: CogmentError) -> None:
        if self.failure is not None:
            return
        self.failure = error
        self._unsent.clear()
        for _ in range(len(self.requests)):
            self._room.release()
        self.requests.fail(error)
        self._work.set()
