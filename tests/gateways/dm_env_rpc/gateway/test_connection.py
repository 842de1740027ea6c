"""The table of a connection's requests: every state with every request."""

from __future__ import annotations

import enum

import pytest

from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.gateways.dm_env_rpc.gateway.connection import TABLE, Request, Verdict, judge


class ConnectionState(enum.Enum):
    """Where a connection is, as its client knows it."""

    NOT_JOINED = "the connection has not joined a world"
    #: It has joined a world; no sequence has begun, or the last one has ended.
    NOT_RUNNING = "no sequence is running"
    RUNNING = "a sequence is running"


NOT_JOINED, NOT_RUNNING, RUNNING = ConnectionState
#: What the protocol's document says of each pair: True where the request is carried out, False where there is nothing
#: to do, and what has to come first where it is refused.
RULES: dict[tuple[ConnectionState, Request], bool | str] = {
    **{(state, request): True for state in ConnectionState for request in Request},
    **{(state, Request.UNKNOWN): "one of the payloads" for state in ConnectionState},
    **{(state, Request.JOIN_WORLD): "after leave_world" for state in (NOT_RUNNING, RUNNING)},
    **{(state, Request.DESTROY_OWN_WORLD): "after leave_world" for state in (NOT_RUNNING, RUNNING)},
    **{(NOT_JOINED, request): "after join_world" for request in (Request.STEP, Request.RESET)},
    (NOT_JOINED, Request.LEAVE_WORLD): False,
}


@pytest.mark.parametrize("request_kind", Request)
@pytest.mark.parametrize("state", ConnectionState)
def test_every_pair(state: ConnectionState, request_kind: Request) -> None:
    expected, joined = RULES[state, request_kind], state is not NOT_JOINED
    if isinstance(expected, bool):
        assert judge(request_kind, joined=joined) is expected
        return
    kind = InvalidArgumentError if request_kind is Request.UNKNOWN else FailedPreconditionError
    with pytest.raises(kind, match=expected) as caught:
        judge(request_kind, joined=joined)
    name = "destroy_world" if request_kind is Request.DESTROY_OWN_WORLD else request_kind.value
    assert str(caught.value).startswith(f"{name}: expected")


def test_the_table_is_whole() -> None:
    assert list(TABLE) == [False, True]
    assert all(set(rows) == set(Request) for rows in TABLE.values())
    assert {verdict for rows in TABLE.values() for verdict in rows.values()} == set(Verdict)
