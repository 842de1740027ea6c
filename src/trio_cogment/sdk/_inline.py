"""Events that are handled where they arrive: in the task that brings the message, by a plain function.

A session of this kind is the consumer of its call (`rpc.calls.Consumer`). In process the message is brought by the
trial, which feeds its machine in whatever task had the input: an environment's observations are in the actors'
functions, and the actions these send in the environment's next event, without a task switch. What such a function
sends is an input that arises from an effect, which the trial puts behind the one that it is handling; so nothing here
is called while it runs.

The task in `Session.handle` (`AwaitedEvents`) only waits: for the end, for the exception of the function, and for
messages that the call did not take at once, which it sends. So does one message of many where everybody answers
everybody at once, as an environment whose actors are gone answers itself: else no other task would ever run again.
"""

from __future__ import annotations

import abc
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import trio
from google.protobuf.message import Message

from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.rpc import Call, RpcError, SharedMessage, StatusCode
from trio_cogment.sdk._stream import StreamLostError

#: Messages that wait because the call does not take them; one more is refused.
MAX_WAITING_MESSAGES = 256
#: Events that are handled one out of the other in a row; then other tasks have their turn.
EVENTS_PER_TURN = 1000


class _Turn(threading.local):
    """What has happened in this thread since a message was sent by anybody but the function of a session."""

    events = 0


_turn = _Turn()


class InlineSession(Protocol):
    """A session as its `InlineEvents` sees it."""

    @property
    def is_over(self) -> bool:
        """The trial has ended for this participant."""


class InlineEvents(abc.ABC):
    """Hands each event of a session to a function; see the module.

    Args:
        session: the participant's.
        call: its stream.
        take: takes a message, or None for the end of the stream, into the session's state; returns the event that it
            is, if it is one.
        on_event: takes the events.
        reply: sends what the session owes the orchestrator after a message, and after its event; returns whether the
            trial is over for the participant.
        who: the participant, for errors.

    Attributes:
        busy: a message is being handled.
    """

    def __init__(
        self,
        session: InlineSession,
        call: Call,
        *,
        take: Callable[[Any], Any],
        on_event: Callable[[Any], None],
        reply: Callable[[], bool],
        who: str,
    ) -> None:
        self._session = session
        self._call = call
        self._take = take
        self._on_event = on_event
        self._reply = reply
        self._who = who
        # What the function logs is about this trial, whichever task has brought the message.
        self._context = contextvars.copy_context()
        self._waiting: deque[tuple[Message | SharedMessage, ...]] = deque()
        #: Nothing is handled any more.
        self._left = False
        self._failure: Exception | None = None
        self.busy = False

    @abc.abstractmethod
    def _wake(self) -> None:
        """Have a task send what waits."""

    @abc.abstractmethod
    def _leave(self) -> None:
        """Handle nothing any more: the trial is over, or `_failure` says why."""

    async def _send_waiting(self) -> None:
        waiting = self._waiting
        while waiting:
            try:
                # Taken off only once it is sent: what comes meanwhile must queue behind it.
                await self._call.send_together(waiting[0])
            except RpcError as error:
                if error.code is StatusCode.RESOURCE_EXHAUSTED:
                    raise  # the message is too large; the call goes on
                waiting.clear()  # the call is over, and `on_end` says why
                break
            if waiting:  # leaving, meanwhile, has emptied it
                waiting.popleft()

    def post(self, *messages: Message | SharedMessage) -> None:
        """Send messages together, or keep them until the call takes them; a call that is over drops them.

        Args:
            messages: not to be changed afterwards.

        Raises:
            ResourceExhaustedError: the orchestrator does not read, and too much waits already.
            RpcError: RESOURCE_EXHAUSTED, the message is too large.
        """
        if not self.busy:
            _turn.events = 0
        if _turn.events >= EVENTS_PER_TURN:
            _turn.events = 0
        elif not self._waiting:
            try:
                if len(messages) == 1:
                    self._call.hand_over_nowait(messages[0])
                else:
                    self._call.send_together_nowait(messages)
                return
            except trio.WouldBlock:
                pass
            except RpcError as error:
                if error.code is StatusCode.RESOURCE_EXHAUSTED:
                    raise
                return
        if len(self._waiting) >= MAX_WAITING_MESSAGES:
            raise ResourceExhaustedError(
                f"{self._who}: expected the orchestrator to read, and {MAX_WAITING_MESSAGES} messages wait for it"
            )
        self._waiting.append(messages)
        self._wake()

    def on_message(self, message: Any) -> None:
        """See `Consumer.on_message`."""
        if self._left:
            return
        self.busy = True
        _turn.events += 1
        try:
            event = self._take(message)
            if event is not None:
                self._context.run(self._on_event, event)
            over = self._reply()
        except Exception as error:  # noqa: BLE001  the boundary of the implementation: `run` raises it
            self._failure, over = error, True
        finally:
            self.busy = False
        if over:
            self._leave()

    def on_end(self, error: RpcError | None) -> None:
        """See `Consumer.on_end`."""
        if not self._session.is_over and self._failure is None:
            if error is None:
                self._take(None)
            else:
                self._failure = StreamLostError.because_of(error)
        self._leave()


class AwaitedEvents(InlineEvents):
    """Those of `Session.handle`, whose task waits for their end."""

    def __init__(self, session: InlineSession, call: Call, **functions: Any) -> None:
        super().__init__(session, call, **functions)
        self._more = trio.Event()
        #: While it sends what waits; a scope for all of the time would cost more than most parts' ends.
        self._sending: trio.CancelScope | None = None

    async def run(self) -> None:
        """Handle the events until the trial is over.

        Raises:
            StreamLostError: the stream broke before the trial was over.
            Exception: what the function raised.
        """
        try:
            self._call.set_consumer(self)
            while True:
                await self._more.wait()
                if self._left:
                    break
                self._more = trio.Event()
                with trio.CancelScope() as self._sending:
                    await self._send_waiting()
                self._sending = None
        finally:
            self._left = True
        if self._failure is not None:
            raise self._failure

    def _wake(self) -> None:
        self._more.set()

    def _leave(self) -> None:
        self._left = True
        self._more.set()
        if self._sending is not None:
            self._sending.cancel()
