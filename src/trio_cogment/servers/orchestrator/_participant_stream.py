"""A participant's stream as its trial sees it: a post with an outbox that may overflow, and what feeds the machine."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import trio

from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import TRACEBACK, CogmentError, ResourceExhaustedError, RpcError, StatusCode, status_of
from trio_cogment.base.outcome import EndCause
from trio_cogment.base.recount import Count
from trio_cogment.base.services import TRIAL_ID
from trio_cogment.rpc import Call, CallOpener, DirectCall, Metadata, Method, ServedAtOnce, ServerCall, SharedMessage
from trio_cogment.servers.orchestrator._connections import Connections, Target
from trio_cogment.servers.orchestrator._fair_turns import Turn
from trio_cogment.servers.orchestrator._outboxes import Outboxes
from trio_cogment.trial import Event, HalfClosed, Lost, Received

# Reasons for the end of a participant's stream, as far as its status tells.
#
# An implementation that raises ends its stream with a status of its own: UNKNOWN, or that of the error it raised. The
# statuses of the connection say nothing of the implementation: the process was killed, or the network failed.

_CAUSES = {
    # gRPC itself gives these when the connection, or the call, is gone.
    StatusCode.UNAVAILABLE: EndCause.PARTICIPANT_LOST,
    StatusCode.CANCELLED: EndCause.PARTICIPANT_LOST,
    StatusCode.DEADLINE_EXCEEDED: EndCause.PARTICIPANT_LOST,
    # A message is larger than what is allowed.
    StatusCode.RESOURCE_EXHAUSTED: EndCause.PARTICIPANT_REFUSED,
}


def lost_for(index: int, error: RpcError | None) -> Lost:
    """Return the event for a stream that has ended, with an error or without."""
    if error is None:
        return Lost(index, "it closed its stream", EndCause.PARTICIPANT_LEFT)
    cause = _CAUSES.get(error.code, EndCause.PARTICIPANT_FAILED)
    if cause is not EndCause.PARTICIPANT_FAILED:
        return Lost(index, f"its stream failed: {error}", cause)
    text = error.message if error.code is StatusCode.UNKNOWN and error.message else str(error)
    return Lost(index, text, cause, _traceback(error))


def _traceback(error: RpcError) -> str:
    for name, value in error.trailing_metadata:
        if name == TRACEBACK and isinstance(value, bytes):
            return value.decode("utf-8", "replace")
    return ""


_log = logging.getLogger(__name__)

Feed: TypeAlias = Callable[[Event], None]
#: Takes an asynchronous function, the task's name, and the function's arguments.
Spawn: TypeAlias = Callable[..., None]


#: One turn of everybody may bring a participant this many messages of each of the others, before its own turn comes.
OUTBOX_MESSAGES_PER_PARTICIPANT: Final = 16


class ParticipantStream:
    """One participant's stream, whichever side opened it and whatever carries it.

    It is the call's consumer: a message goes straight into the trial's machine, in the task that brought it. Nothing
    here waits: what a call cannot take at once waits in an outbox with a task that empties it. A participant that does
    not read overflows its outbox and is lost, and nobody else is.

    Args:
        index: the participant, as the machine counts.
        name: for logs.
        feed: takes the machine's inputs.
        spawn: starts a task of the trial.
        outboxes: counts what waits for the participants of the trial.
    """

    __slots__ = (
        "_call", "_closed_at", "_closing", "_direct", "_emptied", "_emptying", "_ended", "_error", "_farewell_seconds",
        "_feed", "_gone", "_opening", "_outbox", "_outbox_bytes", "_outboxes", "_paused", "_sending", "_served",
        "_spawn", "index", "name",
    )  # fmt: skip

    def __init__(self, index: int, name: str, feed: Feed, spawn: Spawn, outboxes: Outboxes) -> None:
        self.index = index
        self.name = name
        self._feed = feed
        self._spawn = spawn
        self._outboxes = outboxes
        self._call: Call | None = None
        #: The same while it is open, if no task holds it.
        self._direct: DirectCall | None = None
        #: The same if the participant has opened it.
        self._served: ServedAtOnce | None = None
        # What few participants need is made when they do: there are as many of these as there are participants.
        self._outbox: deque[Any] | None = None
        self._outbox_bytes = 0
        self._emptying = False
        self._sending: trio.CancelScope | None = None
        self._emptied: trio.Event | None = None
        self._paused = False
        self._error: CogmentError | None = None
        self._closing = trio.Event()
        self._opening: trio.CancelScope | None = None
        self._closed_at = 0.0
        self._farewell_seconds = 0.0
        self._ended = False
        self._gone: trio.Event | None = None

    @property
    def queued_messages(self) -> int:
        """How many messages wait in the outbox."""
        return len(self._outbox) if self._outbox else 0

    @property
    def max_queued_messages(self) -> int:
        """How many may."""
        return self._outboxes.max_messages

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        size = sum(message.ByteSize() for message in self._outbox or ())
        yield Count("bytes of an outbox", self._outbox_bytes, size, None)

    def attach(self, call: Call) -> None:
        """Use `call` from now on: what was posted before goes out first."""
        self._call = call
        call.accept_shared()
        for message in self._take_outbox():
            self.post_shared(message) if isinstance(message, SharedMessage) else self.post(message)
        if self._paused:
            call.pause()
        call.set_consumer(self)

    def post(self, message: Any) -> None:
        """Send a message, or keep it until the call takes it; it is not to be changed afterwards."""
        call = self._call
        if call is None or self._outbox:
            self._keep(message)
            return
        try:
            call.hand_over_nowait(message)  # each message of the machine is for one participant alone
        except trio.WouldBlock:
            self._keep(message)
        except RpcError as error:
            self._failed_to_send(error)

    def post_shared(self, message: SharedMessage) -> None:
        """As `post`, for a message that others get as well, or that is mostly theirs, too."""
        call = self._call
        if call is None or self._outbox:
            self._keep(message)
            return
        try:
            call.send_shared_nowait(message)
        except trio.WouldBlock:
            self._keep(message)
        except RpcError as error:
            self._failed_to_send(error)

    def _keep(self, message: Any) -> None:
        outboxes, size = self._outboxes, message.ByteSize()
        if self._outbox:
            if self._outbox_bytes + size > outboxes.max_bytes or len(self._outbox) >= outboxes.max_messages:
                self._give_up(ResourceExhaustedError("it does not read what it is sent"))
                return
        elif self._outbox is None:
            self._outbox = deque()
        while not outboxes.add(self, message):
            hog = outboxes.hog() or self
            hog._give_up(ResourceExhaustedError("server_memory_bytes: it does not read, and others need the memory"))
            if hog is self:
                return
        self._outbox_bytes += size
        self._outbox.append(message)
        if self._call is not None and not self._emptying:
            self._emptying = True
            self._spawn(self._empty_outbox, f"outbox of {self.name}")

    def drop_outbox(self) -> None:
        """Forget what waits: the trial is over."""
        self._take_outbox()

    def _take_outbox(self) -> deque[Any]:
        """Leave nothing in the outbox; return what was there."""
        outbox, self._outbox, self._outbox_bytes = self._outbox or deque(), None, 0
        for message in outbox:
            self._outboxes.remove(self, message)
        return outbox

    async def _empty_outbox(self) -> None:
        assert self._call is not None
        self._sending = trio.CancelScope()
        try:
            with self._sending:
                while self._outbox:
                    # Taken off only once it is sent: what comes meanwhile must queue behind it.
                    message = self._outbox[0]
                    await self._call.hand_over(message)
                    if self._outbox:  # None if the stream was abandoned meanwhile
                        message = self._outbox.popleft()
                        self._outboxes.remove(self, message)
                        self._outbox_bytes -= message.ByteSize()
        except RpcError as error:
            self._take_outbox()
            self._failed_to_send(error)
        finally:
            self._emptying = False
            if self._emptied is not None:
                self._emptied.set()
            if self._closing.is_set():
                self._say_farewell()

    def _failed_to_send(self, error: RpcError) -> None:
        # A call that is over has told its consumer, or is about to. A message that is too large leaves it alive.
        if error.code is StatusCode.RESOURCE_EXHAUSTED and not self._ended:
            self._give_up(ResourceExhaustedError(f"it cannot be sent what it should be: {error.message}"))

    def _give_up(self, error: CogmentError) -> None:
        self._take_outbox()
        if self._sending is not None:
            self._sending.cancel()  # its call may stay open for as long as it does not read
        self._feed(Lost(self.index, str(error), EndCause.PARTICIPANT_REFUSED))
        self.close(error)

    def close(self, error: CogmentError | None) -> None:
        """Say that nothing more will be posted; an error becomes the status of a stream that is served here."""
        if not self._closing.is_set():
            self._error = error
            self._closed_at = trio.current_time()
            self._closing.set()
            if self._opening is not None:
                # It may be out of reach, and the trial does not wait until that has become certain.
                self._opening.deadline = self._closed_at + self._farewell_seconds
            self._say_farewell()

    def pause(self) -> None:
        """Stop taking messages from this participant; in the end it waits in its `send`."""
        self._paused = True
        if self._call is not None:
            self._call.pause()

    def resume(self) -> None:
        """Take messages again."""
        self._paused = False
        if self._call is not None:
            self._call.resume()

    def on_message(self, message: Any) -> None:
        """See `Consumer.on_message`."""
        self._feed(Received(self.index, message))  # the hot path: once per message of the trial

    def on_end(self, error: RpcError | None) -> None:
        """See `Consumer.on_end`."""
        self._ended = True
        self._direct = None
        if self._gone is not None:
            self._gone.set()
        if error is None and isinstance(self._call, ServerCall):
            # It has only finished sending: it can still be told how the trial ends.
            self._feed(HalfClosed(self.index))
            return
        self._feed(lost_for(self.index, error))
        self.close(None)
        self._finish_served()

    # A call that needs no task

    def open_nowait(self, opener: CallOpener, method: Method, metadata: Metadata) -> bool:
        """Open the stream at once; False: that has to be waited for. `leave` must follow in the end."""
        call = opener.call_nowait(method, metadata=metadata)
        if call is None:
            return False
        self._direct = call
        self.attach(call)
        return True

    def _say_farewell(self) -> None:
        """Let an open call that no task holds come to its end by itself, or reset it."""
        if self._emptying:
            return
        self._finish_served()
        if self._direct is None:
            return
        if self._error is None:
            self._direct.done_sending_nowait()
        else:
            self.leave()

    def serve_without_task(self, call: ServedAtOnce) -> None:
        """As `serve`, for the call that is attached: it ends when everything has been posted, or with `leave`."""
        self._served = call
        if self._closing.is_set():
            self._say_farewell()

    def _finish_served(self) -> None:
        call, self._served = self._served, None
        if call is not None:
            call.finish(_status_of(self._error))

    @property
    def is_open(self) -> bool:
        """Whether there is a call that no task holds, and that has not ended."""
        return self._direct is not None or self._served is not None

    async def wait_left(self) -> None:
        """Wait until the participant has ended such a call."""
        if self.is_open:
            self._gone = trio.Event()
            await self._gone.wait()

    def leave(self) -> None:
        """End such a call now, if it has not ended: who has not read everything yet gets no more of it."""
        self._finish_served()
        call, self._direct = self._direct, None
        if call is not None:
            call.cancel()

    # A call that a task holds

    @property
    def is_closing(self) -> bool:
        """Whether nothing more will be posted."""
        return self._closing.is_set()

    async def hold(
        self,
        connections: Connections,
        turn: Turn,
        target: Target,
        method: Method,
        metadata: Metadata,
        farewell_seconds: float,
    ) -> None:
        """Open the stream to a service actor or an environment, and keep it open until the trial is done with it.

        What the participant has not been told `farewell_seconds` after that, it is not told any more. The turn is over
        as soon as the stream is open, or cannot be opened.
        """
        self._farewell_seconds = farewell_seconds
        ends_at = self._closed_at + farewell_seconds if self._closing.is_set() else math.inf
        # One scope for the opening and for the farewell: it has no deadline while the trial needs the stream.
        self._opening = patience = trio.CancelScope(deadline=ends_at)
        try:
            with patience:
                if isinstance(target, GrpcEndpoint):
                    async with connections.open(target) as opener:
                        await self._hold(opener, method, metadata, patience, turn)
                else:
                    await self._hold(target, method, metadata, patience, turn)
        except RpcError as error:
            self._feed(Lost(self.index, f"it cannot be reached: {error}", EndCause.PARTICIPANT_MISSING))
        finally:
            turn.end()

    async def _hold(
        self, opener: CallOpener, method: Method, metadata: Metadata, patience: trio.CancelScope, turn: Turn
    ) -> None:
        async with opener.call(method, metadata=metadata) as call:
            turn.end()
            self._opening = None
            self.attach(call)
            await self._closing.wait()
            if self._error is not None:
                # Leaving now resets the stream: a client has no status to send.
                trial_id = metadata.first(TRIAL_ID)
                _log.debug("trial %s: the stream of %s is reset: %s", trial_id, self.name, self._error)
            elif self._emptying or not self._ended:
                # END is on its way. Leaving at once would reset the stream, and a reset may overtake it.
                patience.deadline = self._closed_at + self._farewell_seconds
                await self._drained()
                if not self._ended:
                    self._gone = trio.Event()
                    await call.done_sending()
                    await self._gone.wait()

    async def serve(self, *, farewell_seconds: float) -> None:
        """Stay in the handler of a client actor's call until the trial is done with it.

        Raises:
            CogmentError: the participant broke the protocol; this is the status it gets.
        """
        try:
            await self._closing.wait()
        except trio.Cancelled:
            now = trio.current_time()
            if isinstance(self._call, ServerCall) and now < self._call.deadline:
                # The host cancels, and so END is on its way here. (The end of the call itself closes the stream first.)
                with trio.CancelScope(shield=True, deadline=now + farewell_seconds):
                    await self._closing.wait()
                    await self._drained()
            raise
        if self._error is not None:
            raise self._error
        with trio.move_on_after(farewell_seconds) as patience:
            await self._drained()
        if patience.cancelled_caught and self._sending is not None:
            # It does not read. Its call is not over before it does, or goes away; the trial does not wait for that.
            self._sending.cancel()

    async def _drained(self) -> None:
        """Wait until the outbox is empty: END may be in it."""
        if self._emptying:
            self._emptied = trio.Event()
            await self._emptied.wait()


def _status_of(error: CogmentError | None) -> RpcError | None:
    return error if error is None or isinstance(error, RpcError) else RpcError(*status_of(error))


def post_batch(
    streams: Mapping[int, ParticipantStream], participants: Sequence[int], messages: Sequence[SharedMessage]
) -> None:
    """Send each participant the message at its place, as `ParticipantStream.post_shared` does one after the other."""
    # The hot path: once per actor and tick. Most of them have one connection, whose writer is woken once.
    woken: Callable[[], None] | None = None
    for index, message in zip(participants, messages, strict=True):
        stream = streams[index]
        call = stream._call
        wake = None if call is None or stream._outbox else call.put_shared(message)
        if wake is None:
            stream.post_shared(message)
        elif wake is not woken:
            woken = wake
            wake()
