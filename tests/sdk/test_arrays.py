"""Arrays in payloads, as cogment-lab and cogment-verse put them there."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.sdk._stored import array_message, as_array

FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {"float32": 1, "float64": 2, "int8": 3, "int32": 4, "int64": 5, "uint8": 6}


def messages() -> tuple[type[Any], type[Any]]:
    """The two messages of cogment-lab's protos that matter, under another package."""
    file = descriptor_pb2.FileDescriptorProto(
        name="arrays_of_a_test.proto", package="arrays_of_a_test", syntax="proto3"
    )
    file.enum_type.add(name="DType").value.add(name="DTYPE_UNKNOWN", number=0)
    for name, number in TYPES.items():
        file.enum_type[0].value.add(name=f"DTYPE_{name.upper()}", number=number)
    file.enum_type[0].value.add(name="DTYPE_STRING", number=7)
    array = file.message_type.add(name="Array")
    array.field.add(name="dtype", number=1, type=FIELD.TYPE_ENUM, type_name=".arrays_of_a_test.DType", label=1)
    for number, (name, kind, repeated) in enumerate(
        [
            ("shape", FIELD.TYPE_UINT32, True),
            ("raw_data", FIELD.TYPE_BYTES, False),
            ("npy_data", FIELD.TYPE_BYTES, False),
            ("double_data", FIELD.TYPE_DOUBLE, True),
            ("int32_data", FIELD.TYPE_SINT32, True),
            ("int64_data", FIELD.TYPE_SINT64, True),
            ("uint32_data", FIELD.TYPE_UINT32, True),
            ("string_data", FIELD.TYPE_STRING, True),
        ],
        start=2,
    ):
        array.field.add(name=name, number=number, type=kind, label=3 if repeated else 1)
    observation = file.message_type.add(name="Observation")
    observation.field.add(name="value", number=1, type=FIELD.TYPE_MESSAGE, type_name=".arrays_of_a_test.Array", label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    found = message_factory.GetMessageClassesForFiles([file.name], pool)
    return found["arrays_of_a_test.Array"], found["arrays_of_a_test.Observation"]


Array, Observation = messages()


@pytest.mark.parametrize("dtype", TYPES)
def test_raw_data(dtype: str) -> None:
    array = np.arange(6, dtype=dtype).reshape(2, 3)
    message = Array(dtype=TYPES[dtype], shape=[2, 3], raw_data=array.tobytes())
    found = as_array(Observation(value=message))
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    assert not found.flags.writeable


@pytest.mark.parametrize(
    ("dtype", "field", "values"),
    [
        ("float32", "double_data", [0.5, float("nan"), -1.0]),
        ("int8", "int32_data", [-1, 0, 127]),
        ("int64", "int64_data", [-(2**40), 0, 2**40]),
        ("uint8", "uint32_data", [0, 7, 255]),
    ],
)
def test_values_one_by_one(dtype: str, field: str, values: list[float]) -> None:
    found = as_array(Array(dtype=TYPES[dtype], shape=[3], **{field: values}))
    np.testing.assert_array_equal(found, np.array(values, dtype=dtype))
    assert found.dtype == dtype


def test_texts_and_scalars_and_npy() -> None:
    assert as_array(Array(dtype=7, shape=[2], string_data=["a", "bc"])).tolist() == ["a", "bc"]
    scalar = as_array(Array(dtype=5, raw_data=(3).to_bytes(8, "little")))
    assert scalar.shape == ()
    assert scalar == 3
    assert as_array(Array(dtype=1, shape=[0])).shape == (0,)
    file = io.BytesIO()
    np.save(file, np.eye(2))
    np.testing.assert_array_equal(as_array(Array(dtype=2, shape=[2, 2], npy_data=file.getvalue())), np.eye(2))


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (Array(dtype=0, shape=[2], raw_data=bytes(8)), "array: dtype: expected one of"),
        (Array(dtype=1, shape=[3], raw_data=bytes(8)), "expected 12 bytes for float32"),
        (Array(dtype=1, shape=[2], raw_data=bytes(7)), "expected 8 bytes for float32 .* got 7"),
        (Array(dtype=2, shape=[1], npy_data=b"nonsense"), "array: npy_data"),
        (TrialParams(), "payload: expected an array, got TrialParams"),
        (b"bytes", "payload: expected an array, got bytes"),
        (Observation(), "payload: expected an array"),
    ],
)
def test_what_is_no_array_is_refused(message: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=text):
        as_array(message)


def npy(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    "array", [np.asfortranarray(np.arange(6).reshape(2, 3)), np.zeros((0, 3)), np.array(3, dtype=">i2")]
)
def test_npy_of_every_kind(array: np.ndarray[Any, Any]) -> None:
    # For what it has no number for, cogment-lab writes an unknown type.
    message = Array(dtype=TYPES.get(array.dtype.name, 0), shape=array.shape, npy_data=npy(array))
    found = as_array(message)
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype.newbyteorder("=")


def test_npy_that_is_something_else() -> None:
    archive = io.BytesIO()
    np.savez(archive, np.eye(2))
    huge = npy(np.zeros(3)).replace(b"(3,)", b"(%d,)" % 10**15)
    for data in (archive.getvalue(), archive.getvalue()[:50], huge):
        with pytest.raises(InvalidArgumentError, match="array: npy_data: "):
            as_array(Array(dtype=2, shape=[3], npy_data=data))


@given(st.integers(0, 200), st.binary(max_size=8), st.integers(0, 300))
def test_broken_npy_is_refused_or_read(place: int, garbage: bytes, size: int) -> None:
    data = npy(np.arange(6.0))
    data = (data[:place] + garbage + data[place + len(garbage) :])[:size]
    try:
        found = as_array(Array(dtype=2, shape=[6], npy_data=data))
    except InvalidArgumentError:
        return
    assert found.shape == (6,)


def test_pickles_are_never_loaded() -> None:
    file = io.BytesIO()
    np.save(file, np.array([{"a": 1}], dtype=object))
    with pytest.raises(InvalidArgumentError, match="npy_data"):
        as_array(Array(dtype=2, shape=[1], npy_data=file.getvalue()))


def test_who_holds_an_array() -> None:
    assert array_message(Array()) is not None
    assert array_message(Observation(value=Array())) is not None
    assert array_message(Observation()) is None
    assert array_message(None) is None
