"""Messages and payloads that are bytes only where somebody needs those; how fields of messages begin on the wire."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from trio_cogment.api.common_pb2 import (
    Action,
    ActorRunTrialInput,
    ActorRunTrialOutput,
    CommunicationState,
    Observation,
    Reward,
    RewardSource,
)
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ActionSet, EnvRunTrialInput, EnvRunTrialOutput, ObservationSet
from trio_cogment.base.compiling import mypyc_attr

_LENGTH_DELIMITED: Final = 2


@mypyc_attr(allow_interpreted_subclasses=True)
class ObjectPayload:
    """A payload that crosses the process as an object; `bytes` encodes it where somebody needs that, and once.

    Its bytes are those of the moment at which it was made, whatever becomes of the object afterwards: a subclass that
    encodes later keeps a copy of what can be changed.

    Args:
        value: the object.
        content: its bytes, if they are known.

    Attributes:
        value: see above.
    """

    __slots__ = ("_content", "value")

    def __init__(self, value: Any, content: bytes | None = None) -> None:
        self.value = value
        self._content = content

    def __bytes__(self) -> bytes:
        content = self._content
        if content is None:
            content = self._content = self.encode()
        return content

    def __len__(self) -> int:
        return len(self.__bytes__())

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (self.__bytes__(),)  # for another process it is that

    def encode(self) -> bytes:
        """Return the bytes, which were not given."""
        raise NotImplementedError


@mypyc_attr(allow_interpreted_subclasses=True)
class SharedMessage:
    """A message that stays as it is within the process; on the wire its last bytes may be those of others as well.

    Args:
        kind: its type.
        head: its first bytes.
        tails: the rest, in the pieces that others refer to as well.

    Attributes:
        kind: see above.
        encoded: all of it as it is on the wire; empty: nobody has asked for it yet, or it is never in one piece.
    """

    __slots__ = ("_head", "_tails", "encoded", "kind")

    def __init__(self, kind: type[Message], head: bytes, *tails: bytes) -> None:
        self.kind = kind
        self.encoded = b""
        self._head = head
        self._tails = tails

    @property
    def head(self) -> bytes:
        """Its first bytes, which are its own."""
        return self._head

    @property
    def tails(self) -> tuple[bytes, ...]:
        """The rest, in the pieces that others refer to as well."""
        return self._tails

    def ByteSize(self) -> int:
        """Return its size; named as that of any other message is."""
        return len(self.head) + sum(map(len, self.tails))

    def payload(self) -> bytes:
        """Return it as it is on the wire, in one piece."""
        return b"".join((self.head, *self.tails))

    def whole(self) -> Message:
        """Return it as a message of its own."""
        return self.kind.FromString(self.payload())


def field_tag(kind: type[Message], name: str) -> bytes:
    """Return the tag of a field of a message that is a string, bytes or a message; its length follows, a `varint`."""
    return varint(kind.DESCRIPTOR.fields_by_name[name].number << 3 | _LENGTH_DELIMITED)


def varint(number: int) -> bytes:
    """Return a number of zero or more as a varint: seven bits a byte, the lowest first."""
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    digits.append(number)
    return bytes(digits)


# The messages of a tick as they cross a process: made once, whoever gets them, and encoded where somebody needs bytes.
#
# A tick takes an action of each actor, an action set, an observation set, an observation for each actor, and rewards.
# As messages of protobuf these would cost more than all that the trial does with them. They have the same attributes
# here, so that who takes them in need not know which kind it has. A payload is `bytes`, or an `ObjectPayload`.

#: What an actor sees or does.
Content: TypeAlias = bytes | ObjectPayload

#: Of larger ones the content is not copied: on the wire it is a piece of its own.
_LARGE_BYTES: Final = 16 * 1024

#: About what an actor's place in an observation set takes.
_ENTRY_BYTES: Final = 4
#: About what a reward takes beside its sources and the name.
_REWARD_BYTES: Final = 16

_NORMAL: Final = CommunicationState.NORMAL
_OBSERVATION: Final[bytes] = ActorRunTrialInput(state=_NORMAL).SerializeToString() + field_tag(
    ActorRunTrialInput, "observation"
)
_CONTENT: Final = field_tag(Observation, "content")


class SharedObservation(SharedMessage):
    """What an actor is sent to see; nothing of it is the actor's own.

    Args:
        tick_id: of the trial.
        timestamp: nanoseconds since the Unix epoch.
        content: the observation.

    Attributes:
        tick_id: see above.
        timestamp: see above.
        content: see above.
    """

    __slots__ = ("content", "tick_id", "timestamp")

    def __init__(self, tick_id: int, timestamp: int, content: Content) -> None:
        self.kind = ActorRunTrialInput
        self.encoded = b""
        self.tick_id = tick_id
        self.timestamp = timestamp
        self.content = content
        #: What is on the wire before a large content; not before anybody asks, as within the process nobody does.
        self._head = b""

    @property
    def head(self) -> bytes:
        """See `SharedMessage.head`."""
        if not self._head and len(self.content) >= _LARGE_BYTES:
            inner: bytes = Observation(tick_id=self.tick_id, timestamp=self.timestamp).SerializeToString()
            inner += _CONTENT + varint(len(self.content))
            self._head = _OBSERVATION + varint(len(inner) + len(self.content)) + inner
        return self._head

    @property
    def tails(self) -> tuple[bytes, ...]:
        """See `SharedMessage.tails`."""
        return (self.payload() if len(self.content) < _LARGE_BYTES else bytes(self.content),)

    def ByteSize(self) -> int:
        """See `SharedMessage.ByteSize`."""
        if self._head:
            return len(self._head) + len(self.content)
        size = len(self.content)
        return len(self.payload()) if size < _LARGE_BYTES else len(self.head) + size

    def payload(self) -> bytes:
        """See `SharedMessage.payload`."""
        if len(self.content) >= _LARGE_BYTES:
            return self.head + bytes(self.content)
        if not self.encoded:
            self.encoded = self.whole().SerializeToString()
        return self.encoded

    def whole(self) -> Message:
        """See `SharedMessage.whole`."""
        # Setting fields costs half of what keyword arguments do.
        message: Any = ActorRunTrialInput()
        message.state = _NORMAL
        observation = message.observation
        observation.tick_id = self.tick_id
        observation.timestamp = self.timestamp
        observation.content = bytes(self.content)
        whole: Message = message
        return whole


class _TickMessage(SharedMessage):
    """One that is for a single receiver: its bytes are in one piece."""

    __slots__ = ("tick_id",)

    # Each subclass sets these itself: another call for each message would cost as much as the rest.
    tick_id: int

    @property
    def head(self) -> bytes:
        """See `SharedMessage.head`."""
        return b""

    @property
    def tails(self) -> tuple[bytes, ...]:
        """See `SharedMessage.tails`."""
        return (self.payload(),)

    def ByteSize(self) -> int:
        """See `SharedMessage.ByteSize`."""
        return len(self.payload())

    def payload(self) -> bytes:
        """See `SharedMessage.payload`."""
        if not self.encoded:
            self.encoded = self.whole().SerializeToString()
        return self.encoded


class SharedAction(_TickMessage):
    """What an actor does.

    Args:
        tick_id: of the trial.
        timestamp: nanoseconds since the Unix epoch.
        content: the action.

    Attributes:
        content: see above.
    """

    __slots__ = ("content", "timestamp")

    def __init__(self, tick_id: int, timestamp: int, content: Content) -> None:
        self.kind = ActorRunTrialOutput
        self.tick_id = tick_id
        self.timestamp = timestamp
        self.encoded = b""
        self.content = content

    @property
    def action(self) -> SharedAction:
        """Itself, by the name of the field that has it."""
        return self

    def fill(self, action: Action) -> None:
        """Write it into a message."""
        action.tick_id = self.tick_id
        action.timestamp = self.timestamp
        action.content = bytes(self.content)

    def whole(self) -> Message:
        """See `SharedMessage.whole`."""
        message: Any = ActorRunTrialOutput()
        message.state = _NORMAL
        self.fill(message.action)
        whole: Message = message
        return whole


class SharedActionSet(_TickMessage):
    """What all actors have done, for the environment.

    Args:
        tick_id: of the trial.
        timestamp: nanoseconds since the Unix epoch.
        actions: in the order of the trial's parameters.
        unavailable_actors: the indexes of those without an action.

    Attributes:
        actions: see above.
        unavailable_actors: see above.
    """

    __slots__ = ("actions", "timestamp", "unavailable_actors")

    def __init__(self, tick_id: int, timestamp: int, actions: list[Any], unavailable_actors: list[int]) -> None:
        self.kind = EnvRunTrialInput
        self.tick_id = tick_id
        self.timestamp = timestamp
        self.encoded = b""
        self.actions = actions
        self.unavailable_actors = unavailable_actors

    def whole(self) -> Message:
        """See `SharedMessage.whole`."""
        message: Any = EnvRunTrialInput()
        message.state = _NORMAL
        action_set: ActionSet = message.action_set
        action_set.tick_id = self.tick_id
        action_set.timestamp = self.timestamp
        # Of bytes, `bytes` would look for a way to convert them before it returns them as they are.
        action_set.actions.extend([action if type(action) is bytes else bytes(action) for action in self.actions])
        if self.unavailable_actors:
            action_set.unavailable_actors.extend(self.unavailable_actors)
        whole: Message = message
        return whole


class SharedObservationSet(_TickMessage):
    """What all actors are to see, from the environment.

    Args:
        tick_id: of the trial.
        timestamp: nanoseconds since the Unix epoch.
        observations: each of them once.
        actors_map: which of them each actor sees.

    Attributes:
        observations: see above.
        actors_map: see above.
        told: rewards for the trial's sample alone: the observations tell their receivers. They have no encoding, so
            they go only where objects pass (`Call.passes_objects`).
        checkpoint: what the environment has saved of itself with them, if it has: a serialized `Checkpoint`.
    """

    __slots__ = ("actors_map", "checkpoint", "observations", "timestamp", "told")

    def __init__(self, tick_id: int, timestamp: int, observations: list[Any], actors_map: list[int]) -> None:
        self.kind = EnvRunTrialOutput
        self.tick_id = tick_id
        self.timestamp = timestamp
        self.encoded = b""
        self.observations = observations
        self.actors_map = actors_map
        self.told: Sequence[SharedReward] = ()
        self.checkpoint: bytes | None = None

    @property
    def observation_set(self) -> SharedObservationSet:
        """Itself, by the name of the field that has it."""
        return self

    @property
    def size(self) -> int:
        """About its size, for which it need not be encoded."""
        size = sum(map(len, self.observations)) + _ENTRY_BYTES * len(self.actors_map)
        return size if self.checkpoint is None else size + len(self.checkpoint)

    def fill(self, observation_set: ObservationSet) -> None:
        """Write it into a message."""
        observation_set.tick_id = self.tick_id
        observation_set.timestamp = self.timestamp
        observation_set.observations.extend(map(bytes, self.observations))
        observation_set.actors_map.extend(self.actors_map)
        if self.checkpoint is not None:
            observation_set.checkpoint.ParseFromString(self.checkpoint)

    def whole(self) -> Message:
        """See `SharedMessage.whole`."""
        message: Any = EnvRunTrialOutput()
        message.state = _NORMAL
        self.fill(message.observation_set)
        whole: Message = message
        return whole


class SharedReward(_TickMessage):
    """A reward: what somebody gives, or an actor is given.

    Args:
        kind: the type of the message.
        tick_id: that is rewarded; -1 for the one under way.
        receiver_name: who gets it.
        value: the mean of its sources.
        sources: not to be changed afterwards, but for the sender's name.

    Attributes:
        receiver_name: see above.
        value: see above.
        sources: see above.
        sender: whose name the sources have; None: nobody has looked at that yet. A reward that is for the record alone
            may be given in many ticks.
        stored: what a datastore keeps of the sources, once it has looked at them.
    """

    __slots__ = ("receiver_name", "sender", "sources", "stored", "value")

    def __init__(
        self, kind: type[Message], tick_id: int, receiver_name: str, value: float, sources: list[RewardSource]
    ) -> None:
        self.kind = kind
        self.tick_id = tick_id
        self.encoded = b""
        self.receiver_name = receiver_name
        self.value = value
        self.sources = sources
        self.sender: str | None = None
        self.stored: Any = None

    @property
    def reward(self) -> SharedReward:
        """Itself, by the name of the field that has it."""
        return self

    @property
    def size(self) -> int:
        """About its size, for which it need not be encoded."""
        return sum([source.ByteSize() for source in self.sources]) + len(self.receiver_name) + _REWARD_BYTES

    def fill(self, reward: Reward) -> None:
        """Write it into a message."""
        reward.tick_id = self.tick_id
        reward.receiver_name = self.receiver_name
        reward.value = self.value
        reward.sources.extend(self.sources)

    def whole(self) -> Message:
        """See `SharedMessage.whole`."""
        message: Any = self.kind()
        message.state = _NORMAL
        self.fill(message.reward)
        whole: Message = message
        return whole


class SharedSample:
    """A tick of a trial for a data log of this process: what came in it, as it came.

    It has only what nearly every tick has. Whoever wants the message calls `whole`; the parts are not to be changed.

    Args:
        tick_id: of the trial.
        timestamp: nanoseconds since the Unix epoch.
        observations: what the actors saw; None before the environment has said so.

    Attributes:
        tick_id: see above.
        timestamp: see above.
        observations: see above.
        size: about how many bytes it has.
        state: in which the tick ended, a `TrialState`.
        actions: what the actors did, in the order of the trial's parameters.
        rewards: those of the tick.
    """

    __slots__ = ("actions", "observations", "rewards", "size", "state", "tick_id", "timestamp")

    def __init__(self, tick_id: int, timestamp: int, observations: SharedObservationSet | None = None) -> None:
        self.tick_id = tick_id
        self.timestamp = timestamp
        self.size = 0
        self.state: Any = 0
        self.observations = observations
        self.actions: Sequence[SharedAction] = ()
        self.rewards: list[SharedReward] = []

    def whole(self) -> DatalogSample:
        """Return the message."""
        sample = DatalogSample()
        info = sample.info
        info.tick_id = self.tick_id
        info.timestamp = self.timestamp
        info.state = self.state
        if self.observations is not None:
            self.observations.fill(sample.observations)
        for action in self.actions:
            action.fill(sample.actions.add())
        for reward in self.rewards:
            reward.fill(sample.rewards.add())
        return sample


# Large payloads of messages that come: located in the bytes of the wire, and cut out of them.
#
# Parsed by protobuf, a payload is copied into its arena, when it is looked at, and where its size is asked for, and
# the arena is new memory each time. Here the fields around it are walked over, which takes some microseconds. What is
# left without it is for protobuf. Only what nearly every message is comes this way: the usual fields in their usual
# order. Everything else is protobuf's from the beginning.

#: From this size on it takes less time: an observation set of 32 KiB 4 µs instead of 5, one of 100 KiB 8 instead of 20.
LOCATED_BYTES: Final = 32 * 1024
#: A message with more fields is left to who counts them, and lets others have their turn.
_MOST_FIELDS: Final = 512
_VARINT: Final = 0
_FIXED64: Final = 1
#: The tag of the state, which is the first field of all messages of a trial.
_STATE: Final = 1 << 3 | _VARINT
#: Types of numbers that are varints in these messages.
_VARINTS: Final = frozenset(
    [FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_SINT64, FieldDescriptor.TYPE_INT32, FieldDescriptor.TYPE_UINT32]
)
#: Fields with smaller numbers have a tag of one byte. Others are not usual.
_LONG_TAG: Final = 16
_CONTENT_FIELD: Final = 1
_DELIMITED_FIELD: Final = 2
_FIXED_FIELD: Final = 3
_NUMBER_FIELD: Final = 4


class _Layout:
    """A message that has a payload: its field for the message with the payload, and what is in that.

    Args:
        kind: the message.
        name: the field of the inner message.
        inner: its type.
        content: its field with the payload.
        make: makes a shared message of the rest of the inner message and of the payloads.
    """

    def __init__(
        self,
        kind: type[Message],
        name: str,
        inner: type[Message],
        content: str,
        make: Callable[[Any, list[bytes]], SharedMessage],
    ) -> None:
        self.tag = field_tag(kind, name)[0]  # all numbers are so small that a byte has the tag
        self.inner = inner
        self.repeated = inner.DESCRIPTOR.fields_by_name[content].is_repeated
        #: By the tag of a field of the inner message: how to get over it, or `_CONTENT_FIELD`; 0: it is unusual.
        self.fields = bytearray(256)
        for field in inner.DESCRIPTOR.fields:
            if field.number >= _LONG_TAG:
                continue
            if field.name == content:
                self.fields[field.number << 3 | _LENGTH_DELIMITED] = _CONTENT_FIELD
            elif field.type == FieldDescriptor.TYPE_FIXED64:
                self.fields[field.number << 3 | _FIXED64] = _FIXED_FIELD
            elif field.type in _VARINTS:
                if field.is_repeated:  # packed
                    self.fields[field.number << 3 | _LENGTH_DELIMITED] = _DELIMITED_FIELD
                else:
                    self.fields[field.number << 3 | _VARINT] = _NUMBER_FIELD
        self.make = make

    def locate(self, data: bytes | memoryview) -> SharedMessage | None:
        """See `locator`."""
        try:
            if data[0] != _STATE or data[1] != _NORMAL or data[2] != self.tag:
                return None
            position, size = _varint_at(data, 3)
            end = position + size
            if end != len(data):
                return None
            fields = self.fields
            contents: list[bytes] = []
            rest: list[bytes | memoryview] = []
            begun = position
            left = _MOST_FIELDS
            while position < end and left:
                left -= 1
                kind = fields[data[position]]
                if kind == _FIXED_FIELD:
                    position += 9
                    continue
                start = position
                position += 1
                size = data[position]
                if size < 128:
                    position += 1
                else:
                    position, size = _varint_at(data, position)
                if kind == _DELIMITED_FIELD:
                    position += size
                elif kind == _CONTENT_FIELD:
                    rest.append(data[begun:start])
                    begun = position + size
                    contents.append(bytes(data[position:begun]))
                    position = begun
                elif kind != _NUMBER_FIELD:
                    return None
            if position != end or not (self.repeated or len(contents) == 1):
                return None
            rest.append(data[begun:end])
            return self.make(self.inner.FromString(b"".join(rest)), contents)
        except (IndexError, DecodeError):
            return None  # protobuf says what is wrong with it


def _varint_at(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """Return where a varint ends, and the number."""
    number = shift = 0
    while True:
        digit = data[position]
        position += 1
        number |= (digit & 127) << shift
        if digit < 128:
            return position, number
        shift += 7


def _observation_set(rest: Any, contents: list[bytes]) -> SharedMessage:
    return SharedObservationSet(rest.tick_id, rest.timestamp, contents, list(rest.actors_map))


def _observation(rest: Any, contents: list[bytes]) -> SharedMessage:
    return SharedObservation(rest.tick_id, rest.timestamp, contents[0])


def _action_set(rest: Any, contents: list[bytes]) -> SharedMessage:
    return SharedActionSet(rest.tick_id, rest.timestamp, contents, list(rest.unavailable_actors))


def _action(rest: Any, contents: list[bytes]) -> SharedMessage:
    return SharedAction(rest.tick_id, rest.timestamp, contents[0])


_LAYOUTS: Final[dict[type[Message], _Layout]] = {
    EnvRunTrialOutput: _Layout(EnvRunTrialOutput, "observation_set", ObservationSet, "observations", _observation_set),
    EnvRunTrialInput: _Layout(EnvRunTrialInput, "action_set", ActionSet, "actions", _action_set),
    ActorRunTrialInput: _Layout(ActorRunTrialInput, "observation", Observation, "content", _observation),
    ActorRunTrialOutput: _Layout(ActorRunTrialOutput, "action", Action, "content", _action),
}


def locator(kind: type[Message]) -> Callable[[bytes | memoryview], SharedMessage | None] | None:
    """Return what makes a shared message of the bytes of a large one without parsing its payload; None: nothing does.

    It returns None for a message that is not the usual one of a tick: that one is to be parsed. Nothing of the bytes is
    referred to afterwards.
    """
    layout = _LAYOUTS.get(kind)
    return None if layout is None else layout.locate
