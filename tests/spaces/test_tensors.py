"""Tensors of dm_env_rpc: arrays survive, shapes are found, and nonsense is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces import strategies as some
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensors import MAX_ELEMENTS, TYPES, decode_tensor, encode_tensor, shape_for

WIDER = {"int16": "int32", "uint16": "int32", "float16": "float32"}


@given(some.layouts())
def test_arrays_survive(array: np.ndarray[Any, Any]) -> None:
    tensor = pb.Tensor.FromString(encode_tensor(array).SerializeToString())
    found = decode_tensor(tensor)
    assert found.shape == array.shape
    name = array.dtype.newbyteorder("=").name
    assert found.dtype.kind == "U" if array.dtype.kind == "U" else found.dtype == WIDER.get(name, name)
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.name)
def test_the_number_of_a_type_is_that_of_its_payload(row: Any) -> None:
    assert pb.Tensor.DESCRIPTOR.fields_by_name[row.payload].number == row.number


def test_python_values_are_what_the_published_library_makes_of_them() -> None:
    kinds = [encode_tensor(value).WhichOneof("payload") for value in (1, 1.0, True, "a", [1, 2])]
    assert kinds == ["int64s", "doubles", "bools", "strings", "int64s"]


def test_messages() -> None:
    held = np.empty(2, object)
    held[:] = [AnyMessage(type_url="a/b", value=b"1"), AnyMessage(type_url="a/c")]
    found = decode_tensor(encode_tensor(held))
    assert [message.type_url for message in found] == ["a/b", "a/c"]
    with pytest.raises(SpaceError, match=r"expected messages of the type google\.protobuf\.Any, got int"):
        encode_tensor(np.array([1], object))


@pytest.mark.parametrize(
    ("shape", "count", "expected", "found"),
    [
        ([], 1, None, ()),
        ([3], 3, None, (3,)),
        ([-1], 3, None, (3,)),
        ([2, -1], 6, None, (2, 3)),
        ([-5, 2], 6, None, (3, 2)),
        ([4, 2], 1, None, (4, 2)),
        ([-1], 1, None, (1,)),
        ([-1], 1, (3,), (3,)),
        ([-1], 1, (-1,), (1,)),
        ([-1], 0, None, (0,)),
        ([0], 0, None, (0,)),
        ([0], 1, None, (0,)),
        ([2, -1], 1, (2, 5), (2, 5)),
    ],
)
def test_shapes(shape: list[int], count: int, expected: tuple[int, ...] | None, found: tuple[int, ...]) -> None:
    assert shape_for(shape, count, expected) == found


@pytest.mark.parametrize(
    ("shape", "count", "text"),
    [
        ([], 0, "expected 1 elements for the shape"),
        ([], 2, "expected 1 elements for the shape"),
        ([3], 2, "expected 3 elements for the shape"),
        ([-1, -1], 4, "at most one negative dimension"),
        ([2, -1], 3, "3 elements do not fit"),
        ([0, -1], 3, "3 elements do not fit"),
        ([2**31 - 1] * 2, 1, f"at most {MAX_ELEMENTS} elements where one stands for all"),
        ([0, 2**31 - 1, 2**31 - 1], 0, "lengths whose product is at most"),
        ([2**31 - 1, 0], 0, "lengths whose product is at most"),
        ([1] * 33, 1, "at most 32 dimensions"),
    ],
)
def test_shapes_that_make_no_sense(shape: list[int], count: int, text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        shape_for(shape, count)


def test_one_element_fills_a_shape_without_memory() -> None:
    tensor = pb.Tensor(shape=[8192, 8192])
    tensor.floats.array.append(1.5)
    found = decode_tensor(tensor)
    assert found.shape == (8192, 8192)
    assert found.strides == (0, 0)
    assert not found.flags.writeable


def test_a_tensor_without_elements_has_no_type() -> None:
    with pytest.raises(SpaceError, match="expected elements in one of floats, doubles"):
        decode_tensor(pb.Tensor(shape=[0]))
    assert decode_tensor(encode_tensor(np.zeros((0, 2), np.uint8))).shape == (0, 2)


@pytest.mark.parametrize("value", [np.zeros(1, complex), np.ma.masked_array([1], [True]), [[1], [1, 2]], "\ud800"])
def test_what_has_no_counterpart(value: Any) -> None:
    with pytest.raises(SpaceError):
        encode_tensor(value)


@given(st.binary(max_size=200))
def test_garbage_never_raises_anything_else(data: bytes) -> None:
    try:
        tensor = pb.Tensor.FromString(data)
    except Exception:  # noqa: BLE001  protobuf's own error; what it parses is what matters here
        return
    try:
        decode_tensor(tensor)
    except SpaceError:
        pass
