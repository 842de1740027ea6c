"""The common base of the sessions of actors and environments."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic

import trio
from google.protobuf.message import Message

from trio_cogment.api import common_pb2
from trio_cogment.base.errors import LocalProtocolError, RemoteProtocolError
from trio_cogment.base.metrics import SessionMetrics
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.base.shared_message import Content, ObjectPayload, SharedMessage
from trio_cogment.rpc import Call, RpcError, StatusCode
from trio_cogment.sdk._events import ActionT, Event, EventStream, EventType, ObservationT, RecvMessage
from trio_cogment.sdk._inline import AwaitedEvents, InlineEvents
from trio_cogment.sdk._outgoing import Reward, messages, rewards
from trio_cogment.sdk._spec_checks import REMEDY, encoded, given_config, warn_of_unknown_fields
from trio_cogment.sdk._stream import END, HEARTBEAT, LAST, LAST_ACK, NORMAL, StreamLostError
from trio_cogment.sdk.spec import Payload, decode

WallClock = Callable[[], int]


class Session(abc.ABC, Generic[ObservationT, ActionT]):
    """A participant's part in one trial; the SDK makes it and passes it to the implementation.

    Sending waits only while the orchestrator does not read. After `Cancelled` a message has been sent completely or
    not at all.
    """

    _output_type: type[Message]
    #: What the participant is, in errors.
    _kind: str
    config: Any
    #: The type that the spec declares for `config`.
    _config_type: type[Message] | None = None

    def __init__(self, call: Call, trial_id: str, wall_clock: WallClock) -> None:
        self._call = call
        self._receive = call.receive
        self._wall_clock = wall_clock
        self.trial_id = trial_id
        #: The tick of the most recent data; -1 before the first.
        self.tick_id = -1
        #: Why the trial was ended hard; None if it was not.
        self.details: str | None = None
        #: How the trial ends. With the final observation its cause is known, at the end everything but the losses; None
        #: before, and if the orchestrator does not say.
        self.outcome: TrialOutcome | None = None
        self._type = EventType.ACTIVE
        self._started = False
        self._over = False
        self._acknowledged = False
        self._final_data = False
        self._auto_done_sending = True
        self._owes_heartbeat = False
        self._inline: InlineEvents | None = None
        self._with_rewards = True
        self._takes_objects = False
        self._metrics: SessionMetrics | None = None

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The participant's name in the trial."""

    def _given_config(self) -> Any:
        return given_config(self.config, self._config_type, self._who, self._config_hint)

    @property
    @abc.abstractmethod
    def _config_hint(self) -> str:
        """How the configuration is set in a trial's parameters."""

    @property
    def _who(self) -> str:
        return f"trial {self.trial_id!r}, {self._kind} {self.name!r}"

    @property
    def is_ending(self) -> bool:
        """The trial is ending, as far as this participant knows: see `EventType.ENDING`."""
        return self._type is EventType.ENDING

    @property
    def is_over(self) -> bool:
        """True once the trial has ended for this participant."""
        return self._over

    def all_events(self) -> EventStream[ObservationT, ActionT]:
        """Return the events of the trial, in order, until its end: `async for event in session.all_events()`.

        Requesting the first event starts the session if `start` was not called. Requesting the next event after the
        final data tells the orchestrator that this participant is done, unless the session was started with
        `auto_done_sending=False`. After `Cancelled` no event is lost: the next request returns it. It raises `RpcError`
        if the connection to the orchestrator is lost, which need not be handled.
        """
        return EventStream(self._next)

    async def sending_done(self) -> None:
        """Tell the orchestrator that this participant has sent its last reward and message.

        Only in a session started with `auto_done_sending=False`, once the final observation has been received or sent.
        Until then the trial does not end. Returning from the implementation does the same. After `Cancelled` it may be
        called again.

        Raises:
            LocalProtocolError: it is done automatically, or it is too early.
        """
        self._check_done("sending_done")
        await self._acknowledge()

    def sending_done_nowait(self) -> None:
        """As `sending_done`, while `handle` runs; see there for the errors that it adds."""
        if not self._over:
            self._check_inline("sending_done_nowait")
        self._check_done("sending_done_nowait")
        self._acknowledge_nowait()

    def _check_done(self, doing: str) -> None:
        if self._auto_done_sending:
            raise LocalProtocolError(
                f"{self._who}: {doing}: the session does it by itself; start it with auto_done_sending=False"
            )
        if not self._final_data:
            raise LocalProtocolError(
                f"{self._who}: {doing}: expected it after the final observation; the trial goes on"
            )

    async def add_reward(
        self,
        value: float,
        confidence: float,
        to: Iterable[str] | str,
        *,
        tick_id: int = -1,
        user_data: Message | None = None,
    ) -> None:
        """Send a reward to actors.

        An environment can send it with an observation set, which takes less time; see `Reward`, also for the arguments.

        Raises:
            LocalProtocolError: the session has not been started, or the trial is over.
            InvalidArgumentError: the value or the confidence is not a number, the receivers are not names, or the user
                data is not a protobuf message.
        """
        reward = Reward(to, value, confidence, tick_id, user_data)
        for output in rewards(self._output_type, reward, lambda: f"{self._who}: add_reward"):
            await self._send(output, "add_reward")

    def add_reward_nowait(
        self,
        value: float,
        confidence: float,
        to: Iterable[str] | str,
        *,
        tick_id: int = -1,
        user_data: Message | None = None,
    ) -> None:
        """As `add_reward`, while `handle` runs; see there for the errors that it adds."""
        reward = Reward(to, value, confidence, tick_id, user_data)
        for output in rewards(self._output_type, reward, lambda: f"{self._who}: add_reward_nowait"):
            self._send_nowait(output, "add_reward_nowait")

    async def send_message(self, payload: Message, to: Iterable[str] | str) -> None:
        """Send a message, which is delivered immediately.

        Args:
            payload: any protobuf message; an `Any` is sent as it is.
            to: names of actors or of the environment, `"*"` for all actors, `"class.*"` for a class.

        Raises:
            LocalProtocolError: the session has not been started, or the trial is over.
            InvalidArgumentError: the payload is not a protobuf message, or the receivers are not names.
        """
        for message in messages(self._who, payload, to):
            await self._send(self._output_type(state=NORMAL, message=message), "send_message")
            if self._metrics is not None:
                self._metrics.message_sent()

    def send_message_nowait(self, payload: Message, to: Iterable[str] | str) -> None:
        """As `send_message`, while `handle` runs; see there for the errors that it adds."""
        for message in messages(self._who, payload, to):
            self._send_nowait(self._output_type(state=NORMAL, message=message), "send_message_nowait")
            if self._metrics is not None:
                self._metrics.message_sent()

    async def _send(self, message: Message | SharedMessage, doing: str) -> None:
        self._check_usable(doing)
        if not self._acknowledged:
            await self._post(message)

    def _send_nowait(self, message: Message | SharedMessage, doing: str) -> None:
        inline = self._check_inline(doing)
        if not self._acknowledged:
            inline.post(message)

    def _check_usable(self, doing: str) -> None:
        if not self._started:
            raise LocalProtocolError(f"{self._who}: {doing}: the session has not been started; await session.start()")
        if self._over:
            raise LocalProtocolError(
                f"{self._who}: {doing}: the trial is over; send before the last event, and leave the loop over "
                "all_events() when it ends"
            )

    def _check_inline(self, doing: str) -> InlineEvents:
        if self._inline is not None and self._started and not self._over:  # once per message
            return self._inline
        self._check_usable(doing)
        if self._inline is None:
            raise LocalProtocolError(
                f"{self._who}: {doing}: expected it while handle() runs; in other tasks await the function of the same "
                "name without _nowait"
            )
        return self._inline

    def _encode(
        self,
        payload: Payload | ObjectPayload,
        kind: type[Message] | None,
        what: str,
        actor_class: str,
        receiver: str = "",
    ) -> Content:
        """Return the bytes of a payload, whose type is that of an actor class; an `ObjectPayload` as it is.

        Raises:
            InvalidArgumentError: the payload is not of the type that the spec declares.
        """
        # The usual cases, without another call: this runs once per message.
        if type(payload) is bytes or isinstance(payload, ObjectPayload):
            return payload
        if kind is not None and type(payload) is kind:
            return payload.SerializeToString()
        return encoded(payload, kind, f"{self._who}: {what}" + (f" of {receiver!r}" if receiver else ""), actor_class)

    def _decoded_config(self, content: bytes | None) -> Any:
        if content is None or self._config_type is None:
            return content
        config = self._decode(content, self._config_type, "config")
        warn_of_unknown_fields(config, self._who, "config")
        return config

    def _decode(self, content: bytes, kind: type[Message], what: str) -> Any:
        """Return a payload that was received.

        Raises:
            RemoteProtocolError: it cannot be parsed as the type that the spec declares.
        """
        try:
            return decode(content, kind, what)
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self._who}: {error}; {REMEDY}") from None

    async def _post(self, *outputs: Message | SharedMessage) -> None:
        """Send messages together, unless the call is over; the next event then reports why."""
        try:
            await (self._call.hand_over(outputs[0]) if len(outputs) == 1 else self._call.send_together(outputs))
        except RpcError as error:
            if error.code is StatusCode.RESOURCE_EXHAUSTED:
                raise  # the message is too large; the call goes on
            await trio.lowlevel.checkpoint()

    @abc.abstractmethod
    async def _ensure_started(self) -> None:
        """Send the initial reply if it has not been sent."""

    @abc.abstractmethod
    def _take_bytes(self) -> None:
        """Let the payloads of events be bytes from now on, whatever the spec declares."""

    @abc.abstractmethod
    def _data(self, message: Any) -> Event[ObservationT, ActionT] | None:
        """Convert a NORMAL message to an event; None for data of an unknown type."""

    async def _next(self) -> Event[ObservationT, ActionT]:
        """Return the next event.

        Raises:
            StopAsyncIteration: the trial is over.
            StreamLostError: the stream broke before the trial was over.
        """
        if not self._started:
            await self._ensure_started()
        if self._final_data and self._auto_done_sending:
            await self._acknowledge()
        while not self._over:
            try:
                message = await self._receive()
            except RpcError as error:
                raise StreamLostError.because_of(error) from error
            event = self._take(message)
            if event is not None:
                return event
            if self._owes_heartbeat:
                self._owes_heartbeat = False
                await self._post(self._output_type(state=HEARTBEAT))
        raise StopAsyncIteration

    def _take(self, message: Any) -> Event[ObservationT, ActionT] | None:
        """Take what the orchestrator has sent, None at the end of the stream; return the event that it is, if any."""
        if message is None:
            self._over = True
            self.details = "the stream was closed"
            return None
        state = message.state
        if state == NORMAL:
            return self._data(message)
        if state == HEARTBEAT:
            self._owes_heartbeat = True
        elif state == LAST:
            self._type = EventType.ENDING
            self._take_outcome(message)
        elif state == END:
            self._over = True
            self._take_outcome(message)
            if self._type is EventType.ENDING and not message.details:
                self._type = EventType.FINAL
                return Event(EventType.FINAL, self.tick_id)
            self.details = message.details
        return None

    def _take_outcome(self, message: Any) -> None:
        if message.HasField("end"):
            self.outcome = TrialOutcome.of(self.trial_id, message.end)

    async def _acknowledge(self) -> None:
        if not (self._over or self._acknowledged):
            await self._post(self._output_type(state=LAST_ACK))
            self._acknowledged = True  # only now: after a cancellation the next event may be requested again

    def _acknowledge_nowait(self) -> None:
        if self._inline is not None and not (self._over or self._acknowledged):
            self._acknowledged = True  # before it is sent: in process this may bring the end
            self._inline.post(self._output_type(state=LAST_ACK))

    def _reply_nowait(self) -> bool:
        """Send what is owed when a message has been handled; return whether the trial is over."""
        if self._owes_heartbeat:
            self._owes_heartbeat = False
            if self._inline is not None:
                self._inline.post(self._output_type(state=HEARTBEAT))
        if self._final_data and self._auto_done_sending:
            self._acknowledge_nowait()
        return self._over

    async def handle(
        self,
        on_event: Callable[[Event[ObservationT, ActionT]], None],
        *,
        as_bytes: bool = False,
        with_rewards: bool = True,
    ) -> None:
        """Call a plain function with each event of the trial, until its end, instead of `all_events`.

        The function is called where the event arrives: in process in the task that caused it, over sockets in the one
        that reads the connection. That saves task switches, but the function must be quick, and cannot wait. It sends
        with the methods that end in `_nowait`. These may also be called from elsewhere in Trio's thread, even between
        the turns of a Trio that is a guest of another loop: what follows at once in process has then happened when they
        return. Trials in which nobody waits let other tasks run only now and then.

        When the function returns from the final data, the orchestrator is told that this participant is done, unless
        the session was started with `auto_done_sending=False`. An exception of the function ends the handling, and is
        raised here. After `Cancelled` the function is not called any more.

        The `_nowait` methods add to the errors of those without it: `LocalProtocolError` while `handle` does not run,
        and `ResourceExhaustedError` when too much waits for an orchestrator that does not read.

        Args:
            on_event: takes the events.
            as_bytes: observations and actions come as the bytes that they are, not parsed as the spec declares.
            with_rewards: the function is called with rewards, too.

        Raises:
            LocalProtocolError: somebody waits for the next event, or the events are or were handled already.
            RpcError: the connection to the orchestrator was lost; see `all_events`.
        """
        if not self._started:
            await self._ensure_started()
        if as_bytes:
            self._take_bytes()
        self._with_rewards = with_rewards
        await self._handle(self._take, on_event, "handle")

    async def handle_contents(self, on_content: Callable[[Any], None]) -> None:
        """As `handle`, for an adapter that needs nothing but what a tick brings, as it is.

        Args:
            on_content: called with an actor's observation, or with the list of all actors' actions, None for one who
                is unavailable. Each is an `ObjectPayload` if that was sent in this process, or else bytes. Whether it
                is the last one, `is_ending` says.

        Raises:
            LocalProtocolError, RpcError: as `handle`.
        """
        if not self._started:
            await self._ensure_started()
        self._take_bytes()
        self._takes_objects = True
        self._with_rewards = False
        await self._handle(self._take_content, on_content, "handle_contents")

    @abc.abstractmethod
    def _take_content(self, message: Any) -> Any:
        """As `_take`, for what a tick brings; None for everything else."""

    async def _handle(self, take: Callable[[Any], Any], on_event: Callable[[Any], None], doing: str) -> None:
        if self._inline is not None:
            raise LocalProtocolError(f"{self._who}: {doing}: the events of this session are handled already")
        reply = self._reply_nowait
        self._inline = events = AwaitedEvents(
            self, self._call, take=take, on_event=on_event, reply=reply, who=self._who
        )
        try:
            if self._final_data and self._auto_done_sending:
                self._acknowledge_nowait()
            await events.run()
        finally:
            self._inline = None

    def taken_by(
        self, events: InlineEvents | None, *, as_objects: bool = False
    ) -> tuple[Callable[[Any], Any], Callable[[], bool]]:
        """Let events be handled without `handle`, and as bytes; `direct_actor` calls it.

        Args:
            events: what hands them on; None: nothing does any more.
            as_objects: payloads come as `handle_contents` has them.

        Returns:
            What takes a message, and what sends what is owed after it.
        """
        self._inline = events
        self._take_bytes()
        self._takes_objects = as_objects
        return self._take, self._reply_nowait

    async def run(
        self, implementation: Callable[[Any], Awaitable[None]], metrics: SessionMetrics | None = None
    ) -> None:
        """Run an implementation, and then `finish`; the SDK calls it."""
        began, self._metrics = trio.current_time(), metrics
        try:
            await implementation(self)
        finally:
            if metrics is not None:
                metrics.ended(trio.current_time() - began, self.tick_id)
        await self.finish()

    async def finish(self) -> None:
        """Acknowledge the final data and wait for the end of the trial, once the implementation has returned.

        The SDK calls it. A participant that returns before the final data leaves the trial.
        """
        if self._final_data:
            await self._acknowledge()
            async for _ in self.all_events():
                pass

    def _received_message(self, message: common_pb2.Message) -> Event[ObservationT, ActionT]:
        if self._metrics is not None:
            self._metrics.message_received()
        received = RecvMessage(message.tick_id, message.sender_name, message.payload, message.receiver_name)
        return Event(self._type, message.tick_id, message=received)
