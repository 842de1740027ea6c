"""Spaces as messages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces import strategies as some
from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    Sequence,
    Space,
    SpaceError,
    Text,
    Tuple,
    decode_space,
    encode_array,
    encode_space,
)
from trio_cogment.spaces.errors import MAX_DEPTH


@given(some.spaces)
def test_every_space_survives(space: Space) -> None:
    found = decode_space(pb.Space.FromString(encode_space(space).SerializeToString()))
    assert found == space
    assert repr(found) == repr(space)


def test_numbers_of_fields_are_those_of_cogment_lab() -> None:
    kinds = {name: field.number for name, field in pb.Space.DESCRIPTOR.fields_by_name.items()}
    lab = {"discrete": 1, "box": 2, "dict": 3, "multi_binary": 4, "multi_discrete": 5, "text": 6}
    assert lab.items() <= kinds.items()
    assert min(kinds[name] for name in kinds.keys() - lab.keys()) == 16


def test_spaces_of_cogment_lab_are_read() -> None:
    """It writes bounds and sizes as lists, and leaves out what it does not know."""
    low = pb.Array(dtype=pb.DTYPE_FLOAT32, shape=[2], double_data=[0, -1])
    high = pb.Array(dtype=pb.DTYPE_FLOAT32, shape=[2], double_data=[1, float("inf")])
    assert decode_space(pb.Space(box=pb.Box(low=low, high=high))) == Box([0, -1], [1, np.inf])
    sizes = pb.Array(dtype=pb.DTYPE_INT32, shape=[1], int32_data=[3])
    assert decode_space(pb.Space(multi_binary=pb.MultiBinary(n=sizes))) == MultiBinary(3)
    nvec = pb.Array(dtype=pb.DTYPE_INT64, shape=[2], int64_data=[2, 3])
    assert decode_space(pb.Space(multi_discrete=pb.MultiDiscrete(nvec=nvec))) == MultiDiscrete([2, 3])
    assert decode_space(pb.Space(discrete=pb.Discrete(n=2, start=-1))) == Discrete(2, -1)


def test_what_cogment_lab_reads() -> None:
    assert encode_space(Discrete(2, -1)).SerializeToString() == b"\n\x0d\x08\x02\x10" + b"\xff" * 9 + b"\x01"
    assert encode_space(MultiBinary((2, 3))).multi_binary.n.dtype == pb.DTYPE_INT32
    assert not encode_space(MultiDiscrete([2, 3])).multi_discrete.HasField("start")


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pb.Space(), "space: kind: expected one of discrete, box,"),
        (pb.Space(discrete=pb.Discrete()), "space: n: expected 1 to"),
        (pb.Space(discrete=pb.Discrete(n=1, dtype=pb.DTYPE_FLOAT32)), "space: dtype: expected one of int8"),
        (pb.Space(box=pb.Box()), 'space["low"]: dtype: expected one of'),
        (
            pb.Space(box=pb.Box(low=encode_array(np.zeros(2)), high=encode_array(np.zeros(3)))),
            "space: high: expected float64 (2,) as in low, got float64 (3,)",
        ),
        (pb.Space(multi_binary=pb.MultiBinary(n=encode_array(np.array(3)))), "space: n: expected an array with one"),
        (pb.Space(multi_binary=pb.MultiBinary(n=encode_array(np.array([0.5])))), "space: n: expected an integer"),
        (pb.Space(multi_discrete=pb.MultiDiscrete(nvec=encode_array(np.zeros(1)))), "space: dtype: expected one of"),
        (pb.Space(text=pb.Text(max_length=1)), "space: charset: expected at least one"),
        (pb.Space(tuple=pb.Tuple(spaces=[pb.Space()])), "space[0]: kind: expected one of"),
        (
            pb.Space(dict=pb.Dict(spaces=[pb.Dict.SubSpace(key="a", space=pb.Space(graph=pb.Graph()))])),
            'space["a"]["node_space"]: kind: expected one of',
        ),
        (
            pb.Space(dict=pb.Dict(spaces=[pb.Dict.SubSpace(key="a", space=encode_space(Discrete(2)))] * 2)),
            "space: expected each key once, got a",
        ),
        (pb.Space(one_of=pb.OneOf()), "space: expected at least one space"),
    ],
)
def test_messages_that_make_no_sense(message: pb.Space, text: str) -> None:
    with pytest.raises(SpaceError) as caught:
        decode_space(message)
    assert str(caught.value).startswith(text)


def nested(levels: int) -> Space:
    space: Space = Discrete(2)
    for number in range(levels - 1):
        space = [Tuple([space]), Dict({"a": space}), Sequence(space)][number % 3]
    return space


def test_depth_is_bounded() -> None:
    deepest = nested(MAX_DEPTH)
    assert decode_space(pb.Space.FromString(encode_space(deepest).SerializeToString())) == deepest
    with pytest.raises(SpaceError, match="expected at most 24 levels of nesting"):
        encode_space(nested(MAX_DEPTH + 1))
    deeper = pb.Space(sequence=pb.Sequence(space=encode_space(deepest)))
    with pytest.raises(SpaceError, match="expected at most 24 levels of nesting"):
        decode_space(deeper)


def test_what_is_no_space_or_has_no_text() -> None:
    with pytest.raises(SpaceError, match="space: expected a space, got int"):
        encode_space(1)  # type: ignore[arg-type]  # that is the mistake
    with pytest.raises(SpaceError, match=r'space\["a"\]: expected text that UTF-8 can encode'):
        encode_space(Dict({"a": Text(2, charset="\ud800")}))


@given(st.binary(max_size=60))
def test_any_bytes_are_a_space_or_an_error(data: bytes) -> None:
    read(data)


@given(some.spaces, st.data())
def test_any_damaged_message_is_a_space_or_an_error(space: Space, data: st.DataObject) -> None:
    encoded = bytearray(encode_space(space).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(encoded))


def read(data: bytes) -> Any:
    try:
        return decode_space(pb.Space.FromString(data))
    except (DecodeError, SpaceError):
        return None
