"""Arrays as messages: every type and layout survives, foreign forms are read, and what makes no sense is refused."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spaces import strategies as some
from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces import SpaceError, decode_array, encode_array
from trio_cogment.spaces.arrays import MAX_DIMENSIONS, decode_number, fill_scalar
from trio_cogment.spaces.dtypes import BY_NAME, DTYPES

#: The messages of cogment-lab, which the published ones decode: fields and numbers that must never change.
LAB_FIELDS = {
    name: number
    for number, name in enumerate(
        [
            "dtype",
            "shape",
            "raw_data",
            "npy_data",
            "double_data",
            "int32_data",
            "int64_data",
            "uint32_data",
            "string_data",
        ],
        start=1,
    )
}
LAB_TYPES = {"float32": 1, "float64": 2, "int8": 3, "int32": 4, "int64": 5, "uint8": 6, "str": 7}


def made(**fields: Any) -> pb.Array:
    return pb.Array(**fields)


def carried(array: Any, *, copy: bool = False) -> np.ndarray[Any, Any]:
    return decode_array(pb.Array.FromString(encode_array(array).SerializeToString()), copy=copy)


@given(some.layouts(), st.booleans())
def test_every_array_survives(array: np.ndarray[Any, Any], copy: bool) -> None:
    found = carried(array, copy=copy)
    assert found.dtype.kind == array.dtype.kind
    assert found.dtype.itemsize == array.dtype.itemsize or array.dtype.kind == "U"
    assert found.dtype.isnative
    assert found.flags.writeable == copy
    assert np.array_equal(found, array, equal_nan=array.dtype.kind == "f")
    assert found.shape == array.shape


def test_numbers_of_fields_and_types_are_those_of_cogment_lab() -> None:
    fields = {name: field.number for name, field in pb.Array.DESCRIPTOR.fields_by_name.items()}
    assert fields == {**LAB_FIELDS, "scalar": 16}
    assert {name: BY_NAME[name].number for name in LAB_TYPES} == LAB_TYPES
    assert min(row.number for row in DTYPES if row.name not in LAB_TYPES) == 16


def test_the_bytes_are_those_of_cogment_lab() -> None:
    encoded = encode_array(np.array([[1.0], [-2.0]], np.float32)).SerializeToString()
    assert encoded == b"\x08\x01\x12\x02\x02\x01\x1a\x08" + struct.pack("<2f", 1.0, -2.0)


def test_elements_are_little_endian() -> None:
    for dtype in ("<u2", ">u2"):
        assert encode_array(np.array([258], dtype)).raw_data == b"\x02\x01"


def test_decoding_shares_the_bytes() -> None:
    message = encode_array(np.arange(1000))
    array = decode_array(message)
    base: Any = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    assert isinstance(base.base, bytes)
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@given(st.sampled_from(some.NUMBERS).flatmap(some.numbers))
def test_npy_is_read(array: np.ndarray[Any, Any]) -> None:
    for by_columns in (False, True):
        file = io.BytesIO()
        np.save(file, np.asfortranarray(array) if by_columns and array.ndim else array, allow_pickle=False)
        for dtype in (pb.DTYPE_UNKNOWN, BY_NAME[array.dtype.name].number):
            message = made(dtype=dtype, shape=array.shape, npy_data=file.getvalue())
            assert some.same(decode_array(message), array)


@given(some.strings())
def test_strings_in_other_forms_are_read(array: np.ndarray[Any, Any]) -> None:
    file = io.BytesIO()
    np.save(file, array.astype(array.dtype.newbyteorder(">")), allow_pickle=False)
    assert np.array_equal(decode_array(made(dtype=7, shape=array.shape, npy_data=file.getvalue())), array)
    raw = made(dtype=7, shape=array.shape, raw_data=array.tobytes())
    assert np.array_equal(decode_array(raw), array)


@pytest.mark.parametrize(
    ("name", "field", "values"),
    [
        ("float32", "double_data", [0.5, -1.0]),
        ("float64", "double_data", [0.1, float("inf")]),
        ("uint8", "uint32_data", [0, 255]),
        ("int8", "int32_data", [-128, 127]),
        ("int32", "int32_data", [-(2**31), 2**31 - 1]),
        ("int64", "int64_data", [-(2**63), 2**63 - 1]),
        ("uint16", "uint32_data", [0, 65535]),
        ("bool", "uint32_data", [0, 1]),
        ("str", "string_data", ["", "grüß"]),
    ],
)
def test_lists_are_read(name: str, field: str, values: list[Any]) -> None:
    message = made(dtype=BY_NAME[name].number, shape=[2, 1])
    getattr(message, field).extend(values)
    array = decode_array(message)
    assert array.dtype.kind == BY_NAME[name].kind
    assert array.tolist() == [[values[0]], [values[1]]]


def test_what_is_no_array_but_can_be_one() -> None:
    assert carried(3).tolist() == 3
    assert carried([1.5, 2]).dtype == np.float64
    assert carried(np.float32(1)).shape == ()
    assert carried("text").tolist() == "text"


def test_scalars_are_scalars_again() -> None:
    for scalar in (np.float16(1.5), np.int64(-3), np.bool_(True), np.str_("x")):
        message = pb.Array()
        fill_scalar(message, scalar)
        assert some.same(decode_number(message), scalar)
    message.shape.append(1)
    with pytest.raises(SpaceError, match="expected no dimensions for a scalar"):
        decode_number(message)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros(2, np.complex64), "dtype: expected one of float16.*got complex64"),
        (np.array([b"x"]), "got |S1"),
        (np.array([None]), "got object"),
        (np.array(["2020-01-01"], "M8[D]"), "got datetime64"),
        (np.zeros(1, [("a", "i4")]), "got"),
        (np.ma.masked_array([1, 2], [True, False]), "masked"),
        ([[1], [2, 3]], "expected an array"),
        (2**70, "got object"),
        (np.array(["\ud800"]), "UTF-8"),
        (np.empty((0, 2**32)), "shape: expected at most 4294967295"),
    ],
)
def test_what_cannot_be_encoded(array: Any, text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        encode_array(array)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, r"dtype: expected one of 1 \(float32\).*; got 0"),
        ({"dtype": 0, "shape": [4], "raw_data": b"\0" * 8}, "got 0"),
        ({"dtype": 99, "shape": [1], "raw_data": b"\0" * 8}, "got 99"),
        ({"dtype": 1, "shape": [2], "raw_data": b"\0" * 7}, r"expected 8 bytes for float32 \(2,\), got 7"),
        ({"dtype": 1, "shape": [2], "raw_data": b"\0" * 12}, "expected 8 bytes"),
        ({"dtype": 1, "shape": [0], "raw_data": b"\0" * 4}, "expected 0 bytes"),
        ({"dtype": 1, "shape": [2**32 - 1] * 4, "raw_data": b"\0" * 4}, "bytes for float32"),
        ({"dtype": 1, "shape": [2]}, "expected 2 elements"),
        ({"dtype": 1, "shape": [0, 2**32 - 1, 2**32 - 1]}, "shape"),
        ({"dtype": 1, "shape": [2**32 - 1, 0]}, "product is at most 1048576 besides those of 0"),
        ({"dtype": 1, "shape": [1] * 33, "raw_data": b"\0" * 4}, "at most 32 dimensions, got 33"),
        ({"dtype": 1, "shape": [1] * 33}, "at most 32 dimensions"),
        ({"dtype": 16, "shape": [1], "raw_data": b"\2"}, "expected 0 or 1 for each bool"),
        ({"dtype": 16, "shape": [1], "uint32_data": [2]}, "uint32_data: expected numbers within the range of bool"),
        ({"dtype": 6, "shape": [1], "uint32_data": [256]}, "within the range of uint8"),
        ({"dtype": 19, "shape": [1], "int64_data": [-1]}, "within the range of uint32"),
        ({"dtype": 1, "shape": [1], "double_data": [1e300]}, "within the range of float32"),
        ({"dtype": 5, "shape": [1], "double_data": [1.0]}, "double_data: expected the elements of int64 in raw_data"),
        ({"dtype": 1, "shape": [1], "int64_data": [1]}, "int64_data: expected"),
        ({"dtype": 1, "shape": [3], "double_data": [1.0]}, "expected 3 elements"),
        ({"dtype": 7, "shape": [1], "raw_data": b"\0" * 5}, "multiple of 4 bytes for each string"),
        ({"dtype": 7, "shape": [1], "raw_data": b"\0\0\xff\0"}, "expected characters of Unicode"),
        ({"dtype": 7, "shape": [1], "raw_data": b"\0\xd8\0\0"}, "expected characters of Unicode"),
        ({"dtype": 7, "shape": [1], "string_data": ["a\0"]}, "do not end with a null character"),
        ({"dtype": 7, "shape": [2], "string_data": ["a"]}, "expected 2 elements"),
        ({"dtype": 7, "shape": [1], "double_data": [1.0]}, "expected 1 elements"),
        ({"dtype": 1, "shape": [1], "npy_data": b"PK"}, "npy_data: "),
    ],
)
def test_what_cannot_be_decoded(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        decode_array(made(**fields))


def test_a_short_message_cannot_ask_for_much_memory() -> None:
    texts = ["", *[""] * 100_000, "x" * 10_000]
    with pytest.raises(SpaceError, match="100002 strings of up to 10000 characters"):
        decode_array(made(dtype=7, shape=[len(texts)], string_data=texts))


def test_npy_that_contradicts_its_message() -> None:
    file = io.BytesIO()
    np.save(file, np.zeros((2, 3), np.int16))
    with pytest.raises(SpaceError, match="expected float32, as dtype says; got int16"):
        decode_array(made(dtype=1, shape=[2, 3], npy_data=file.getvalue()))
    with pytest.raises(SpaceError, match=r"expected the shape \(6,\)"):
        decode_array(made(dtype=17, shape=[6], npy_data=file.getvalue()))
    with pytest.raises(SpaceError, match="npy_data"):
        decode_array(made(dtype=17, shape=[2, 3], npy_data=file.getvalue()[:-1]))
    objects = io.BytesIO()
    np.save(objects, np.array([{}]), allow_pickle=True)
    with pytest.raises(SpaceError, match="got object"):
        decode_array(made(shape=[1], npy_data=objects.getvalue()))


@given(st.binary(max_size=80), st.booleans())
def test_any_npy_is_an_array_or_an_error(data: bytes, framed: bool) -> None:
    if framed:
        data = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(data)) + data
    message = made(shape=[1], npy_data=data or b"x")
    with pytest.raises(SpaceError):
        decode_array(message)


@given(
    st.sampled_from(["<U", "|b", "<f", "<i", "<c", "|O", "|S", "|V", "<M", ""]),
    st.integers(0, 2**40),
    st.lists(st.integers(-1, 2**70), max_size=4),
    st.binary(max_size=16),
)
def test_any_header_of_npy_is_an_array_or_an_error(code: str, size: int, shape: list[int], data: bytes) -> None:
    header = f"{{'descr': '{code}{size}', 'fortran_order': False, 'shape': {tuple(shape)}}}\n".encode()
    message = made(npy_data=b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data)
    message.shape.extend(length % 2**32 for length in shape)
    try:
        array = decode_array(message)
    except SpaceError:
        return
    assert array.nbytes <= len(data)


@given(
    st.sampled_from([0, *(int(row.number) for row in DTYPES), 8, 15, -1]),
    st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 3), max_size=MAX_DIMENSIONS + 1),
    st.binary(max_size=40),
    st.lists(st.floats(), max_size=4),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
)
def test_any_message_is_an_array_or_an_error(
    dtype: Any, shape: list[int], raw: bytes, doubles: list[float], integers: list[int]
) -> None:
    message = made(dtype=dtype, shape=shape, raw_data=raw, double_data=doubles, int64_data=integers)
    try:
        array = decode_array(message)
    except SpaceError:
        return
    assert array.shape == tuple(shape)
    assert array.nbytes <= max(len(raw), 8 * len(doubles), 8 * len(integers))
