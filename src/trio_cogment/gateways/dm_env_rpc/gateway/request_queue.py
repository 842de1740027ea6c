"""The requests of a connection, in order: answered where they arrive if that can be, else by a task."""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import trio
from trio_util import AsyncBool

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import UnavailableError
from trio_cogment.rpc import RpcError, ServerCall

#: An answer; or, where it takes much memory, what sends it when there is some.
Answer: TypeAlias = pb.EnvironmentResponse | Callable[[ServerCall], Awaitable[None]]
#: Answers a request without waiting, now or later, with the given function; False: a task has to.
AnswerNow: TypeAlias = Callable[[pb.EnvironmentRequest, Callable[[Answer], None]], bool]

#: This many requests that have come together are answered where they arrive; then the task has its turn, and with it
#: everybody.
_IN_A_ROW = 16
#: With this many that wait no more are read.
_MOST_WAITING = 64


class _Hand(enum.Enum):
    """Who has the request that is being answered; later ones wait."""

    NOBODY = "nobody"
    #: Nobody waits for it: the response comes by itself.
    PENDING = "pending"
    #: The response is to be sent by the task, as soon as there is room for it.
    UNSENT = "unsent"
    TASK = "task"


class Requests:
    """See the module. It is the consumer of the call.

    Args:
        call: of the client.
        answer_now: see `AnswerNow`.
    """

    def __init__(self, call: ServerCall, answer_now: AnswerNow) -> None:
        self._call = call
        self._answer_now = answer_now
        self._waiting: deque[pb.EnvironmentRequest] = deque()
        self._hand = _Hand.NOBODY
        self._batch = 0
        self._in_a_row = 0
        self._unsent: Answer | None = None
        self._paused = False
        self._ended = False
        self._error: RpcError | None = None
        self._stopping = False
        self._changed = AsyncBool(False)

    # The consumer

    def on_message(self, message: pb.EnvironmentRequest) -> None:
        """See `trio_cogment.rpc.Consumer`."""
        batch = self._call.batch
        if batch != self._batch:
            self._batch, self._in_a_row = batch, 0
        if self._hand is _Hand.NOBODY and not self._waiting and not self._stopping and self._in_a_row < _IN_A_ROW:
            self._in_a_row += 1
            self._hand = _Hand.PENDING
            if self._answer_now(message, self._send):
                return
            self._hand = _Hand.NOBODY
        self._waiting.append(message)
        if len(self._waiting) >= _MOST_WAITING and not self._paused:
            self._paused = True
            self._call.pause()
        self._tell()

    def on_end(self, error: RpcError | None) -> None:
        """See `trio_cogment.rpc.Consumer`."""
        self._ended, self._error = True, error
        self._tell()

    def _send(self, answer: Answer) -> None:
        self._hand = _Hand.NOBODY
        try:
            if not isinstance(answer, pb.EnvironmentResponse):
                raise trio.WouldBlock
            self._call.flush_next()
            self._call.send_nowait(answer)
        except trio.WouldBlock:
            self._hand, self._unsent = _Hand.UNSENT, answer
            self._tell()
        except RpcError:
            pass  # the client is gone, which the task is told by `on_end`
        if self._waiting or self._stopping or self._ended:
            self._tell()

    def _tell(self) -> None:
        self._changed.value = True

    # The task

    def stop(self) -> None:
        """Let `next` raise an error instead of waiting for another request."""
        self._stopping = True
        self._tell()

    async def next(self) -> pb.EnvironmentRequest | None:
        """Wait for a request that the task has to answer, with `send`, before it calls this again.

        Returns:
            The request; None when the client has ended the call in good order.

        Raises:
            RpcError: why the call has ended otherwise.
            UnavailableError: after `stop`; requests in hand have been answered.
        """
        if self._hand is _Hand.TASK:
            self._hand = _Hand.NOBODY
        self._in_a_row = 0
        while True:
            if self._error is not None:
                raise self._error
            if self._unsent is not None:
                answer, self._unsent = self._unsent, None
                await self.send(answer)
                self._hand = _Hand.NOBODY
            if self._hand is _Hand.NOBODY:
                if self._stopping:
                    raise UnavailableError("the gateway is stopping")
                if self._waiting:
                    return self._taken()
                if self._ended:
                    return None
            self._changed.value = False
            await self._changed.wait_value(True)
            self._in_a_row = 0

    async def send(self, answer: Answer) -> None:
        """Send the answer to a request of `next`.

        Raises:
            RpcError: why the call has ended.
        """
        if isinstance(answer, pb.EnvironmentResponse):
            await self._call.send(answer)
        else:
            await answer(self._call)

    def _taken(self) -> pb.EnvironmentRequest:
        self._hand = _Hand.TASK
        request = self._waiting.popleft()
        if self._paused and len(self._waiting) <= _MOST_WAITING // 2:
            self._paused = False
            self._call.resume()
        return request
