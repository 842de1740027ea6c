"""Messages between participants as effects: what was said is kept once, whoever and however many it is for.

A message to everybody has as many envelopes as there are actors. They differ in the name of the receiver, and the bytes
of the payload, which are nearly all of them, are the same. So an envelope is two pieces: a head of its own, and a tail
that all have in common. Put together they are the message on the wire; the order of fields means nothing there.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message as AnyMessage

from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState, Message
from trio_cogment.api.environment_pb2 import EnvRunTrialInput
from trio_cogment.trial._events import ENVIRONMENT, Send

_LENGTH_DELIMITED: Final = 2
_PAYLOAD: Final = Message.DESCRIPTOR.fields_by_name["payload"].number
_NORMAL: Final = CommunicationState.NORMAL


def _tag(number: int) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED)


def _varint(value: int) -> bytes:
    pieces = bytearray()
    while value > 127:
        pieces.append(value & 127 | 128)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


def _start(kind: type[Any]) -> bytes:
    """Return an envelope up to the length of its message."""
    beginning: bytes = kind(state=_NORMAL).SerializeToString()
    return beginning + _tag(kind.DESCRIPTOR.fields_by_name["message"].number)


_STARTS: Final[dict[type[AnyMessage], bytes]] = {kind: _start(kind) for kind in (ActorRunTrialInput, EnvRunTrialInput)}


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
            self.tail = _tag(_PAYLOAD) + _varint(len(payload)) + payload


class Relay(Send):
    """Send a message to one of its receivers. Whoever performs this may keep the pieces, which are bytes.

    Attributes:
        said: what all receivers are told.
        kind: the type of the envelope.
        head: what stands before `said.tail` on the wire.
        size: how many bytes it has there.
    """

    __slots__ = ("head", "kind", "said", "size")

    def __init__(self, participant: int, receiver_name: str, said: Said) -> None:
        self.participant = participant
        self.said = said
        self.kind: type[AnyMessage] = EnvRunTrialInput if participant == ENVIRONMENT else ActorRunTrialInput
        inner = Message(tick_id=said.tick_id, sender_name=said.sender_name, receiver_name=receiver_name)
        beginning: bytes = inner.SerializeToString()
        self.head = _STARTS[self.kind] + _varint(len(beginning) + len(said.tail)) + beginning
        self.size = len(self.head) + len(said.tail)

    @property
    def message(self) -> Any:
        """The envelope, made again each time."""
        return self.kind.FromString(self.head + self.said.tail)
