from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from trio_cogment.gateways.openenv.messages import (
    Close,
    Mcp,
    RefusedError,
    Reset,
    State,
    Step,
    Turn,
    mcp_answer,
    observation_data,
    parse_message,
    parse_reset,
    parse_step,
)
from trio_cogment.spaces import Frame, Observation, SpaceError


@pytest.mark.parametrize(
    ("message", "request_"),
    [
        ({"type": "reset"}, Reset()),
        ({"type": "reset", "data": {"seed": None, "trial": None, "seats": None, "options": None}}, Reset()),
        (
            {
                "type": "reset",
                "data": {
                    "seed": 3,
                    "episode_id": "e",
                    "trial": "t",
                    "seat": "player_1",
                    "seats": ["player_1"],
                    "options": {"a": [1]},
                    "frames": True,
                },
            },
            Reset(3, "e", "t", "player_1", ("player_1",), {"a": [1]}, True),
        ),
        ({"type": "reset", "data": {"trial": "x" * 255, "seat": ""}}, Reset(trial="x" * 255)),
        ({"type": "step", "data": {"value": 1}}, Step({"value": 1})),
        ({"type": "state"}, State()),
        ({"type": "close"}, Close()),
        ({"type": "mcp", "data": {"method": "x"}}, Mcp({"method": "x"})),
    ],
)
def test_requests(message: dict[str, Any], request_: Any) -> None:
    assert parse_message(json.dumps(message)) == request_


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("{", "INVALID_JSON", "message: expected JSON"),
        (b"\xff\xfe", "INVALID_JSON", "expected JSON"),
        ("[]", "VALIDATION_ERROR", r"message: expected an object, got \[\]"),
        ("{}", "UNKNOWN_TYPE", "expected reset, step, state, close or mcp; got None"),
        ('{"type": ["reset"]}', "UNKNOWN_TYPE", "got .'reset'."),
        ('{"type": "step"}', "VALIDATION_ERROR", "step: data: expected the fields of an action, got none"),
        ('{"type": "step", "data": 1}', "VALIDATION_ERROR", "step: data: expected an object, got 1"),
        ('{"type": "reset", "data": 1}', "VALIDATION_ERROR", "reset: expected an object, got 1"),
        ('{"type": "reset", "data": {"seet": "a"}}', "VALIDATION_ERROR", "got 'seet', too; .* into options"),
        ('{"type": "reset", "data": {"seed": true}}', "VALIDATION_ERROR", "reset: seed: expected an integer"),
        ('{"type": "reset", "data": {"seed": -1}}', "VALIDATION_ERROR", "got -1"),
        ('{"type": "reset", "data": {"seed": 1e400}}', "VALIDATION_ERROR", "got inf"),
        ('{"type": "reset", "data": {"seat": 1}}', "VALIDATION_ERROR", "reset: seat: expected a string"),
        (
            '{"type": "reset", "data": {"frames": 1}}',
            "VALIDATION_ERROR",
            "reset: frames: expected true or false, got 1",
        ),
        ('{"type": "reset", "data": {"trial": "\\ud800"}}', "VALIDATION_ERROR", "reset: trial: expected a string"),
        ('{"type": "reset", "data": {"seats": "ab"}}', "VALIDATION_ERROR", "seats: expected a list of names"),
        ('{"type": "reset", "data": {"seats": [1]}}', "VALIDATION_ERROR", r"seats\[0\]: expected a string"),
        ('{"type": "reset", "data": {"options": 1}}', "VALIDATION_ERROR", "options: expected an object"),
        ('{"type": "reset", "data": {"trial": "%s"}}' % ("x" * 256), "VALIDATION_ERROR", "at most 255 characters"),
    ],
)
def test_requests_that_make_no_sense(text: str | bytes, code: str, words: str) -> None:
    with pytest.raises(RefusedError, match=words) as found:
        parse_message(text)
    document = found.value.document()
    assert document == {"type": "error", "data": {"message": str(found.value), "code": code}}
    json.dumps(document).encode()


def test_the_bodies_of_http_calls() -> None:
    assert parse_reset({"seed": 1}) == Reset(seed=1)
    assert parse_step({"action": {"value": 1}, "timeout_s": 2, "request_id": "r"}) == (Step({"value": 1}), 2)
    assert parse_step({"action": {}}) == (Step({}), None)
    for body, words in (
        ({}, "step: action: expected"),
        ({"action": 1}, "step: action: expected an object"),
        ({"action": {}, "timeout_s": 0}, "timeout_s: expected a positive number of seconds, got 0"),
        ({"action": {}, "timeout_s": "1"}, "timeout_s"),
        ({"action": {}, "timeout_s": math.nan}, "timeout_s: expected a positive number of seconds, got nan"),
        ([], "step: expected an object"),
    ):
        with pytest.raises(RefusedError, match=words):
            parse_step(body)


def test_what_an_observation_becomes() -> None:
    observation = Observation(
        np.array([1, np.inf], np.float32),
        reward=0.1,
        truncated=True,
        info={"lap": np.int64(2)},
        action_mask=np.array([1, 0], np.int8),
        frame=Frame(b"\x00", "image/webp"),
    )
    assert observation_data(Turn(observation, True, "player_1")) == {
        "observation": {
            "value": [1.0, "Infinity"],
            "terminated": False,
            "truncated": True,
            "info": {"lap": 2},
            "action_mask": [1, 0],
            "frame": {"media_type": "image/webp", "base64": "AA=="},
        },
        "reward": 0.1,
        "done": True,
        "metadata": {"seat": "player_1"},
    }
    plain = observation_data(Turn(Observation(np.int64(1)), False, "player_0"))
    assert plain["reward"] is None
    assert "action_mask" not in plain["observation"]
    with pytest.raises(SpaceError):
        observation_data(Turn(Observation(object()), False, "player_0"))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({}, -32600),
        ([], -32600),
        ({"jsonrpc": "2.0"}, -32600),
        ({"jsonrpc": "2.0", "method": "tools/list", "id": {}}, -32600),
        ({"jsonrpc": "2.0", "method": "tools/call", "id": 1, "params": {"name": "x"}}, -32602),
        ({"jsonrpc": "2.0", "method": "resources/list", "id": "a"}, -32601),
    ],
)
def test_mcp_refuses_what_it_does_not_have(request_: Any, code: int) -> None:
    answer = mcp_answer(request_)
    assert (answer["jsonrpc"], answer["error"]["code"]) == ("2.0", code)


def test_mcp_has_no_tools() -> None:
    request = {"jsonrpc": "2.0", "method": "tools/list", "id": 7}
    assert mcp_answer(request) == {"jsonrpc": "2.0", "id": 7, "result": {"tools": []}}
