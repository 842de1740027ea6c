"""Values of spaces as tensors, and spaces of specifications."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import given

from tests.spaces import strategies as some
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.spaces import Box, Dict, Discrete, MultiDiscrete, Sequence, Space, SpaceError, Text, Tuple
from trio_cogment.spaces.space_tensors import PRINTABLE, SpaceTensors, space_of_specs
from trio_cogment.spaces.tensor_specs import TensorSpec
from trio_cogment.spaces.tensors import encode_tensor


def has_names(space: Space) -> bool:
    return all(str(key) and "." not in str(key) for path, _ in space.leaves() for key in path)


@given(some.spaces.filter(has_names), some.generators)
def test_values_survive(space: Space, generator: np.random.Generator) -> None:
    written = SpaceTensors(space, "value")
    for spec in written.specs:
        assert TensorSpec.from_message(spec.message()).message() == spec.message()
    value = space.sample(generator)
    sent = [pb.Tensor.FromString(tensor.SerializeToString()) for tensor in written.tensors(value)]
    assert some.same(written.value(sent), value)


@pytest.mark.parametrize("text", ["\0", "a\0\0", "\0a", ""])
def test_a_text_keeps_the_nul_characters_at_its_end(text: str) -> None:
    written = SpaceTensors(Text(3, 0, "a\0"), "value")
    assert written.value(written.tensors(text)) == text


def test_specifications() -> None:
    space = Dict({"arm": Tuple([Box(-1, 1, (2,)), Discrete(3)]), "free": Box(-np.inf, np.inf, (1,)), "text": Text(3)})
    specs = SpaceTensors(space, "action").specs
    assert [(spec.name, spec.type.name, spec.shape) for spec in specs] == [
        ("arm.0", "float32", (2,)),
        ("arm.1", "int64", ()),
        ("free", "float32", (1,)),
        ("text", "str", ()),
    ]
    assert specs[1].minimum is not None
    assert specs[1].maximum is not None
    assert (specs[1].minimum.item(), specs[1].maximum.item()) == (0, 2)
    assert specs[2].minimum is None
    (alone,) = SpaceTensors(MultiDiscrete([2, 3]), "action").specs
    assert alone.name == "action"
    assert alone.maximum is not None
    assert alone.maximum.tolist() == [1, 2]


@pytest.mark.parametrize("key", ["", "a.b"])
def test_keys_that_dm_env_rpc_cannot_have(key: str) -> None:
    with pytest.raises(SpaceError, match="expected keys without dots that are not empty"):
        SpaceTensors(Dict({key: Discrete(2)}), "value")


def test_what_was_not_sent_is_zero_within_the_bounds() -> None:
    space = Dict({"a": Box(2, 3, (2,)), "b": Discrete(3, start=-5), "c": Text(3, 0)})
    found = SpaceTensors(space, "value").value([None, None, None])
    assert found["a"].tolist() == [2, 2]
    assert (found["b"], found["c"]) == (-3, "")
    with pytest.raises(SpaceError, match="value: expected a value, and none was sent"):
        SpaceTensors(Text(3, 1), "value").value([None])


def test_a_message_of_another_type() -> None:
    written = SpaceTensors(Sequence(Discrete(2)), "value")
    held = np.empty((), object)
    for packed in (AnyMessage(type_url="x/other"), AnyMessage(type_url="x/trio_cogment.spaces.Value", value=b"\xff")):
        held[()] = packed
        with pytest.raises(SpaceError, match=r"value: expected a message trio_cogment\.spaces\.Value"):
            written.value([encode_tensor(held)])


def test_spaces_of_specifications() -> None:
    found = space_of_specs(
        [
            TensorSpec.of("arm.angle", "float32", (2,), -1, 1),
            TensorSpec.of("arm.grip", "int32", (), 0, 4),
            TensorSpec.of("free", "float64"),
            TensorSpec.of("count", "int64", (), 0),
            TensorSpec.of("flag", "bool"),
            TensorSpec.of("path", "uint8", (-1, 3)),
            TensorSpec.of("text", "str"),
        ]
    )
    assert found == Dict(
        {
            "arm": Dict({"angle": Box(-1, 1, (2,)), "grip": Discrete(5, dtype="int32")}),
            "free": Box(-np.inf, np.inf, (), "float64"),
            "count": Box(0, 2**63 - 1, (), "int64"),
            "flag": Box(0, 1, (), "bool"),
            "path": Sequence(Box(0, 255, (3,), "uint8"), stack=True),
            "text": Text(2**20, 0, PRINTABLE),
        }
    )


@pytest.mark.parametrize(
    "specs",
    [
        [TensorSpec.of("a", "object")],
        [TensorSpec.of("a", "str", (2,))],
        [TensorSpec.of("a", "int32", (2, -1))],
        [TensorSpec.of("a", "int32"), TensorSpec.of("a", "int32")],
        [TensorSpec.of("a", "int32"), TensorSpec.of("a.b", "int32")],
        [TensorSpec.of("a.b", "int32"), TensorSpec.of("a", "int32")],
    ],
)
def test_specifications_without_a_space(specs: list[TensorSpec]) -> None:
    with pytest.raises(SpaceError, match=r"^a"):
        space_of_specs(specs)
