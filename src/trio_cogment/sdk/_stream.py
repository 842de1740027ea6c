"""A participant's stream to its orchestrator, before a session is made of it."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from trio_cogment.api.common_pb2 import CommunicationState
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.rpc import Call, RpcError

NORMAL = CommunicationState.NORMAL
HEARTBEAT = CommunicationState.HEARTBEAT
LAST = CommunicationState.LAST
LAST_ACK = CommunicationState.LAST_ACK
END = CommunicationState.END


class StreamLostError(RpcError):
    """The stream to the orchestrator broke: the trial cannot go on here, and the implementation is not to blame.

    A type of its own, so that it differs from what the implementation's own calls may raise.
    """

    @classmethod
    def because_of(cls, error: RpcError) -> StreamLostError:
        """Return what an implementation gets when its stream ended with `error`."""
        return cls(error.code, error.message, error.trailing_metadata)


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
