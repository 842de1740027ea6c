"""Specifications of tensors: both forms, and what they accept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import OutOfBoundsError, TensorSpec, check_names
from trio_cogment.spaces.tensors import TYPES, encode_tensor


def tensor(value: Any, shape: list[int] | None = None) -> pb.Tensor:
    message = encode_tensor(value)
    if shape is not None:
        del message.shape[:]
        message.shape.extend(shape)
    return message


@pytest.mark.parametrize(
    "spec",
    [
        TensorSpec.of("a", "float32"),
        TensorSpec.of("a.b", "int32", (2, 3), 0, 5),
        TensorSpec.of("a", "float64", (2,), [0, 1], [1, 2]),
        TensorSpec.of("a", "uint8", (-1, 3), 0, 7),
        TensorSpec.of("a", "int8", (), -3, None),
        TensorSpec.of("a", "uint64", (), None, 2**64 - 1),
        TensorSpec.of("a", "str", (2,)),
        TensorSpec.of("a", "bool"),
        TensorSpec.of("a", "object", (-1,)),
    ],
    ids=lambda spec: f"{spec.type.name} {spec.shape}",
)
def test_a_specification_survives(spec: TensorSpec) -> None:
    message = spec.message()
    found = TensorSpec.from_message(pb.TensorSpec.FromString(message.SerializeToString()))
    assert (found.name, found.shape, found.type) == (spec.name, spec.shape, spec.type)
    for bound, wanted in ((found.minimum, spec.minimum), (found.maximum, spec.maximum)):
        assert (bound is None) == (wanted is None)
        if bound is not None and wanted is not None:
            assert bound.dtype == wanted.dtype
            np.testing.assert_array_equal(bound, wanted)
    assert found.message() == message


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("int16",), "a: dtype: expected one of float32"),
        (("float32", (-1, -1)), "a: shape: expected at most one negative dimension"),
        (("str", (), 0), "a: min: expected none, str has no bounds"),
        (("int32", (), 0.5), "a: min: expected int32, got 0.5"),
        (("uint8", (), 0, 256), "a: max: expected uint8, got 256"),
        (("int32", (2,), [0, 1, 2]), "a: min: expected one number, or numbers of the shape"),
        (("int32", (-1,), [0, 1]), "a: min: expected one number"),
        (("int32", (), 2, 1), "a: min: expected no value above that of max"),
        (("float32", (), float("nan")), "a: min: expected numbers"),
    ],
)
def test_specifications_that_make_no_sense(arguments: tuple[Any, ...], text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        TensorSpec.of("a", *arguments)


def test_received_specifications_that_make_no_sense() -> None:
    with pytest.raises(SpaceError, match="a: dtype: expected one of 1"):
        TensorSpec.from_message(pb.TensorSpec(name="a"))
    wrong = TensorSpec.of("a", "int32", (), 0).message()
    wrong.dtype = pb.FLOAT
    with pytest.raises(SpaceError, match="a: min: expected floats, as dtype says; got int32s"):
        TensorSpec.from_message(wrong)
    lengths = TensorSpec.of("a", "int32", (3,)).message()
    lengths.min.int32s.array.extend([1, 2])
    with pytest.raises(SpaceError, match=r"a: min: expected one number, or numbers of the shape \(3,\)"):
        TensorSpec.from_message(lengths)


@pytest.mark.parametrize(
    ("spec", "given", "shape", "found"),
    [
        (TensorSpec.of("a", "float64"), 1.5, None, 1.5),
        (TensorSpec.of("a", "int64", (3,), 0, 9), [1, 2, 3], None, [1, 2, 3]),
        (TensorSpec.of("a", "int64", (3,), 0, 9), [1, 2, 3], [-1], [1, 2, 3]),
        (TensorSpec.of("a", "int64", (3,), 0, 9), [4], [3], [4, 4, 4]),
        (TensorSpec.of("a", "int64", (3,), 0, 9), [4], [-1], [4, 4, 4]),
        (TensorSpec.of("a", "int64", (-1,)), [1, 2], None, [1, 2]),
        (TensorSpec.of("a", "int64", (2, -1)), [1, 2, 3, 4], [2, 2], [[1, 2], [3, 4]]),
        (TensorSpec.of("a", "int64", (2, -1)), [1, 2, 3, 4], [-1, 2], [[1, 2], [3, 4]]),
        (TensorSpec.of("a", "str"), "x", None, "x"),
        (TensorSpec.of("a", "bool", (2,)), [True, False], None, [True, False]),
    ],
)
def test_what_is_accepted(spec: TensorSpec, given: Any, shape: list[int] | None, found: Any) -> None:
    assert spec.check(tensor(given, shape)).tolist() == found


@pytest.mark.parametrize(
    ("spec", "given", "shape", "text"),
    [
        (TensorSpec.of("a", "float64"), 1, None, r"a: dtype: expected float64 \(doubles\), got int64"),
        (TensorSpec.of("a", "float64"), [1.0], None, r"a: shape: expected \[\], got \[1\]"),
        (TensorSpec.of("a", "int64", (3,)), [1, 2], None, r"a: shape: expected \[3\], got \[2\]"),
        (TensorSpec.of("a", "int64", (3,)), [1, 2], [-1], r"a: shape: expected \[3\], got \[2\]"),
        (TensorSpec.of("a", "int64", (2, 2)), [1, 2, 3, 4], [-1, -1], "a: shape: expected at most one negative"),
        (TensorSpec.of("a", "int64", (2, -1)), [1, 2, 3], [3, 1], r"a: shape: expected \[2, -1\], got \[3, 1\]"),
    ],
)
def test_what_is_refused(spec: TensorSpec, given: Any, shape: list[int] | None, text: str) -> None:
    with pytest.raises(SpaceError, match=text):
        spec.check(tensor(given, shape))


def test_bounds() -> None:
    spec = TensorSpec.of("a.b", "float64", (2,), [0, 1], 2)
    assert spec.check(tensor([0.0, 2.0])).tolist() == [0, 2]
    with pytest.raises(OutOfBoundsError, match=r"a\.b\[1\]: expected at least 1\.0, got 0\.0"):
        spec.check(tensor([0.0, 0.0]))
    with pytest.raises(OutOfBoundsError, match=r"a\.b\[0\]: expected at most 2\.0, got 2\.5"):
        spec.check(tensor([2.5, 1.0]))
    with pytest.raises(OutOfBoundsError, match="got nan"):
        spec.check(tensor([float("nan"), 1.0]))


@pytest.mark.parametrize("row", TYPES, ids=lambda row: row.name)
def test_every_type_refuses_all_others(row: Any) -> None:
    spec = TensorSpec.of("a", row.name)
    for other in TYPES:
        message = pb.Tensor()
        getattr(message, other.payload).SetInParent()
        if other is not row:
            with pytest.raises(SpaceError, match=f"a: dtype: expected {row.name}"):
                spec.check(message)


def test_names() -> None:
    specs = {1: TensorSpec.of("a.b", "bool"), 2: TensorSpec.of("a.c", "bool"), 3: TensorSpec.of("ab", "bool")}
    check_names(specs)
    with pytest.raises(SpaceError, match=r"got 'a\.b' twice"):
        check_names({**specs, 4: TensorSpec.of("a.b", "bool")})
    with pytest.raises(SpaceError, match=r"expected 'a' not to be nested in 'a\.\w'"):
        check_names({**specs, 4: TensorSpec.of("a", "bool")})
