"""The common base of the sessions of actors and environments."""

from __future__ import annotations

import abc
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Generic

import trio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message

from trio_cogment.api import common_pb2
from trio_cogment.api.common_pb2 import CommunicationState, Reward, RewardSource
from trio_cogment.errors import FailedPreconditionError, InvalidArgumentError, LocalProtocolError, RemoteProtocolError
from trio_cogment.metrics import SessionMetrics
from trio_cogment.rpc import Call, RpcError, StatusCode
from trio_cogment.sdk._events import ActionT, Event, EventType, ObservationT, RecvMessage
from trio_cogment.sdk._spec_checks import REMEDY, warn_of_unknown_fields, wrong_type
from trio_cogment.spec import Payload, decode, encode

NORMAL = CommunicationState.NORMAL
HEARTBEAT = CommunicationState.HEARTBEAT
LAST = CommunicationState.LAST
LAST_ACK = CommunicationState.LAST_ACK
END = CommunicationState.END

WallClock = Callable[[], int]


class StreamLostError(RpcError):
    """The stream to the orchestrator broke: the trial cannot go on here, and the implementation is not to blame.

    A type of its own, so that it differs from what the implementation's own calls may raise.
    """


async def receive_init(call: Call, output_type: type[Message]) -> Any:
    """Wait for the `init_input` of a participant's stream; None when the trial ends before.

    Args:
        call: the stream.
        output_type: of the messages that the participant sends; HEARTBEATs are answered meanwhile.

    Raises:
        RemoteProtocolError: something else came first.
    """
    async for message in call:
        if message.state == NORMAL and message.HasField("init_input"):
            return message.init_input
        if message.state == HEARTBEAT:
            await call.send(output_type(state=HEARTBEAT))
        elif message.state == END:
            return None
        else:
            raise RemoteProtocolError("expected NORMAL with init_input first")
    return None


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
        self._type = EventType.ACTIVE
        self._started = False
        self._over = False
        self._acknowledged = False
        self._final_data = False
        self._auto_done_sending = True
        self._metrics: SessionMetrics | None = None

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """The participant's name in the trial."""

    def _given_config(self) -> Any:
        """Return `config`.

        Raises:
            FailedPreconditionError: it is None.
        """
        if self.config is None:
            kind = "bytes" if self._config_type is None else self._config_type.__name__
            raise FailedPreconditionError(
                f"{self._who}: config: expected {kind}, and the trial's parameters have none; set it with "
                f"{self._config_hint}, or in a pre-trial hook"
            )
        return self.config

    @property
    @abc.abstractmethod
    def _config_hint(self) -> str:
        """How the configuration is set in a trial's parameters."""

    @property
    def _who(self) -> str:
        return f"trial {self.trial_id!r}, {self._kind} {self.name!r}"

    @property
    def is_over(self) -> bool:
        """True once the trial has ended for this participant."""
        return self._over

    def all_events(self) -> EventStream[ObservationT, ActionT]:
        """Return the events of the trial, in order, until its end: `async for event in session.all_events()`.

        Requesting the first event starts the session if `start` was not called. Requesting the next event after the
        final data tells the orchestrator that this participant is done, unless the session was started with
        `auto_done_sending=False`. After `Cancelled` no event is lost: the next request returns it.

        The request raises `RpcError` if the connection to the orchestrator is lost. An implementation need not handle
        that: the SDK logs it as what it is.
        """
        return EventStream(self)

    async def sending_done(self) -> None:
        """Tell the orchestrator that this participant has sent its last reward and message.

        Only in a session that was started with `auto_done_sending=False`, and once the trial is ending and the final
        observation has been received or sent. Until then the trial does not end. Returning from the implementation does
        the same. After `Cancelled` it may be called again.

        Raises:
            LocalProtocolError: it is done automatically, or it is too early.
        """
        if self._auto_done_sending:
            raise LocalProtocolError(
                f"{self._who}: sending_done: the session does it by itself; start it with auto_done_sending=False"
            )
        if not self._final_data:
            raise LocalProtocolError(
                f"{self._who}: sending_done: expected it after the final observation; the trial goes on"
            )
        await self._acknowledge()

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

        Args:
            value: the reward.
            confidence: its weight in the mean; sources with zero or less are reported but have no weight.
            to: names of actors, `"*"` for all, `"class.*"` for a class.
            tick_id: the tick that is rewarded; -1 for the current one.
            user_data: delivered to the receiver with the reward.

        Raises:
            LocalProtocolError: the session has not been started, or the trial is over.
            InvalidArgumentError: the value or the confidence is no number, the receivers are not names, or the user
                data is not a protobuf message.
        """
        try:
            source = RewardSource(value=value, confidence=confidence)
        except TypeError:
            raise InvalidArgumentError(
                f"{self._who}: add_reward: expected numbers as value and confidence, got {value!r} and {confidence!r}"
            ) from None
        if user_data is not None:
            source.user_data.CopyFrom(self._packed(user_data, "add_reward: user_data"))
        for receiver in _receivers(self, to, "add_reward"):
            reward = Reward(tick_id=tick_id, receiver_name=receiver, value=value, sources=[source])
            await self._send(self._output_type(state=NORMAL, reward=reward), "add_reward")

    async def send_message(self, payload: Message, to: Iterable[str] | str) -> None:
        """Send a message, which is delivered immediately.

        Args:
            payload: any protobuf message; an `Any` is sent as it is.
            to: names of actors or of the environment, `"*"` for all actors, `"class.*"` for a class.

        Raises:
            LocalProtocolError: the session has not been started, or the trial is over.
            InvalidArgumentError: the payload is not a protobuf message, or the receivers are not names.
        """
        packed = self._packed(payload, "send_message")
        for receiver in _receivers(self, to, "send_message"):
            message = common_pb2.Message(tick_id=-1, receiver_name=receiver, payload=packed)
            await self._send(self._output_type(state=NORMAL, message=message), "send_message")
            if self._metrics is not None:
                self._metrics.message_sent()

    def _packed(self, payload: object, doing: str) -> AnyMessage:
        if isinstance(payload, AnyMessage):
            return payload
        if not isinstance(payload, Message):
            got = type(payload).__name__
            raise InvalidArgumentError(
                f"{self._who}: {doing}: expected a protobuf message, got {got}; put it into one, such as "
                "google.protobuf.wrappers_pb2.StringValue"
            )
        if payload.DESCRIPTOR.full_name == AnyMessage.DESCRIPTOR.full_name:
            # From a field of a message whose spec was loaded from files: there it has a class of its own.
            return AnyMessage.FromString(payload.SerializeToString())
        packed = AnyMessage()
        packed.Pack(payload)
        return packed

    async def _send(self, message: Message, doing: str) -> None:
        self._check_usable(doing)
        if not self._acknowledged:
            await self._post(message)

    def _check_usable(self, doing: str) -> None:
        if not self._started:
            raise LocalProtocolError(f"{self._who}: {doing}: the session has not been started; await session.start()")
        if self._over:
            raise LocalProtocolError(
                f"{self._who}: {doing}: the trial is over; send before the last event, and leave the loop over "
                "all_events() when it ends"
            )

    def _encode(
        self, payload: Payload, kind: type[Message] | None, what: str, actor_class: str, receiver: str = ""
    ) -> bytes:
        """Return the bytes of a payload, whose type is that of an actor class.

        Raises:
            InvalidArgumentError: the payload is not of the type that the spec declares.
        """
        # The usual cases, without another call: this runs once per message.
        if type(payload) is bytes:
            return payload
        if kind is not None and type(payload) is kind:
            return payload.SerializeToString()
        try:
            return encode(payload, kind, what)
        except InvalidArgumentError:
            receiving = f" of {receiver!r}" if receiver else ""
            text = wrong_type(payload, kind, actor_class)
            raise InvalidArgumentError(f"{self._who}: {what}{receiving}: {text}") from None

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

    async def _post(self, message: Message) -> None:
        """Send a message, unless the call is over; the next event then reports why."""
        try:
            await self._call.send(message)
        except RpcError as error:
            if error.code is StatusCode.RESOURCE_EXHAUSTED:
                raise  # the message is too large; the call goes on
            await trio.lowlevel.checkpoint()

    @abc.abstractmethod
    async def _ensure_started(self) -> None:
        """Send the initial reply if it has not been sent."""

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
                raise StreamLostError(error.code, error.message, error.trailing_metadata) from error
            if message is None:
                self._over = True
                self.details = "the stream was closed"
                break
            state = message.state
            if state == NORMAL:
                event = self._data(message)
                if event is not None:
                    return event
            elif state == HEARTBEAT:
                await self._post(self._output_type(state=HEARTBEAT))
            elif state == LAST:
                self._type = EventType.ENDING
            elif state == END:
                return self._end(message.details)
        raise StopAsyncIteration

    def _end(self, details: str) -> Event[ObservationT, ActionT]:
        self._over = True
        if self._type is EventType.ENDING and not details:
            self._type = EventType.FINAL
            return Event(EventType.FINAL, self.tick_id)
        self.details = details
        raise StopAsyncIteration

    async def _acknowledge(self) -> None:
        if not (self._over or self._acknowledged):
            await self._post(self._output_type(state=LAST_ACK))
            self._acknowledged = True  # only now: after a cancellation the next event may be requested again

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


def _receivers(session: Session[Any, Any], to: Iterable[str] | str, doing: str) -> list[str]:
    if isinstance(to, str):
        return [to]
    found = list(to) if isinstance(to, Iterable) else [to]
    if not all(isinstance(name, str) for name in found):
        raise InvalidArgumentError(
            f'{session._who}: {doing}: expected names as receivers (or "*", or "class.*"), got {to!r}'
        )
    return found


class EventStream(Generic[ObservationT, ActionT]):
    """The events of a session, as an asynchronous iterator without state of its own."""

    __slots__ = ("_session",)

    def __init__(self, session: Session[ObservationT, ActionT]) -> None:
        self._session = session

    def __aiter__(self) -> EventStream[ObservationT, ActionT]:
        return self

    def __anext__(self) -> Coroutine[Any, Any, Event[ObservationT, ActionT]]:
        # The session's own coroutine without a wrapper: this runs once per message.
        return self._session._next()
