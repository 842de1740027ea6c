"""Lost participants: what the status of a stream says of them."""

from __future__ import annotations

import pytest

from trio_cogment.base.errors import TRACEBACK, RpcError, StatusCode
from trio_cogment.base.outcome import EndCause
from trio_cogment.servers.orchestrator._participant_stream import lost_for
from trio_cogment.trial import Lost


def test_who_closes_its_stream_has_left() -> None:
    assert lost_for(2, None) == Lost(2, "it closed its stream", EndCause.PARTICIPANT_LEFT)


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (StatusCode.UNAVAILABLE, EndCause.PARTICIPANT_LOST),
        (StatusCode.CANCELLED, EndCause.PARTICIPANT_LOST),
        (StatusCode.DEADLINE_EXCEEDED, EndCause.PARTICIPANT_LOST),
        (StatusCode.RESOURCE_EXHAUSTED, EndCause.PARTICIPANT_REFUSED),
    ],
)
def test_the_connection_is_gone_or_a_message_too_large(code: StatusCode, cause: EndCause) -> None:
    error = RpcError(code, "so it is", [(TRACEBACK, b"not looked at")])
    assert lost_for(1, error) == Lost(1, f"its stream failed: {error}", cause)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (RpcError(StatusCode.UNKNOWN, "it broke"), "it broke"),
        (RpcError(StatusCode.UNKNOWN, ""), str(RpcError(StatusCode.UNKNOWN, ""))),
        (RpcError(StatusCode.INVALID_ARGUMENT, "no"), str(RpcError(StatusCode.INVALID_ARGUMENT, "no"))),
    ],
)
def test_an_implementation_has_failed(error: RpcError, text: str) -> None:
    assert lost_for(1, error) == Lost(1, text, EndCause.PARTICIPANT_FAILED, "")


def test_its_traceback_is_kept_if_it_sends_one() -> None:
    metadata: list[tuple[str, str | bytes]] = [("other", "x"), (TRACEBACK, b"line 1: \xff")]
    lost = lost_for(1, RpcError(StatusCode.UNKNOWN, "it broke", metadata))
    assert lost.traceback == "line 1: \N{REPLACEMENT CHARACTER}"
