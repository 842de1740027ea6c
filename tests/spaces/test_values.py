"""Values as messages."""

from __future__ import annotations

import json
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
    GraphValue,
    Space,
    SpaceError,
    Text,
    Tuple,
    decode_value,
    encode_value,
)
from trio_cogment.spaces.errors import MAX_DEPTH
from trio_cogment.spaces.values import fill_fields, serialized_fields


def carried(value: Any, space: Space | None = None) -> Any:
    return decode_value(pb.Value.FromString(encode_value(value, space).SerializeToString()), space)


@given(some.spaces, some.generators)
def test_every_value_of_every_space_survives(space: Space, generator: np.random.Generator) -> None:
    value = space.sample(generator)
    assert some.same(carried(value, space), value)
    assert some.same(carried(value), value)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.text(some.CHARACTERS),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(some.KEYS, parts, max_size=3),
    max_leaves=10,
)
information = st.recursive(
    json_like | some.arrays | st.binary(max_size=3) | st.sampled_from([np.float32(1.5), np.bool_(False), np.str_("x")]),
    lambda parts: st.dictionaries(some.KEYS, parts, max_size=3) | st.lists(parts, max_size=3).map(tuple),
    max_leaves=5,
)


@given(information)
def test_information_without_a_space_survives(value: Any) -> None:
    assert some.same(carried(value), value)


@given(st.dictionaries(some.KEYS, information | st.binary(max_size=300) | some.arrays, max_size=4))
def test_bytes_are_those_of_the_message(values: dict[str, Any]) -> None:
    message = pb.Value.Fields()
    fill_fields(message, values)
    assert serialized_fields(values) == message.SerializeToString()


@pytest.mark.parametrize("wrong", [{1: 2}, {"a": {"b": object()}}, {"a": "\ud800"}, {"\ud800": 1}, {"a": 1 << 64}])
def test_values_without_a_message_have_no_bytes(wrong: dict[Any, Any]) -> None:
    with pytest.raises(SpaceError) as expected:
        fill_fields(pb.Value.Fields(), wrong)
    with pytest.raises(SpaceError) as got:
        serialized_fields(wrong)
    assert str(got.value) == str(expected.value)


def test_nesting_that_is_too_deep_has_no_bytes() -> None:
    value: dict[str, Any] = {}
    for _ in range(MAX_DEPTH - 2):
        value = {"a": value}
    message = pb.Value.Fields()
    fill_fields(message, value)
    assert serialized_fields(value) == message.SerializeToString()
    with pytest.raises(SpaceError, match="levels of nesting"):
        serialized_fields({"a": {"a": value}})


@given(json_like)
def test_json_survives(value: Any) -> None:
    assert json.dumps(carried(value)) == json.dumps(value)


SPACE = Dict({"arm": Tuple([Box(0, 1, (2,)), Discrete(3)]), "name": Text(5)})


def test_arrays_are_shared_or_copied() -> None:
    message = encode_value({"a": (np.zeros(3),)})
    assert not decode_value(message)["a"][0].flags.writeable
    assert decode_value(message, copy=True)["a"][0].flags.writeable


def test_values_are_checked_on_both_sides() -> None:
    wrong = {"arm": (np.zeros(2, np.float32), 3), "name": "x"}
    with pytest.raises(SpaceError, match=r'value\["arm"\]\[1\]: expected 0 to 2, got 3'):
        encode_value(wrong, SPACE)
    with pytest.raises(SpaceError, match=r'value\["arm"\]\[1\]: expected 0 to 2, got 3'):
        decode_value(encode_value(wrong), SPACE)


def test_what_comes_from_elsewhere_gets_the_types_of_the_space() -> None:
    value = {"name": "x", "arm": (np.zeros(2, np.float16), 2)}
    expected = {"arm": (np.zeros(2, np.float32), np.int64(2)), "name": "x"}
    assert some.same(decode_value(encode_value(value), SPACE), expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, object()]}, 'value["a"][1]: expected an array, a number, .*; got object'),
        ({"a": {1, 2}}, 'value["a"]: .*got set'),
        ({1: 2}, "value: expected strings as keys, got int"),
        ({"a": 2**63}, 'value["a"]: expected integers of 64 bits, got one of 64'),
        ({"a": "\ud800"}, 'value["a"]: expected text that UTF-8'),
        ({"\ud800": 1}, "value: expected keys that UTF-8"),
        ((np.zeros(1, "c8"),), r"value[0]: dtype: expected one of .*; got complex64"),
        ((np.array([None]),), r"value[0]: dtype: expected one of .*; got object"),
        ([np.datetime64("2020-01-01")], "value[0]: dtype: .*got datetime64"),
        (1j, "value: expected an array, .*got complex"),
        (GraphValue(np.zeros(1), None, np.array(["x", None])), r'value["edge_links"]: dtype: .*got object'),
    ],
)
def test_what_cannot_be_encoded(value: Any, text: str) -> None:
    with pytest.raises(SpaceError, match=text.replace("[", r"\[").replace("]", r"\]")):
        encode_value(value)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (pb.Value(), "value: expected a value, got none"),
        (pb.Value(list=pb.Value.Items(items=[pb.Value()])), "value[0]: expected a value, got none"),
        (pb.Value(array=pb.Array()), "value: dtype: expected one of"),
        (
            pb.Value(array=pb.Array(dtype=pb.DTYPE_INT8, shape=[1], raw_data=b"1", scalar=True)),
            "value: shape:",
        ),
        (pb.Value(graph=pb.Value.Graph()), 'value["nodes"]: expected a value'),
        (
            pb.Value(dict=pb.Value.Fields(fields=[pb.Value.Fields.Field(key="a", value=pb.Value(integer=1))] * 2)),
            'value["a"]: expected each key once',
        ),
    ],
)
def test_messages_that_make_no_sense(message: pb.Value, text: str) -> None:
    with pytest.raises(SpaceError) as caught:
        decode_value(message)
    assert str(caught.value).startswith(text)


def test_depth_is_bounded() -> None:
    value: Any = 1
    for number in range(MAX_DEPTH - 1):
        value = [(value,), {"a": value}, [value]][number % 3]
    assert carried(value) == value
    with pytest.raises(SpaceError, match="expected at most 24 levels"):
        encode_value([value])
    with pytest.raises(SpaceError, match="expected at most 24 levels"):
        decode_value(pb.Value(list=pb.Value.Items(items=[encode_value(value)])))
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(SpaceError, match="expected at most 24 levels"):
        encode_value(endless)


@given(information, st.data())
def test_any_damaged_message_is_a_value_or_an_error(value: Any, data: st.DataObject) -> None:
    encoded = bytearray(encode_value(value).SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_value(pb.Value.FromString(bytes(encoded)))
    except (DecodeError, SpaceError):
        return
    assert not SPACE.contains(found)
