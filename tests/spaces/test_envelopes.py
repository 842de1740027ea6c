"""Observations and actions as messages."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces import strategies as some
from tests.spaces.test_values import information
from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    Frame,
    Observation,
    Space,
    SpaceError,
    decode_action,
    decode_observation,
    encode_action,
    encode_observation,
)

rewards = st.none() | st.floats(allow_nan=False)
frames = st.none() | st.builds(Frame, st.binary(max_size=5), st.sampled_from(["image/png", "image/jpeg"]))


def carried(observation: Observation, space: Space | None) -> Observation:
    encoded = encode_observation(observation, space).SerializeToString()
    return decode_observation(pb.Observation.FromString(encoded), space)


def parts(observation: Observation) -> tuple[Any, ...]:
    return tuple(getattr(observation, name) for name in Observation.__slots__)


@given(
    st.data(),
    some.spaces,
    some.generators,
    rewards,
    st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
    st.dictionaries(some.KEYS, information, max_size=2),
    frames,
)
def test_every_observation_survives(
    data: st.DataObject,
    space: Space,
    generator: np.random.Generator,
    reward: float | None,
    flags: tuple[bool, bool, bool, bool],
    info: dict[str, Any],
    frame: Frame | None,
) -> None:
    terminated, truncated, active, alive = flags
    mask = data.draw(st.none() | st.just(np.ones(3, np.int8)) | st.just({"a": (np.ones(1, np.int8), None)}))
    value = space.sample(generator)
    observation = Observation(value, reward, terminated, truncated, mask, info, frame, active, alive)
    for given_space in (space, None):
        assert some.same(parts(carried(observation, given_space)), parts(observation))


def test_rewards_keep_their_bits() -> None:
    for reward in (0.1, -0.0, 1e308, 5e-324, math.inf):
        found = carried(Observation(np.int64(0), reward), None).reward
        assert found is not None
        assert (found, math.copysign(1, found)) == (reward, math.copysign(1, reward))
    assert carried(Observation(np.int64(0), 0.0), None).reward == 0.0
    assert carried(Observation(np.int64(0)), None).reward is None
    assert carried(Observation(np.int64(0), np.float32(0.5)), None).reward == 0.5  # type: ignore[arg-type]  # environments return such


@given(some.spaces, some.generators)
def test_every_action_survives(space: Space, generator: np.random.Generator) -> None:
    action = space.sample(generator)
    encoded = encode_action(action, space).SerializeToString()
    assert some.same(decode_action(pb.Action.FromString(encoded), space), action)
    assert some.same(decode_action(pb.Action.FromString(encoded)), action)


def lab_messages() -> tuple[Any, Any]:
    """The messages of cogment-lab, by its own field names."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="lab.proto", package="lab", syntax="proto3")
    array = file.message_type.add(name="Array")
    array.field.add(name="dtype", number=1, type=field.TYPE_INT32, label=1)
    array.field.add(name="shape", number=2, type=field.TYPE_UINT32, label=3)
    array.field.add(name="raw_data", number=3, type=field.TYPE_BYTES, label=1)
    observation = file.message_type.add(name="Observation")
    observation.field.add(name="value", number=1, type=field.TYPE_MESSAGE, type_name=".lab.Array", label=1)
    observation.field.add(name="active", number=2, type=field.TYPE_BOOL, label=1)
    observation.field.add(name="alive", number=3, type=field.TYPE_BOOL, label=1)
    observation.field.add(name="rendered_frame", number=4, type=field.TYPE_BYTES, label=1)
    action = file.message_type.add(name="PlayerAction")
    action.field.add(name="value", number=1, type=field.TYPE_MESSAGE, type_name=".lab.Array", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return found["lab.Observation"], found["lab.PlayerAction"]


LabObservation, LabAction = lab_messages()


def test_cogment_lab_reads_observations_and_its_actions_are_read() -> None:
    ours = Observation(np.array([1, 2], np.float32), 0.5, frame=Frame(b"png"))
    theirs = LabObservation.FromString(encode_observation(ours).SerializeToString())
    assert np.frombuffer(theirs.value.raw_data, "<f4").tolist() == [1, 2]
    assert (theirs.value.dtype, list(theirs.value.shape)) == (1, [2])
    assert (theirs.active, theirs.alive, theirs.rendered_frame) == (True, True, b"png")
    action = LabAction(value={"dtype": 5, "raw_data": (2).to_bytes(8, "little")})
    found = decode_action(pb.Action.FromString(action.SerializeToString()), Discrete(3))
    assert some.same(found, np.int64(2))


def test_their_observations_are_read_and_they_read_actions() -> None:
    theirs = LabObservation(value={"dtype": 6, "shape": [2], "raw_data": b"\1\2"}, active=True, rendered_frame=b"x")
    found = decode_observation(pb.Observation.FromString(theirs.SerializeToString()))
    assert found.value.tolist() == [1, 2]
    assert (found.reward, found.active, found.alive, found.frame) == (None, True, False, Frame(b"x", "image/png"))
    action = LabAction.FromString(encode_action(1, Discrete(3)).SerializeToString())
    assert (action.value.dtype, action.value.raw_data) == (5, (1).to_bytes(8, "little"))


@pytest.mark.parametrize(
    ("observation", "text"),
    [
        (Observation(np.array([2], np.float32)), "observation[0]: expected 0.0 to 1.0, got 2.0"),
        (Observation(np.array([np.nan], np.float32)), "observation[0]: expected 0.0 to 1.0, got nan"),
        (Observation(np.zeros(1, np.float32), math.nan), "reward: expected a number, got NaN"),
        (Observation(np.zeros(1, np.float32), "much"), "reward: expected a number, got str 'much'"),  # type: ignore[arg-type]  # that is the mistake
        (Observation(np.zeros(1, np.float32), np.zeros(1)), "reward: expected a number, got an array"),  # type: ignore[arg-type]  # that is the mistake
        (Observation(np.zeros(1, np.float32), terminated=1), "terminated: expected a bool, got int"),  # type: ignore[arg-type]  # that is the mistake
        (Observation(np.zeros(1, np.float32), info={"a": [object()]}), 'info["a"][0]: expected an array'),
        (Observation(np.zeros(1, np.float32), action_mask=(1, {2})), "action_mask[1]: expected an array"),
    ],
)
def test_errors_name_the_part(observation: Observation, text: str) -> None:
    with pytest.raises(SpaceError) as caught:
        encode_observation(observation, Box(0, 1))
    assert str(caught.value).startswith(text)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pb.Observation(), "observation: expected it in the field value or nested"),
        (pb.Observation(nested=pb.Value(integer=3)), "observation: expected 0 to 2, got 3"),
        (pb.Observation(nested=pb.Value(integer=0), reward=math.nan), "reward: expected a number, got NaN"),
        (pb.Observation(nested=pb.Value(integer=0), action_mask=pb.Value()), "action_mask: expected a value"),
        (
            pb.Observation(nested=pb.Value(integer=0), info=pb.Value.Fields(fields=[pb.Value.Fields.Field(key="a")])),
            'info["a"]: expected a value',
        ),
    ],
)
def test_messages_that_make_no_sense(message: pb.Observation, text: str) -> None:
    with pytest.raises(SpaceError) as caught:
        decode_observation(message, Discrete(3))
    assert str(caught.value).startswith(text)


def test_actions_that_make_no_sense() -> None:
    with pytest.raises(SpaceError, match=r'action\["a"\]: expected 0 to 1, got 2'):
        encode_action({"a": 2}, Dict({"a": Discrete(2)}))
    with pytest.raises(SpaceError, match="action: expected it in the field value or nested"):
        decode_action(pb.Action())


@given(st.binary(max_size=60))
def test_any_bytes_are_an_observation_or_an_error(data: bytes) -> None:
    try:
        decode_observation(pb.Observation.FromString(data))
    except (DecodeError, SpaceError):
        return
    assert data
