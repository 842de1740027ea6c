"""Messages as tensors, field by field."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import BytesValue
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gateways.dm_env_rpc.gateway.mappings.types import kind
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.annotations import FieldAnnotation
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.fields import FieldsSide
from trio_cogment.gateways.dm_env_rpc.gateway.mappings.leaves import MAX_FILLED
from trio_cogment.spaces import SpaceError
from trio_cogment.spaces.arrays import decode_array, encode_array
from trio_cogment.spaces.tensor_specs import OutOfBoundsError, TensorSpec
from trio_cogment.spaces.tensors import decode_tensor, encode_tensor

Notes = dict[str, FieldAnnotation]


def action_side(name: str, notes: Notes | None = None) -> FieldsSide:
    return FieldsSide(kind(name), notes or {}, is_action=True)


def observation_side(name: str, notes: Notes | None = None, *, presence: bool = False) -> FieldsSide:
    return FieldsSide(kind(name), notes or {}, is_action=False, presence=presence)


def specs_of(side: FieldsSide) -> dict[str, TensorSpec]:
    return {spec.name: spec for spec in side.specs}


def written(side: FieldsSide, name: str, values: dict[str, Any]) -> Any:
    """Return the message that tensors make."""
    names = list(specs_of(side))
    tensors = {
        names.index(key): value if isinstance(value, pb.Tensor) else encode_tensor(value)
        for key, value in values.items()
    }
    return kind(name).FromString(side.write(tensors))


def seen(side: FieldsSide, message: Any) -> dict[str, Any]:
    """Return all tensors of a message, as arrays."""
    found = side.read(message.SerializeToString(), range(len(side.specs)))
    return {side.specs[index].name: decode_tensor(tensor) for index, tensor in found}


def packed(message: Any) -> AnyMessage:
    holder = AnyMessage()
    holder.Pack(message)
    return holder


def packed_tensor(*messages: Any) -> pb.Tensor:
    tensor = pb.Tensor(shape=[len(messages)])
    tensor.protos.SetInParent()
    for each in messages:
        tensor.protos.array.add().Pack(each)
    return tensor


def test_each_kind_of_field_has_its_tensor() -> None:
    rows = {name: (spec.type.name, spec.shape) for name, spec in specs_of(observation_side("All")).items()}
    assert rows == {
        "a_double": ("float64", ()),
        "a_float": ("float32", ()),
        "an_int32": ("int32", ()),
        "a_sint32": ("int32", ()),
        "an_sfixed32": ("int32", ()),
        "a_uint32": ("uint32", ()),
        "a_fixed32": ("uint32", ()),
        "an_int64": ("int64", ()),
        "a_sint64": ("int64", ()),
        "an_sfixed64": ("int64", ()),
        "a_uint64": ("uint64", ()),
        "a_fixed64": ("uint64", ()),
        "a_bool": ("bool", ()),
        "a_string": ("str", ()),
        "some_bytes": ("uint8", (-1,)),
        "mood": ("int32", ()),
        "gap": ("int32", ()),
        "doubles": ("float64", (-1,)),
        "longs": ("int64", (-1,)),
        "bools": ("bool", (-1,)),
        "strings": ("str", (-1,)),
        "moods": ("int32", (-1,)),
        "gaps": ("int32", (-1,)),
        "point.x": ("float32", ()),
        "point.y": ("float32", ()),
        "points": ("object", (-1,)),
        "prices": ("object", (-1,)),
        "places": ("object", (-1,)),
        "whatever": ("object", ()),
        "several": ("object", (-1,)),
        "tree.value": ("int32", ()),
        "tree.left": ("object", ()),
        "tree.more": ("object", (-1,)),
        "parts": ("object", (-1,)),
    }


def test_an_enum_without_gaps_has_bounds() -> None:
    specs = specs_of(action_side("All"))
    assert [specs["mood"].minimum, specs["mood"].maximum] == [0, 2]
    assert [specs["moods"].minimum, specs["moods"].maximum] == [0, 2]
    assert (specs["gap"].minimum, specs["gap"].maximum) == (None, None)


_floats = st.floats(width=32, allow_nan=False)
_doubles = st.floats(allow_nan=False)
_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


@st.composite
def everything(draw: st.DrawFn) -> Any:
    """Draw a message with a field of every kind."""
    point = kind("Point")
    points = st.builds(lambda x, y: point(x=x, y=y), _floats, _floats)
    trees = st.builds(lambda value: kind("Tree")(value=value, left=kind("Tree")(value=1)), _integers(32, signed=True))
    # By fields: the class of another descriptor pool is another class.
    anything = points.map(packed).map(lambda each: {"type_url": each.type_url, "value": each.value})
    some: dict[str, Any] = {"max_size": 3}
    return draw(
        st.builds(
            kind("All"),
            a_double=_doubles,
            a_float=_floats,
            an_int32=_integers(32, signed=True),
            a_sint32=_integers(32, signed=True),
            an_sfixed32=_integers(32, signed=True),
            a_uint32=_integers(32, signed=False),
            a_fixed32=_integers(32, signed=False),
            an_int64=_integers(64, signed=True),
            a_sint64=_integers(64, signed=True),
            an_sfixed64=_integers(64, signed=True),
            a_uint64=_integers(64, signed=False),
            a_fixed64=_integers(64, signed=False),
            a_bool=st.booleans(),
            a_string=_texts,
            some_bytes=st.binary(max_size=5),
            mood=st.sampled_from([0, 1, 2]),
            gap=st.sampled_from([0, 3, -7]),
            doubles=st.lists(_doubles, **some),
            longs=st.lists(_integers(64, signed=True), **some),
            bools=st.lists(st.booleans(), **some),
            strings=st.lists(_texts, **some),
            moods=st.lists(st.sampled_from([0, 1, 2]), **some),
            gaps=st.lists(st.sampled_from([0, 3, -7]), **some),
            point=points,
            points=st.lists(points, **some),
            prices=st.dictionaries(_texts, _floats, **some),
            places=st.dictionaries(_integers(32, signed=True), points, **some),
            whatever=anything,
            several=st.lists(anything, **some),
            tree=trees,
            parts=st.lists(st.binary(max_size=3), **some),
        )
    )


@settings(deadline=None, max_examples=100)
@given(everything())
def test_what_is_read_can_be_written(message: Any) -> None:
    reading, writing = observation_side("All"), action_side("All")
    tensors = dict(reading.read(message.SerializeToString(), range(len(reading.specs))))
    for index, tensor in tensors.items():
        assert tensor.WhichOneof("payload") == reading.specs[index].type.payload
    again = kind("All").FromString(writing.write(tensors))
    assert again.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


def test_only_what_is_wanted_is_read() -> None:
    content = kind("All")(an_int32=5, a_string="x").SerializeToString()
    side = observation_side("All")
    names = list(specs_of(side))
    found = dict(side.read(content, [names.index("a_string")]))
    assert list(found) == [names.index("a_string")]
    assert list(side.read(b"not a message at all", [])) == []


def test_what_is_not_sent_has_the_default() -> None:
    assert action_side("All").write({}) == b""
    assert written(action_side("All"), "All", {"an_int32": np.int32(3)}) == kind("All")(an_int32=3)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("an_int32", np.int64(1), "expected int32"),
        ("an_int32", np.array([1], np.int32), r"shape: expected \[\], got \[1\]"),
        ("a_bool", np.int32(1), "expected bool"),
        ("gap", np.int32(2), "expected one of -7, 0, 3; got 2"),
        ("gaps", np.array([3, 4], np.int32), "expected one of -7, 0, 3; got 4"),
        ("strings", np.zeros((2, 2), np.float32), "expected str"),
        ("points", packed_tensor(BytesValue()), "expected a message kinds.Point, got 'google.protobuf.BytesValue'"),
        ("parts", packed_tensor(AnyMessage()), "expected a message google.protobuf.BytesValue"),
    ],
)
def test_tensors_that_do_not_fit(name: str, value: Any, expected: str) -> None:
    with pytest.raises(SpaceError, match=expected) as caught:
        written(action_side("All"), "All", {name: value})
    assert caught.value.root == name


def test_bounds_of_an_enum() -> None:
    with pytest.raises(OutOfBoundsError, match="mood: expected at most 2, got 3"):
        written(action_side("All"), "All", {"mood": np.int32(3)})


def test_a_message_within_an_any_has_to_be_valid() -> None:
    tensor = pb.Tensor(shape=[1])
    tensor.protos.array.add(type_url="type.googleapis.com/kinds.Point", value=b"\xff")
    with pytest.raises(SpaceError, match=r"points: expected a valid message kinds\.Point"):
        written(action_side("All"), "All", {"points": tensor})


def test_one_element_for_very_many_is_refused() -> None:
    fits, too_many = (pb.Tensor(shape=[count]) for count in (MAX_FILLED, MAX_FILLED + 1))
    for tensor in (fits, too_many):
        tensor.doubles.array.append(1.5)
    assert len(written(action_side("All"), "All", {"doubles": fits}).doubles) == MAX_FILLED
    with pytest.raises(SpaceError, match=r"doubles.*shape: expected at most 65536 elements"):
        written(action_side("All"), "All", {"doubles": too_many})


# oneof, presence


def test_one_arm_of_a_oneof_can_be_chosen() -> None:
    side = action_side("Choice")
    assert list(specs_of(side)) == ["number", "point.x", "point.y", "pass", "beside"]
    chosen = written(side, "Choice", {"number": np.int32(0), "beside": np.int32(2)})
    assert (chosen.WhichOneof("choice"), chosen.beside) == ("number", 2)
    assert written(side, "Choice", {"point.x": np.float32(0)}).WhichOneof("choice") == "point"
    assert written(side, "Choice", {"pass": np.bool_(True)}).WhichOneof("choice") == "pass"
    assert written(side, "Choice", {"pass": np.bool_(False)}).WhichOneof("choice") is None
    with pytest.raises(SpaceError, match="expected actions of one of 'number' and 'point', which exclude each other"):
        written(side, "Choice", {"number": np.int32(1), "point.y": np.float32(1)})


def test_arms_that_are_not_set_have_defaults() -> None:
    found = seen(observation_side("Choice"), kind("Choice")(number=4))
    assert found == {"number": 4, "point.x": 0, "point.y": 0, "pass": False, "beside": 0}
    message = kind("Choice")()
    getattr(message, "pass").SetInParent()
    assert seen(observation_side("Choice"), message)["pass"]


def test_presence() -> None:
    side = observation_side("Optional", presence=True)
    absent, there = (f"{name}_present" for name in ("maybe", "point"))
    assert list(specs_of(side)) == ["maybe", absent, "point.x", "point.y", there, "nothing", "always"]
    found = seen(side, kind("Optional")(maybe=0))
    assert (found["maybe"], found[absent], found[there]) == (0, True, False)
    assert list(specs_of(FieldsSide(kind("Optional"), {}, is_action=True, presence=True))) == [
        "maybe",
        "point.x",
        "point.y",
        "nothing",
        "always",
    ]
    assert written(action_side("Optional"), "Optional", {"maybe": np.int32(0)}).HasField("maybe")


# Annotations


def test_shapes_and_bounds() -> None:
    notes = {
        "doubles": FieldAnnotation(shape=(2, 3), minimum=-1, maximum=1),
        "some_bytes": FieldAnnotation(shape=(2, 2), dtype="float32"),
        "a_float": FieldAnnotation(minimum=0.0),
    }
    side = action_side("All", notes)
    values = np.linspace(-1, 1, 6).reshape(2, 3)
    assert written(side, "All", {"doubles": values}).doubles == values.ravel().tolist()
    picture = np.array([[1, 2], [3, 4]], np.float32)
    message = written(side, "All", {"some_bytes": picture})
    assert message.some_bytes == picture.astype("<f4").tobytes()
    reading = observation_side("All", notes)
    assert (seen(reading, message)["some_bytes"] == picture).all()
    assert (seen(reading, message)["doubles"] == np.zeros((2, 3))).all()  # nothing is zeros
    with pytest.raises(OutOfBoundsError, match=r"doubles\[0\]\[1\]: expected at most 1.0, got 2.0"):
        written(side, "All", {"doubles": np.array([[0, 2, 0], [0, 0, 0.0]])})
    with pytest.raises(OutOfBoundsError, match="a_float"):
        written(side, "All", {"a_float": np.float32(-1)})
    with pytest.raises(SpaceError, match=r"doubles: expected the shape \[2, 3\], got 5 elements"):
        seen(reading, kind("All")(doubles=[0] * 5))
    with pytest.raises(SpaceError, match="some_bytes: expected elements of 4 bytes, got 3 bytes"):
        seen(reading, kind("All")(some_bytes=b"abc"))


def test_nothing_is_zeros_within_bounds() -> None:
    notes = {"doubles": FieldAnnotation(shape=(2,), minimum=3)}
    assert seen(observation_side("All", notes), kind("All")())["doubles"].tolist() == [3.0, 3.0]
    texts = {"strings": FieldAnnotation(shape=(2,)), "bools": FieldAnnotation(shape=(1,))}
    found = seen(observation_side("All", texts), kind("All")())
    assert (found["strings"].tolist(), found["bools"].tolist()) == (["", ""], [False])


def test_narrower_types() -> None:
    notes = {name: FieldAnnotation(dtype="uint8") for name in ("an_int32", "longs")}
    assert written(action_side("All", notes), "All", {"an_int32": np.uint8(200)}).an_int32 == 200
    side = observation_side("All", notes)
    found = seen(side, kind("All")(an_int32=200, longs=[1, 255]))
    assert (found["an_int32"].dtype, found["longs"].tolist()) == (np.uint8, [1, 255])
    with pytest.raises(SpaceError, match="an_int32: expected values of the type uint8, got 256"):
        seen(side, kind("All")(an_int32=256))
    with pytest.raises(SpaceError, match="longs: expected values of the type uint8, got -1"):
        seen(side, kind("All")(longs=[1, -1]))


@pytest.mark.parametrize(
    "note", [FieldAnnotation(minimum=-5, maximum=9), FieldAnnotation(dtype="int8"), FieldAnnotation(maximum=9)]
)
@pytest.mark.parametrize("name", ["mood", "gap"])
def test_an_enum_has_no_other_numbers_whatever_its_annotation_is(name: str, note: FieldAnnotation) -> None:
    side = action_side("All", {name: note})
    spec = specs_of(side)[name]
    assert getattr(written(side, "All", {name: spec.type.dtype.type(0)}), name) == 0
    with pytest.raises(SpaceError, match=f"{name}: expected (one of .*; got 7|at most 2, got 7)"):
        written(side, "All", {name: spec.type.dtype.type(7)})


def test_wider_types_hold_what_the_field_does_not() -> None:
    side = action_side("All", {"a_uint32": FieldAnnotation(dtype="int64")})
    assert written(side, "All", {"a_uint32": np.int64(7)}).a_uint32 == 7
    with pytest.raises(SpaceError, match="a_uint32: expected what the field can hold"):
        written(side, "All", {"a_uint32": np.int64(-7)})


def test_skipped_fields() -> None:
    notes = {"point": FieldAnnotation(skip=True), "number": FieldAnnotation(skip=True)}
    assert list(specs_of(action_side("Choice", notes))) == ["pass", "beside"]


@pytest.mark.parametrize(
    ("field", "note", "expected"),
    [
        ("nowhere", FieldAnnotation(), "nowhere: kinds.All has no such field"),
        ("point", FieldAnnotation(minimum=1), "point: expected annotations of its fields: kinds.Point is a message"),
        ("points", FieldAnnotation(shape=(2,)), "points: expected no shape"),
        ("parts", FieldAnnotation(shape=(2,)), "parts: expected no shape"),
        ("an_int32", FieldAnnotation(shape=(2,)), "an_int32: shape: expected none"),
        ("an_int32", FieldAnnotation(dtype="float32"), "an_int32: dtype: expected one of int8"),
        ("a_string", FieldAnnotation(dtype="uint8"), "a_string: dtype: expected one of str"),
        ("a_string", FieldAnnotation(minimum=1), "a_string: min: expected none"),
        ("doubles", FieldAnnotation(shape=(-1, -1)), "doubles: shape: expected at most one negative"),
        ("doubles", FieldAnnotation(minimum=2, maximum=1), "doubles: min: expected no value above"),
        ("doubles", FieldAnnotation(shape=(2**16, 2**16)), "doubles: shape: expected at most 67108864 elements"),
        ("some_bytes", FieldAnnotation(shape=(-1, 2**30)), "some_bytes: shape: expected at most 67108864 elements"),
        ("some_bytes", FieldAnnotation(dtype="str"), "some_bytes: dtype: expected numbers"),
        ("strings", FieldAnnotation(shape=(2, 2)), "strings: shape: expected one dimension"),
    ],
)
def test_annotations_that_make_no_sense(field: str, note: FieldAnnotation, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=expected):
        action_side("All", {field: note})


def test_arrays_of_the_lab() -> None:
    notes = {"value": FieldAnnotation(dtype="float32", shape=(2, 2), minimum=-1, maximum=1)}
    side = action_side("LabAction", notes)
    assert list(specs_of(side)) == ["value"]
    array = np.array([[0, 1], [-1, 0.5]], np.float32)
    message = written(side, "LabAction", {"value": array})
    assert (decode_array(message.value) == array).all()
    observing = observation_side("LabObservation", notes)
    assert list(specs_of(observing)) == ["value", "active", "alive", "rendered_frame"]
    content = kind("LabObservation").FromString(
        b"\x0a" + bytes([encode_array(array).ByteSize()]) + encode_array(array).SerializeToString()
    )
    assert (seen(observing, content)["value"] == array).all()
    assert (seen(observing, kind("LabObservation")())["value"] == 0).all()
    other = kind("LabObservation")()
    other.value.ParseFromString(encode_array(np.zeros(4, np.float32)).SerializeToString())
    with pytest.raises(SpaceError, match=r"value: expected 2 dimensions, got the shape \[4\]"):
        seen(observing, other)


def test_null_characters_at_the_end_of_strings() -> None:
    message = kind("All")(strings=["a\0", "\0"], a_string="b\0")
    tensors = dict(observation_side("All").read(message.SerializeToString(), range(len(observation_side("All").specs))))
    again = kind("All").FromString(action_side("All").write(tensors))
    assert (list(again.strings), again.a_string) == (["a\0", "\0"], "b\0")
