from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.spaces.strategies import same
from trio_cogment.base.errors import RemoteProtocolError, UnavailableError
from trio_cogment.gateways.openenv.foreign_schemas import Codec, observation_codec
from trio_cogment.gateways.openenv.messages import Turn, observation_data
from trio_cogment.gateways.openenv.results import observation_of, parse_answer, parse_result
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Frame,
    MultiBinary,
    MultiDiscrete,
    Observation,
    Space,
    SpaceError,
    Tuple,
)


def test_answers() -> None:
    assert parse_answer('{"type": "observation", "data": {"a": 1}}', "step") == {"a": 1}
    with pytest.raises(UnavailableError, match=r"reset: the server refused: full \(CAPACITY_REACHED\)"):
        parse_answer('{"type": "error", "data": {"message": "full", "code": "CAPACITY_REACHED"}}', "reset")
    for text in ("{", "[]", "{}", '{"type": "state", "data": {}}', '{"type": "error"}'):
        with pytest.raises(RemoteProtocolError, match="step: expected"):
            parse_answer(text, "step")


def test_results() -> None:
    result = parse_result({"observation": {"x": 1}, "reward": "-Infinity", "done": True, "metadata": None})
    assert (result.fields, result.reward, result.done, result.metadata) == ({"x": 1}, -np.inf, True, {})
    assert parse_result({"observation": {}}).reward is None
    assert parse_result({"observation": {}, "reward": True}).reward == 1.0
    for data, words in (
        (None, "observation: expected an object"),
        ({"observation": 1}, "observation: expected an object"),
        ({"observation": {}, "done": 1}, "done: expected true or false, got 1"),
        ({"observation": {}, "reward": "much"}, "reward: expected a number or null, got 'much'"),
    ):
        with pytest.raises(SpaceError, match=words):
            parse_result(data)


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (Discrete(3), np.array([1, 0, 1], np.int8)),
        (MultiBinary(2), np.array([2, 0], np.int8)),
        (MultiDiscrete([2, 3]), (np.array([1, 0], np.int8), np.array([1, 1, 0], np.int8))),
        (
            MultiDiscrete([[2, 1], [1, 1]]),
            tuple(tuple(np.array(inner, np.int8) for inner in row) for row in ([[1, 0], [1]], [[1], [0]])),
        ),
        (Dict({"a": Discrete(2), "b": Discrete(1)}), {"a": np.array([0, 1], np.int8), "b": None}),
        (Tuple([Discrete(2)]), (np.array([0, 1], np.int8),)),
    ],
)
def test_all_that_a_server_of_this_package_says_comes_back(space: Space, mask: Any) -> None:
    observation = Observation(
        np.array([1, np.inf], np.float32),
        reward=0.1,
        terminated=True,
        info={"place": 3},
        action_mask=mask,
        frame=Frame(b"\x00\x01", "image/webp"),
    )
    data = json.loads(json.dumps(observation_data(Turn(observation, True, "player_0"))))
    codec = Codec(Box(-np.inf, np.inf, (2,)), field="value")
    found = observation_of(parse_result(data), codec, space, done_is_truncated=True)
    assert same(found.value, observation.value)
    assert same(found.action_mask, mask)
    assert (found.reward, found.terminated, found.truncated, found.info) == (0.1, True, False, {"place": 3})
    assert found.frame == observation.frame


def test_other_servers_say_less() -> None:
    codec = observation_codec({"properties": {"x": {"type": "number"}}})
    data = {"observation": {"x": 1.5}, "reward": 2, "done": True, "metadata": {"lap": 1}}
    result = parse_result(data)
    found = observation_of(result, codec, Discrete(2), done_is_truncated=False)
    assert (found.terminated, found.truncated, found.info, found.reward) == (True, False, {"lap": 1}, 2.0)
    found = observation_of(result, codec, Discrete(2), done_is_truncated=True)
    assert (found.terminated, found.truncated) == (False, True)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"value": 7}, "observation: expected 0 to 1, got 7"),
        ({}, "observation: expected the field value"),
        ({"value": 1, "action_mask": [1, 5]}, "action_mask: expected a mask of 0, 1 alone, got"),
        ({"value": 1, "action_mask": [[1], [1, 0]]}, "action_mask"),
        ({"value": 1, "action_mask": 1}, "action_mask"),
        ({"value": 1, "frame": {"media_type": 1, "base64": ""}}, "frame: expected media_type and base64"),
        ({"value": 1, "frame": {"media_type": "x", "base64": "?"}}, "frame: expected base64"),
    ],
)
def test_fields_that_make_no_sense(fields: dict[str, Any], words: str) -> None:
    result = parse_result({"observation": {"terminated": False, "truncated": False, **fields}})
    with pytest.raises(SpaceError, match=words):
        observation_of(result, Codec(Discrete(2), field="value"), Discrete(2), done_is_truncated=False)


def test_masks_that_do_not_fit_the_space() -> None:
    for space, mask in (
        (Dict({"a": Discrete(2)}), [1]),
        (Tuple([Discrete(2)]), []),
        (Box(0, 1, ()), [1]),
        (MultiDiscrete([[2]]), [1]),
    ):
        fields = {"value": 1, "terminated": False, "truncated": False, "action_mask": mask}
        with pytest.raises(SpaceError, match="action_mask"):
            observation_of(
                parse_result({"observation": fields}), Codec(Discrete(2), field="value"), space, done_is_truncated=False
            )
