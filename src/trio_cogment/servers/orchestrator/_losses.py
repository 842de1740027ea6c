"""Reasons for the end of a participant's stream, as far as its status tells.

An implementation that raises ends its stream with a status of its own: UNKNOWN, or that of the error it raised. The
statuses of the connection say nothing of the implementation: the process was killed, or the network failed.
"""

from __future__ import annotations

from trio_cogment.base.errors import TRACEBACK, RpcError, StatusCode
from trio_cogment.base.outcome import EndCause
from trio_cogment.trial import Lost

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
