"""The quick ways of actions and observations, beside those of `trio_cogment.spaces`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.environments.encoding import ActionPayload
from trio_cogment.rl.views.codec import ActionEncoder, ObservationDecoder
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Observation,
    Space,
    SpaceError,
    Text,
    decode_action,
    decode_observation,
    encode_action,
    encode_observation,
)

SPACES: list[tuple[Space, Any]] = [
    (Box(-1, 1, (2, 2)), np.array([[0, 1], [-1, 0.5]], np.float32)),
    (Box(-1, 1, (), np.float64), np.array(0.5)),
    (Box(0, 255, (2,), np.uint8), np.array([3, 4], np.uint8)),
    (Discrete(5, start=-2), np.int64(-1)),
    (MultiDiscrete([3, 4]), np.array([1, 2])),
    (MultiBinary(3), np.array([1, 0, 1], np.int8)),
    (Text(5), "abc"),
    (Dict({"one": Discrete(2), "two": Text(3)}), {"one": np.int64(1), "two": "x"}),
]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if type(one) is not type(other) or getattr(one, "dtype", 0) != getattr(other, "dtype", 0):
        return False
    return bool(np.all(one == other))


@pytest.mark.parametrize(("space", "value"), SPACES)
def test_actions(space: Space, value: Any) -> None:
    encoder = ActionEncoder(space)
    for _ in range(2):  # the second time it may be remembered
        payload = encoder.encode(value)
        assert len(payload) == len(bytes(payload))
        assert same(decode_action(pb.Action.FromString(bytes(encoder.encode(value))), space), value)


def test_numbers_that_only_look_like_actions() -> None:
    encoder = ActionEncoder(Discrete(3))
    encoder.encode(1)
    contents = {bytes(encoder.encode(one)) for one in (1, np.int64(1), np.array(1))}
    assert len(contents) == 1
    for wrong in (1.0, 3, -1, None, "1", np.array([1])):
        with pytest.raises(SpaceError, match="action: "):
            encoder.encode(wrong)


def test_real_actions_of_other_precision() -> None:
    encoder, space = ActionEncoder(Box(-1, 1, (2,))), Box(-1, 1, (2,))
    found = decode_action(pb.Action.FromString(bytes(encoder.encode(np.array([0.1, 1.0])))), space)
    assert found.dtype == np.float32
    for wrong in (np.array([0.1, 1.1]), np.array([0.1, np.nan]), np.zeros(3), [0.0, 0.0]):
        with pytest.raises(SpaceError, match="action"):
            encoder.encode(wrong)


@pytest.mark.parametrize(
    "further",
    [
        {},
        {"reward": 0.1},
        {"reward": 0.0, "terminated": True, "active": False, "alive": False},
        {"truncated": True},
        {"info": {"lives": 3}},
        {"action_mask": np.array([1, 0], np.int8)},
    ],
)
@pytest.mark.parametrize(("space", "value"), SPACES)
def test_observations(space: Space, value: Any, further: dict[str, Any]) -> None:
    message = encode_observation(Observation(value, observation_space=space, action_space=Discrete(2), **further))
    expected = decode_observation(message, copy=True)
    found = ObservationDecoder(space).decode(message.SerializeToString())
    assert same(found.value, expected.value)
    for name in ("reward", "terminated", "truncated", "info", "active", "alive"):
        assert getattr(found, name) == getattr(expected, name)
    assert same(found.action_mask, expected.action_mask) or found.action_mask is None is expected.action_mask
    if isinstance(found.value, np.ndarray):
        assert found.value.flags.writeable


def test_what_is_no_observation_of_the_space() -> None:
    message = encode_observation(Observation(np.zeros(3, np.float32)))
    assert ObservationDecoder(Box(-1, 1, (2,))).decode(message.SerializeToString()).value.shape == (3,)
    message.value.raw_data = b"12345"
    with pytest.raises(SpaceError, match="raw_data"):
        ObservationDecoder(Box(-1, 1, (3,))).decode(message.SerializeToString())
    message = encode_observation(Observation(np.zeros(3, np.float32)))
    message.reward = np.nan
    with pytest.raises(SpaceError, match="reward: expected a number, got NaN"):
        ObservationDecoder(Box(-1, 1, (3,))).decode(message.SerializeToString())


def test_actions_as_an_environment_of_this_process_has_them() -> None:
    encoder = ActionEncoder(Discrete(3))
    for _ in range(2):  # the second time it is remembered
        assert type(action_of(encoder.encode(1))) is int
        assert type(action_of(encoder.encode(np.int64(1)))) is np.int64
    assert type(encoder.encode(np.array(1))) is bytes
    given = np.zeros(2)
    payload = ActionEncoder(Box(-1, 1, (2,))).encode(given)
    given += 1
    found = action_of(payload)
    assert (found.dtype, found.tolist()) == (np.float32, [0, 0])
    found += 1
    assert bytes(payload) == encode_action(np.zeros(2, np.float32)).SerializeToString()


def action_of(payload: Any) -> Any:
    assert isinstance(payload, ActionPayload)
    return payload.copy()
