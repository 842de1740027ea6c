"""Payloads of spaces as tensors: the short way and that of `SpaceTensors` are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from tests.spaces import strategies as some
from trio_cogment.api import spaces_pb2
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import (
    FailedPreconditionError,
    InvalidArgumentError,
    RemoteProtocolError,
    RpcError,
    StatusCode,
)
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.base import Verdict
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.envelopes import EnvelopeMapping
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    Observation,
    Space,
    Text,
    Tuple,
    decode_action,
    encode_observation,
)
from trio_cogment.spaces.space_tensors import SpaceTensors
from trio_cogment.spaces.tensors import decode_tensor, encode_tensor


def content(value: Any, observed: Space | None = None, acted: Space | None = None, **flags: Any) -> bytes:
    message = encode_observation(Observation(value, observation_space=observed, action_space=acted, **flags))
    return message.SerializeToString()


def mapping(observed: Space, acted: Space, generator: Any = None, **options: Any) -> EnvelopeMapping:
    value = observed.sample(generator or np.random.default_rng(1))
    return EnvelopeMapping(content(value, observed, acted), **options)


def usable(space: Space) -> bool:
    keys = [str(key) for path, _ in space.leaves() for key in path]
    paths = [".".join(map(str, path)) for path, _ in space.leaves()]
    names = not {"reward", *keys} & {"reward", ""} - {"reward"} and "reward" not in keys
    return names and all("." not in key for key in keys) and len(set(paths)) == len(paths)


@given(some.minari_spaces.filter(usable), some.generators)
def test_observations(space: Space, generator: np.random.Generator) -> None:
    found = mapping(space, Discrete(2), generator)
    value = space.check(space.sample(generator))
    expected = SpaceTensors(space, "observation").tensors(value)
    uids = [2 + index for index in range(len(expected))]
    response = pb.StepResponse()
    found.fill(response, content(value), [*uids, *uids, uids[0] + len(uids) if uids else 2], 0.5, 1.0)
    assert [response.observations[uid] for uid in uids] == expected
    assert len(response.observations) == len(uids) + 1  # and the reward


@given(some.minari_spaces.filter(usable), some.generators)
def test_actions(space: Space, generator: np.random.Generator) -> None:
    found = mapping(Discrete(2), space, generator)
    value = space.check(space.sample(generator))
    tensors = dict(enumerate(SpaceTensors(space, "action").tensors(value), start=1))
    made = decode_action(spaces_pb2.Action.FromString(found.action(tensors)), space)
    assert some.same(made, value)


SEEN = Dict({"board": Box(-9, 9, (2, 2)), "word": Text(5), "flags": MultiBinary(2), "on": Box(0, 1, (1,), bool)})
DONE = Dict({"arm": Tuple([Box(-1, 1, (), "float32"), Box(-128, 127, (), "int8")]), "leg": Discrete(3, 1)})


def test_what_the_parts_are_called() -> None:
    specs = mapping(SEEN, DONE, expose_discount=True).specs
    assert [specs.actions[uid].name for uid in sorted(specs.actions)] == ["arm.0", "arm.1", "leg"]
    names = [specs.observations[uid].name for uid in sorted(specs.observations)]
    assert names == ["board", "word", "flags", "on", "reward", "discount"]


def test_actions_that_are_not_sent_are_zeros_within_the_bounds() -> None:
    found = mapping(SEEN, DONE)
    one = {2: encode_tensor(np.int8(-128))}
    made = decode_action(spaces_pb2.Action.FromString(found.action(one)), DONE)
    assert made == {"arm": (0.0, -128), "leg": 1}
    assert decode_action(spaces_pb2.Action.FromString(found.default_action), DONE) == {"arm": (0.0, 0), "leg": 1}
    with pytest.raises(InvalidArgumentError, match=r"'arm\.0' \(UID 1\) is missing"):
        mapping(SEEN, DONE, require_actions=True).action(one)


@pytest.mark.parametrize(
    ("uid", "value", "code", "expected"),
    [
        (1, np.float32(1.5), StatusCode.OUT_OF_RANGE, r"UID 1: arm\.0: expected at most 1.0, got 1.5"),
        (1, np.float64(0), StatusCode.INVALID_ARGUMENT, r"UID 1: arm\.0: dtype: expected float32"),
        (1, np.zeros(1, np.float32), StatusCode.INVALID_ARGUMENT, r"UID 1: arm\.0: shape"),
        (3, np.int64(4), StatusCode.OUT_OF_RANGE, "UID 3: leg: expected at most 3, got 4"),
        (3, np.int64(0), StatusCode.OUT_OF_RANGE, "UID 3: leg: expected at least 1, got 0"),
        (4, np.int64(0), StatusCode.INVALID_ARGUMENT, "got UID 4"),
    ],
)
def test_refused_actions(uid: int, value: Any, code: StatusCode, expected: str) -> None:
    with pytest.raises((InvalidArgumentError, RpcError), match=expected) as caught:
        mapping(SEEN, DONE).action({uid: encode_tensor(value)})
    assert getattr(caught.value, "code", StatusCode.INVALID_ARGUMENT) is code


def test_not_a_number_is_no_action() -> None:
    with pytest.raises((InvalidArgumentError, RpcError)):
        mapping(SEEN, Box(-np.inf, np.inf, ())).action({1: encode_tensor(np.float32("nan"))})


def test_a_number_beyond_a_narrower_type_is_no_action() -> None:
    """Half precision travels as `float32`."""
    space = Box(-np.inf, np.inf, (), "float16")
    content = mapping(SEEN, space).action({1: encode_tensor(np.float32(0.1))})
    assert decode_action(spaces_pb2.Action.FromString(content), space) == np.float16(0.1)
    with pytest.raises((InvalidArgumentError, RpcError), match=r"expected a number of float16, got 1e\+30"):
        mapping(SEEN, space).action({1: encode_tensor(np.float32(1e30))})


def test_one_element_fills_an_array() -> None:
    found = mapping(SEEN, Box(-1, 1, (2, 2)))
    tensor = pb.Tensor(shape=[2, -1])
    tensor.floats.array.append(0.5)
    made = decode_action(spaces_pb2.Action.FromString(found.action({1: tensor})), Box(-1, 1, (2, 2)))
    assert made.tolist() == [[0.5, 0.5], [0.5, 0.5]]


def test_dicts_in_another_order() -> None:
    found = mapping(SEEN, DONE)
    value = SEEN.sample(np.random.default_rng(2))
    response = pb.StepResponse()
    found.fill(response, content(dict(reversed(value.items()))), [4, 5, 6, 7], 0.0, 1.0)
    assert (decode_tensor(response.observations[4]) == value["board"]).all()
    assert decode_tensor(response.observations[5])[()] == value["word"]


@pytest.mark.parametrize("value", [np.zeros(3, np.float32), {"board": np.zeros((2, 2), np.float32)}, "word"])
def test_an_observation_that_is_not_in_the_space(value: Any) -> None:
    with pytest.raises(RemoteProtocolError, match="the environment's observation"):
        mapping(SEEN, DONE).fill(pb.StepResponse(), content(value), [4, 5], 0.0, 1.0)


def test_bytes_that_are_no_observation() -> None:
    with pytest.raises(RemoteProtocolError, match=r"expected a trio_cogment\.spaces\.Observation"):
        mapping(SEEN, DONE).fill(pb.StepResponse(), b"\xff", [4], 0.0, 1.0)


def test_verdicts() -> None:
    found = mapping(Discrete(2), Discrete(2))
    all_flags: list[dict[str, Any]] = [{"terminated": True}, {"truncated": True}, {}]
    said = [found.verdict(content(np.int64(1), **flags)) for flags in all_flags]
    assert said == [Verdict.TERMINATED, Verdict.TRUNCATED, Verdict.GOING_ON]


def test_spaces_have_to_stay() -> None:
    found = mapping(Discrete(2), Discrete(3))
    assert found.describes(content(np.int64(1), Discrete(2), Discrete(3)))
    assert found.describes(content(np.int64(1)))  # they are not said again
    assert not found.describes(content(np.int64(1), Discrete(2), Discrete(4)))
    assert not found.describes(content(np.int64(1), Discrete(4), Discrete(3)))


@pytest.mark.parametrize(
    ("observed", "acted", "expected"),
    [
        (None, Discrete(2), "without its spaces"),
        (Dict({"a.b": Discrete(2)}), Discrete(2), "has no tensors"),
        (Dict({"reward": Discrete(2)}), Discrete(2), "'reward' twice"),
        (Discrete(2), Dict({"": Discrete(2)}), "has no tensors"),
    ],
)
def test_spaces_that_have_no_tensors(observed: Space | None, acted: Space, expected: str) -> None:
    value = (observed or Discrete(2)).sample(np.random.default_rng(1))
    with pytest.raises(FailedPreconditionError, match=expected):
        EnvelopeMapping(content(value, observed, acted))
