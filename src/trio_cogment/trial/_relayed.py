"""Messages and rewards as effects: what was said or given is kept once, whoever and however many it is for.

A message to everybody has as many envelopes as there are actors. They differ in the name of the receiver, and the bytes
of the payload, which are nearly all of them, are the same. So an envelope is two pieces: a head of its own, and a tail
that all have in common. Put together they are the message on the wire; the order of fields means nothing there. The
same holds for rewards, of which the sources are in common, with all that users add to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.message import Message as AnyMessage

from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState, Message, Reward, RewardSource
from trio_cogment.api.environment_pb2 import EnvRunTrialInput
from trio_cogment.base.rewards import mean_reward
from trio_cogment.base.shared_message import SharedMessage, SharedReward, field_tag, varint
from trio_cogment.trial._events import ENVIRONMENT, SendShared

#: Rewards of this many bytes are not copied for each actor.
_LARGE_BYTES: Final = 16 * 1024

_PAYLOAD: Final = field_tag(Message, "payload")


def _start(kind: type[Any], field: str) -> bytes:
    """Return an envelope up to the length of what is in it."""
    beginning: bytes = kind(state=CommunicationState.NORMAL).SerializeToString()
    return beginning + field_tag(kind, field)


_MESSAGES: Final[dict[type[AnyMessage], bytes]] = {
    kind: _start(kind, "message") for kind in (ActorRunTrialInput, EnvRunTrialInput)
}
_REWARD: Final = _start(ActorRunTrialInput, "reward")


class Said:
    """What somebody said in some tick, whoever it is for.

    Args:
        message: as it came; it may be changed afterwards.
        tick_id: of the trial.

    Attributes:
        tail: the payload, as a field of a message on the wire.
        sender_name: who said it.
        tick_id: see above.
    """

    __slots__ = ("sender_name", "tail", "tick_id")

    def __init__(self, message: Message, tick_id: int) -> None:
        self.sender_name = message.sender_name
        self.tick_id = tick_id
        self.tail = b""
        if message.HasField("payload"):
            payload = message.payload.SerializeToString()
            self.tail = _PAYLOAD + varint(len(payload)) + payload


def relay(participant: int, receiver_name: str, said: Said) -> SendShared:
    """Return the effect that brings a message to one of its receivers."""
    kind: type[AnyMessage] = EnvRunTrialInput if participant == ENVIRONMENT else ActorRunTrialInput
    inner = Message(tick_id=said.tick_id, sender_name=said.sender_name, receiver_name=receiver_name)
    beginning: bytes = inner.SerializeToString()
    head = _MESSAGES[kind] + varint(len(beginning) + len(said.tail)) + beginning
    return SendShared(participant, SharedMessage(kind, head, said.tail))


class Given:
    """What somebody gave as a reward, whoever gets it.

    Args:
        sources: not to be changed afterwards.
        size: about this many bytes.

    Attributes:
        sources: see above.
        size: see above.
    """

    __slots__ = ("_tail", "size", "sources")

    def __init__(self, sources: list[RewardSource], size: int) -> None:
        self.sources = sources
        self.size = size
        self._tail = b""

    @property
    def tail(self) -> bytes:
        """The sources, as fields of a reward on the wire."""
        if not self._tail:
            self._tail = Reward(sources=self.sources).SerializeToString()
        return self._tail


def reward(participant: int, receiver_name: str, tick_id: int, given: list[Given]) -> SendShared:
    """Return the effect that brings an actor all that it was given, as one reward.

    Its value is the mean of all sources, weighted by confidence. Those whose confidence is not positive carry no weight
    but are listed.
    """
    sources = given[0].sources if len(given) == 1 else [source for each in given for source in each.sources]
    value = _mean(sources)
    if sum([each.size for each in given]) < _LARGE_BYTES:
        return SendShared(participant, SharedReward(ActorRunTrialInput, tick_id, receiver_name, value, sources))
    inner = Reward(tick_id=tick_id, receiver_name=receiver_name, value=value)
    beginning: bytes = inner.SerializeToString()
    tails = [each.tail for each in given]
    head = _REWARD + varint(len(beginning) + sum(map(len, tails))) + beginning
    return SendShared(participant, SharedMessage(ActorRunTrialInput, head, *tails))


def _mean(sources: Sequence[RewardSource]) -> float:
    if len(sources) == 1:  # nearly always
        (source,) = sources
        return source.value if source.confidence > 0 else 0.0
    mean = mean_reward([(source.value, source.confidence) for source in sources])
    return RewardSource(value=mean).value  # in the precision that it has on the wire
