"""An observation on its way to all the actors that see the same: made once, and encoded once."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import Message

from trio_cogment.api.common_pb2 import ActorRunTrialInput, CommunicationState, Observation
from trio_cogment.base.shared_message import SharedMessage, field_tag, varint

#: Of larger ones the content is not copied: on the wire it is a piece of its own.
_LARGE_BYTES: Final = 16 * 1024

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

    __slots__ = ("_encoded", "content", "tick_id", "timestamp")

    def __init__(self, tick_id: int, timestamp: int, content: bytes) -> None:
        self.kind = ActorRunTrialInput
        self.tick_id = tick_id
        self.timestamp = timestamp
        self.content = content
        #: What is on the wire before a large content, or all of it; not before anybody asks, as within the process
        #: nobody does.
        self._encoded = b""

    @property
    def head(self) -> bytes:
        """See `SharedMessage.head`."""
        return b"" if len(self.content) < _LARGE_BYTES else self._encode()

    @property
    def tails(self) -> tuple[bytes, ...]:
        """See `SharedMessage.tails`."""
        return (self._encode() if len(self.content) < _LARGE_BYTES else self.content,)

    def ByteSize(self) -> int:
        """See `SharedMessage.ByteSize`."""
        size = len(self.content)
        encoded = len(self._encoded or self._encode())
        return encoded if size < _LARGE_BYTES else encoded + size

    def payload(self) -> bytes:
        """See `SharedMessage.payload`."""
        encoded = self._encoded or self._encode()
        return encoded if len(self.content) < _LARGE_BYTES else encoded + self.content

    def whole(self) -> Message:
        """See `SharedMessage.whole`."""
        # Setting fields costs half of what keyword arguments do.
        message: Any = ActorRunTrialInput()
        message.state = _NORMAL
        observation = message.observation
        observation.tick_id = self.tick_id
        observation.timestamp = self.timestamp
        observation.content = self.content
        whole: Message = message
        return whole

    def _encode(self) -> bytes:
        if not self._encoded:
            if len(self.content) < _LARGE_BYTES:
                self._encoded = self.whole().SerializeToString()
            else:
                inner: bytes = Observation(tick_id=self.tick_id, timestamp=self.timestamp).SerializeToString()
                inner += _CONTENT + varint(len(self.content))
                self._encoded = _OBSERVATION + varint(len(inner) + len(self.content)) + inner
        return self._encoded
