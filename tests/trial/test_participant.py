from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.api.common_pb2 import ActorRunTrialOutput
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput
from trio_cogment.trial import ENVIRONMENT
from trio_cogment.trial._participant import Actor, Environment
from trio_cogment.trial._stream_table import StreamInput, StreamState

from .harness import CLIENT, actor, make_params

S = StreamInput

BOTH: list[tuple[dict[str, Any], StreamInput]] = [
    ({}, S.BAD_STATE),
    ({"state": 0, "details": "x"}, S.BAD_STATE),
    ({"state": 0, "message": {}}, S.BAD_DATA),
    ({"state": 6}, S.BAD_STATE),
    ({"state": 6, "details": "x"}, S.BAD_STATE),
    ({"state": 6, "reward": {}}, S.BAD_DATA),
    ({"state": -1}, S.BAD_STATE),
    ({"state": 1}, S.EMPTY),
    ({"state": 1, "details": ""}, S.EMPTY),
    ({"state": 1, "init_output": {}}, S.INIT),
    ({"state": 1, "reward": {}}, S.REWARD),
    ({"state": 1, "message": {}}, S.MESSAGE),
    ({"state": 2}, S.HEARTBEAT),
    ({"state": 2, "details": ""}, S.HEARTBEAT),
    ({"state": 2, "details": "x"}, S.HEARTBEAT),
    ({"state": 2, "message": {}}, S.BAD_DATA),
    ({"state": 3}, S.LAST),
    ({"state": 3, "details": "x"}, S.LAST),
    ({"state": 3, "reward": {}}, S.BAD_DATA),
    ({"state": 4}, S.LAST_ACK),
    ({"state": 4, "details": "x"}, S.LAST_ACK),
    ({"state": 4, "init_output": {}}, S.BAD_DATA),
    ({"state": 5}, S.END),
    ({"state": 5, "details": "x"}, S.END),
]


@pytest.mark.parametrize(
    ("fields", "expected"), [*BOTH, ({"state": 1, "action": {}}, S.ACTION), ({"state": 4, "action": {}}, S.BAD_DATA)]
)
def test_what_an_actor_says(fields: dict[str, Any], expected: StreamInput) -> None:
    assert Actor(0, make_params()).classify(ActorRunTrialOutput(**fields)) is expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        *BOTH,
        ({"state": 1, "observation_set": {}}, S.OBSERVATION_SET),
        # An observation set with LAST is not a LAST: which of the two was meant cannot be told.
        ({"state": 3, "observation_set": {}}, S.BAD_DATA),
    ],
)
def test_what_an_environment_says(fields: dict[str, Any], expected: StreamInput) -> None:
    assert Environment("env").classify(EnvRunTrialOutput(**fields)) is expected


def test_what_is_known_of_an_actor() -> None:
    params = make_params(
        actor("a", "k", initial_connection_timeout=2, response_timeout=3, optional=True, default=b""),
        actor("b", endpoint=CLIENT),
    )
    first, second = Actor(0, params), Actor(1, params)
    assert (first.index, first.name, first.actor_class, first.required, first.is_client) == (0, "a", "k", False, False)
    assert (first.init_timeout, first.response_timeout, first.default_action) == (2, 3, b"")
    assert (second.required, second.is_client, second.default_action) == (True, True, None)
    assert second.state is StreamState.IDLE
    assert first.describe() == "actor 'a'"
    assert Environment("e").describe() == "the environment 'e'"
    assert Environment("e").index == ENVIRONMENT
