"""Payloads as pages get them: of bounded size, whatever is in them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import BoolValue, DoubleValue, FloatValue, Int64Value, StringValue

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.dashboard._payloads import numbers, shown
from trio_cogment.spaces import encode_action, encode_array

STRUCT = "google.protobuf.Struct"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def packed(message: Message) -> AnyMessage:
    found = AnyMessage()
    found.Pack(message)
    return found


def struct(**fields: Any) -> Struct:
    found = Struct()
    found.update(fields)
    return found


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        (None, None),
        (b"\x00\xff", {"hex": "00ff", "size": 2}),
        (b"", {"hex": "", "size": 0}),
        (StringValue(value="<b>"), {"type": "google.protobuf.StringValue", "value": "<b>"}),
        (DoubleValue(value=math.inf), {"type": "google.protobuf.DoubleValue", "value": "inf"}),
        (Int64Value(value=2**60), {"type": "google.protobuf.Int64Value", "value": 2**60}),  # see `json_text`
        (FloatValue(value=0.1), {"type": "google.protobuf.FloatValue", "value": 0.1}),
        (TrialParams(properties={"a": "b"}), {"type": "cogmentAPI.TrialParams", "value": {"properties": {"a": "b"}}}),
        (BoolValue(), {"type": "google.protobuf.BoolValue", "value": False}),
        (
            struct(a=1, b=[None, "x"], c={"d": True}),
            {"type": STRUCT, "value": {"a": 1, "b": [None, "x"], "c": {"d": True}}},
        ),
        (packed(StringValue(value="a")), {"type": "google.protobuf.StringValue", "value": "a"}),
        (packed(struct(a=1)), {"type": STRUCT, "value": {"a": 1}}),
        (
            packed(TrialParams(max_steps=5)),
            {"type": "cogmentAPI.TrialParams", "value": {"hex": "2805", "size": 2}},
        ),
        (
            AnyMessage(type_url="type.googleapis.com/google.protobuf.StringValue", value=b"\xff"),
            {"type": "google.protobuf.StringValue", "value": {"hex": "ff", "size": 1}},
        ),
    ],
)
def test_payloads(payload: Any, expected: Any) -> None:
    assert shown(payload) == expected


def test_types_of_a_project() -> None:
    types = {"cogmentAPI.TrialParams": TrialParams}
    found = shown(packed(TrialParams(max_steps=5)), types)
    assert found == {"type": "cogmentAPI.TrialParams", "value": {"max_steps": 5}}


def test_pictures_and_arrays() -> None:
    assert shown(PNG)["type"] == "image/png"
    assert "hex" in shown(b"RIFFxxxxWAVE")  # a sound begins in the same way
    value = shown(encode_array(np.array([[1, 2], [3, 4]], np.uint8)))["value"]
    assert value == {"$array": {"dtype": "u1", "shape": [2, 2], "data": "AQIDBA=="}}
    large = shown(encode_array(np.zeros((1000, 1000), np.float32)))["value"]
    assert "$array" not in large


def nested(depth: int) -> Struct:
    found = Struct()
    inner = found
    for _ in range(depth):
        inner = inner.get_or_create_struct("x")
    return found


@pytest.mark.parametrize(
    "payload",
    [
        b"\xff" * 5_000_000,
        StringValue(value="x" * 1_000_000),
        TrialParams(properties={str(number): "x" * 100 for number in range(50_000)}),
        encode_array(np.zeros(1_000_000)),
        nested(90),
    ],
)
def test_size_is_bounded(payload: Any) -> None:
    assert len(json.dumps(shown(payload), allow_nan=False)) < 1_000_000


@pytest.mark.parametrize(
    ("payload", "found"),
    [
        (encode_array(np.array([0.5, -0.1], np.float32)), {"[0]": 0.5, "[1]": -0.1}),  # as people read 32 bits
        (encode_array(np.array([np.inf], np.float32)), {"": math.inf}),
        (encode_array(np.array(-0.1)), {"": -0.1}),
        (encode_array(np.array(3, np.int64)), {"": 3.0}),
        (encode_array(np.array([2**53 + 1, 4], np.int64)), {"[1]": 4.0}),  # an id would be rounded
        (Int64Value(value=-(2**53) - 1), {}),
        (Int64Value(value=2**53 - 1), {"": 2.0**53 - 1}),
        (encode_array(np.zeros((24, 24), np.uint8)), {}),
        (DoubleValue(value=2.5), {"": 2.5}),
        (StringValue(value="x"), {}),
        (b"\x01", {}),
        (PNG, {}),
        (
            encode_action({"arm": np.array([0.5, 1], np.float32), "grip": 1, "t": (2, "x", None)}),
            {"nested.arm[0]": 0.5, "nested.arm[1]": 1.0, "nested.grip": 1.0, "nested.t[0]": 2.0},
        ),
    ],
)
def test_numbers(payload: Any, found: dict[str, float]) -> None:
    assert dict(numbers(shown(payload))) == found


def test_few_numbers_make_curves() -> None:
    many = Struct()
    many.update({str(number): number for number in range(100)})
    assert len(list(numbers(shown(many)))) == 8
