"""Bytes of values whose parts are arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.spaces import strategies as some
from trio_cogment.api import spaces_pb2 as pb
from trio_cogment.spaces import ArraySpace, Box, Dict, Discrete, Space, SpaceError, Text, Tuple
from trio_cogment.spaces.forms import Form
from trio_cogment.spaces.values import decode_value, encode_value


def serialized(value: Any) -> bytes:
    return encode_value(value).SerializeToString()


@given(some.minari_spaces, some.generators)
def test_a_form_writes_and_reads_what_messages_do(space: Space, generator: np.random.Generator) -> None:
    form = Form.of(space, serialized)
    leaves = [leaf for _, leaf in space.leaves()]
    usual = all(isinstance(leaf, ArraySpace) and 0 not in leaf.shape and leaf.row.kind != "b" for leaf in leaves)
    assert (form is not None) == (usual and bool(leaves))
    assume(form is not None)
    assert form is not None
    value = space.check(space.sample(generator))
    content = serialized(value)
    encoded = form.encode(value)
    assert encoded in (None, content)  # a number that is not an array of NumPy's is left to others
    elements = form.cut(content)
    assert elements is not None
    assert (form.join(elements), tuple(map(len, elements))) == (content, form.sizes)
    assert some.same(space.check(form.decode(content)), space.check(decode_value(pb.Value.FromString(content))))


SPACE = Dict({"arm": Tuple([Box(-1, 1, (2,)), Discrete(3)]), "leg": Box(0, 9, (2, 2), "int32")})
VALUE: dict[str, Any] = {
    "arm": (np.array([0, 1], np.float32), np.int64(2)),
    "leg": np.array([[1, 2], [3, 4]], np.int32),
}


def form_of(space: Space) -> Form:
    form = Form.of(space, serialized)
    assert form is not None
    return form


def test_what_is_read_can_be_written_to() -> None:
    content = serialized(VALUE)
    assert form_of(SPACE).encode(VALUE) == content
    found = form_of(SPACE).decode(content)
    found["leg"][0, 0] = 7
    assert form_of(SPACE).decode(content)["leg"][0, 0] == 1
    assert type(found["arm"][1]) is np.int64


@pytest.mark.parametrize(
    "value",
    [
        {**VALUE, "more": 1},
        {"leg": VALUE["leg"]},
        {"leg": VALUE["leg"], "arm": VALUE["arm"]},
        {**VALUE, "arm": [*VALUE["arm"]]},
        {**VALUE, "arm": (*VALUE["arm"], np.int64(1))},
        {**VALUE, "arm": (VALUE["arm"][0], 2)},
        {**VALUE, "leg": np.zeros((2, 2), np.int64)},
        {**VALUE, "leg": np.zeros(4, np.int32)},
        [],
    ],
)
def test_values_of_other_types_are_left_to_others(value: Any) -> None:
    assert form_of(SPACE).encode(value) is None


@given(st.data())
def test_changed_messages_are_never_misread(data: st.DataObject) -> None:
    content = bytearray(serialized(VALUE))
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] = data.draw(st.integers(0, 255))
    form = form_of(SPACE)
    elements = form.cut(bytes(content))
    if elements is None:
        assert content != serialized(VALUE)
        return
    assert form.join(elements) == bytes(content)
    assert form.cut(bytes(content) + b"\x00") is None
    assert form.cut(bytes(content[:-1])) is None


def test_a_value_outside_of_its_space() -> None:
    content = serialized({**VALUE, "leg": np.full((2, 2), 10, np.int32)})
    with pytest.raises(SpaceError, match="expected 0 to 9, got 10"):
        form_of(SPACE).decode(content)


@pytest.mark.parametrize(
    "space", [Text(3), Dict({}), Dict({"a": Text(3), "b": Discrete(2)}), Box(0, 1, (0,)), Box(0, 1, (2,), bool)]
)
def test_spaces_without_a_form(space: Space) -> None:
    assert Form.of(space, serialized) is None
