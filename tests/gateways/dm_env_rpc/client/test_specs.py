"""Names and UIDs, values and tensors, settings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.gateways.dm_env_rpc.client.specs import Specs, Tensors, flat, flattened, nested, tensor_for
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import decode_tensor, encode_tensor

ARM = Tensors("action", {4: TensorSpec.of("arm.angle", "float32", (2,), -1, 1), 2: TensorSpec.of("jump", "bool")})


def test_names_stand_for_uids() -> None:
    packed = ARM.packed({"arm.angle": [0.5, 7.0]})
    assert list(packed) == [4]
    assert list(packed[4].floats.array) == [0.5, 7.0]  # the server judges bounds
    (value,) = ARM.unpacked(packed).values()
    assert value.tolist() == [0.5, 7.0]
    assert list(ARM.specs) == ["jump", "arm.angle"]


def test_unknown_names_and_uids() -> None:
    with pytest.raises(SpaceError, match=r"action 'arm': expected one of 'jump', 'arm\.angle'"):
        ARM.packed({"arm": 1})
    with pytest.raises(SpaceError, match="action 9: expected a UID"):
        ARM.unpacked({9: encode_tensor(1)})


def test_a_wrong_tensor_is_named() -> None:
    with pytest.raises(SpaceError, match=r"arm\.angle: dtype: expected float32 \(floats\), got int64"):
        ARM.unpacked({4: encode_tensor([1, 2])})


@pytest.mark.parametrize(
    ("dtype", "shape", "value", "expected"),
    [
        ("int8", (), 3, 3),
        ("int8", (), np.uint64(3), 3),
        ("float32", (), 1, 1.0),
        ("float64", (2,), [1, 2], [1.0, 2.0]),
        ("float32", (), 1e300, float("inf")),  # and no warning
        ("uint64", (), 2**64 - 1, 2**64 - 1),
        ("int32", (-1,), [], []),
        ("int32", (-1, 2), [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ("bool", (), True, True),
        ("str", (), "left", "left"),
        ("str", (-1,), ["left", "right"], ["left", "right"]),
        ("str", (-1,), [], []),
    ],
)
def test_values_in_the_type_of_a_specification(dtype: str, shape: tuple[int, ...], value: Any, expected: Any) -> None:
    spec = TensorSpec.of("value", dtype, shape)
    array = spec.check(tensor_for(spec, value))
    assert array.tolist() == expected


@pytest.mark.parametrize(
    ("dtype", "shape", "value", "reason"),
    [
        ("int8", (), 128, "expected numbers of the type int8, got int64: 128"),
        ("int32", (), 1.0, "expected numbers of the type int32, got float64"),
        ("uint8", (), -1, "expected numbers of the type uint8"),
        ("bool", (), 1, "expected bool, got int64"),
        ("float32", (), True, "expected float32, got bool"),
        ("float32", (), "1", "expected float32, got <U1"),
        ("float32", (), [[1], [2, 3]], "expected float32: "),
        ("str", (), 1, "expected str, got int64"),
        ("int32", (), [1], r"expected the shape \(\), got \(1,\)"),
        ("int32", (3,), [1, 2], r"expected the shape \(3,\), got \(2,\)"),
        ("int32", (-1, 2), [[1], [2]], r"expected the shape \(-1, 2\), got \(2, 1\)"),
    ],
)
def test_values_that_a_specification_refuses(dtype: str, shape: tuple[int, ...], value: Any, reason: str) -> None:
    with pytest.raises(SpaceError, match=reason):
        tensor_for(TensorSpec.of("value", dtype, shape), value)


def test_specifications_that_make_no_sense() -> None:
    message = pb.ActionObservationSpecs()
    for uid in (1, 2):
        message.observations[uid].CopyFrom(TensorSpec.of("same", "float32").message())
    with pytest.raises(SpaceError, match="'same' twice"):
        Specs.of(message)
    message.observations[2].dtype = 99  # type: ignore[assignment]  # no such number
    with pytest.raises(SpaceError, match="dtype: expected one of"):
        Specs.of(message)


def test_settings_within_mappings() -> None:
    found = flattened({"seed": 1, "level": {"name": "hall", "size": {"x": [1.0, 2.0]}}})
    assert {name: decode_tensor(tensor).tolist() for name, tensor in found.items()} == {
        "seed": 1,
        "level.name": "hall",
        "level.size.x": [1.0, 2.0],
    }
    assert found["seed"].WhichOneof("payload") == "int64s"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"a": None}, "setting 'a': "),
        ({"a": {"b": object()}}, r"setting 'a\.b': expected messages"),
        ({"a": {1: 2}}, "a: expected strings"),
        ({"": 2}, "settings: expected strings that are not empty"),
        ({"a.b": 1, "a": {"b": 2}}, r"setting 'a\.b': expected a name that is unique"),
    ],
)
def test_settings_that_are_refused(settings: Any, reason: str) -> None:
    with pytest.raises(SpaceError, match=reason):
        flattened(settings)


def test_nesting_and_back() -> None:
    values = {"a.b": 1, "a.c.d": 2, "e": 3}
    assert nested(values) == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}
    assert flat(nested(values)) == values
