"""Forms of messages, field by field, and the messages that answers are."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, wrappers_pb2
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.forms import MAX_OPTIONS, message_form, message_of, options

WHOLE = {
    "int32": (-(2**31), 2**31 - 1),
    "sint32": (-(2**31), 2**31 - 1),
    "sfixed32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "sint64": (-(2**63), 2**63 - 1),
    "sfixed64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "fixed32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
    "fixed64": (0, 2**64 - 1),
}


@cache
def described(name: str) -> Descriptor:
    """Return a message with a field of each type, `All`; or one with a single enum, `Turn`."""
    file = descriptor_pb2.FileDescriptorProto(name="forms.proto", package="forms", syntax="proto3")
    file.dependency.append(struct_pb2.DESCRIPTOR.name)
    for enum, values in (
        ("Color", ["COLOR_RED", "COLOR_DARK_BLUE"]),
        ("Only", ["ONLY_ONE"]),
        ("Way", ["LEFT", "RIGHT"]),
        ("Step", ["STEP", "STEP_UP"]),
    ):
        found = file.enum_type.add(name=enum)
        for number, value in enumerate(values):
            found.value.add(name=value, number=number)
    everything = file.message_type.add(name="All")

    def add(name: str, kind: int, **more: Any) -> Any:
        return everything.field.add(name=name, number=len(everything.field) + 1, type=kind, **{"label": 1, **more})

    for each in (*WHOLE, "float", "double", "bool", "string", "bytes"):
        add(each, Field.Type.Value(f"TYPE_{each.upper()}"))
    add("color", Field.TYPE_ENUM, type_name=".forms.Color")
    add("only", Field.TYPE_ENUM, type_name=".forms.Only")
    add("many", Field.TYPE_BOOL, label=Field.LABEL_REPEATED)
    add("inner", Field.TYPE_MESSAGE, type_name=".forms.All")
    add("free", Field.TYPE_MESSAGE, type_name=".google.protobuf.Struct")
    everything.oneof_decl.add(name="choice")
    everything.oneof_decl.add(name="_maybe")
    add("this", Field.TYPE_BOOL, oneof_index=0)
    add("that", Field.TYPE_BOOL, oneof_index=0)
    add("maybe", Field.TYPE_BOOL, oneof_index=1, proto3_optional=True)
    turn = file.message_type.add(name="Turn")
    turn.field.add(name="way", number=1, type=Field.TYPE_ENUM, label=1, type_name=".forms.Way")
    walk = file.message_type.add(name="Walk")
    walk.field.add(name="step", number=1, type=Field.TYPE_ENUM, label=1, type_name=".forms.Step")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindMessageTypeByName(f"forms.{name}")


def fields(form: dict[str, Any]) -> dict[str, dict[str, Any]]:
    assert form["kind"] == "object"
    return {field["name"]: field for field in form["fields"]}


def option(value: Any, label: str, *keys: str) -> dict[str, Any]:
    return {"value": value, "label": label, "keys": list(keys)}


def test_the_form_of_each_field() -> None:
    text = {"kind": "text", "least": 0, "most": 65536, "characters": None, "bytes": False}
    number = {"kind": "number", "low": None, "high": None, "integer": False, "initial": 0}
    found = fields(message_form(described("All")))
    inner = found.pop("inner")
    assert inner.pop("form")["kind"] == "object"
    assert inner == {"name": "inner", "optional": True}
    expected: dict[str, Any] = {
        **{
            name: {"kind": "number", "low": low, "high": high, "integer": True, "initial": 0}
            for name, (low, high) in WHOLE.items()
        },
        "float": number,
        "double": number,
        "bool": {"kind": "switch"},
        "string": text,
        "bytes": {**text, "bytes": True},
        "color": {
            "kind": "choice",
            "options": [option("COLOR_RED", "red", "1"), option("COLOR_DARK_BLUE", "dark blue", "2")],
        },
        "only": {"kind": "choice", "options": [option("ONLY_ONE", "only_one", "1")]},
        "many": {"kind": "sequence", "form": {"kind": "switch"}},
        "free": {"kind": "json", "about": "google.protobuf.Struct"},
        **{name: {"kind": "switch"} for name in ("this", "that", "maybe")},
    }
    assert {name: field["form"] for name, field in found.items()} == expected
    assert {name for name, field in found.items() if field["optional"]} == {"free", "this", "that", "maybe"}
    assert {name: field["alternatives"] for name, field in found.items() if "alternatives" in field} == {
        "this": "choice",
        "that": "choice",
    }


def test_messages_within_messages_are_forms_down_to_a_depth() -> None:
    form, depth = message_form(described("All")), 0
    while form["kind"] == "object":
        form, depth = fields(form)["inner"]["form"], depth + 1
    assert (form, depth) == ({"kind": "json", "about": "forms.All"}, 7)


def test_labels_are_for_the_only_field() -> None:
    labels = ("turn left", "turn right")
    [way] = fields(message_form(described("Turn"), labels)).values()
    assert [each["label"] for each in way["form"]["options"]] == list(labels)
    [way] = fields(message_form(described("Turn"))).values()
    assert way["form"]["options"] == [
        option("LEFT", "left", "ArrowLeft", "1"),
        option("RIGHT", "right", "ArrowRight", "2"),
    ]
    of_many = fields(message_form(described("All"), labels))["color"]["form"]
    assert [each["label"] for each in of_many["options"]] == ["red", "dark blue"]


def test_a_value_that_has_the_name_of_all_of_them_keeps_it() -> None:
    [step] = fields(message_form(described("Walk"))).values()
    assert [each["label"] for each in step["form"]["options"]] == ["step", "step up"]


def test_keys_of_labels() -> None:
    names = ["left", "Right", " UP ", "down", "forward", "back", "fire", "jump", "shoot", "wait"]
    found = [each["keys"] for each in options(range(10), names)]
    assert found == [
        *(["ArrowLeft", "1"], ["ArrowRight", "2"], ["ArrowUp", "3"], ["ArrowDown", "4"]),
        # Each key is for one of them, the first.
        *(["5"], ["6"], ["Space", "7"], ["8"], ["9"], ["0"]),
    ]


def test_there_are_keys_for_the_first() -> None:
    found = [each["keys"] for each in options(range(MAX_OPTIONS), [])]
    assert found == [[key] for key in "1234567890qwertyuiopasdfghjklzxcvbnm"] + [[]] * (MAX_OPTIONS - 36)


def test_what_is_not_allowed_says_so() -> None:
    found = options(["a", "b"], ["first"], [False, True])
    assert found == [{**option("a", "first", "1"), "allowed": False}, option("b", "b", "2")]


# Answers


def test_an_answer_that_is_a_value_to_protobuf() -> None:
    found = message_of({"value": "9007199254740993"}, wrappers_pb2.Int64Value)
    assert found == wrappers_pb2.Int64Value(value=2**53 + 1)
    assert message_of({"value": {"a": 1}}, struct_pb2.Struct)["a"] == 1  # type: ignore[index]  # it is a Struct
    with pytest.raises(InvalidArgumentError, match=r"^action: "):
        message_of({"value": 1, "other": 2}, wrappers_pb2.Int64Value)


def test_a_message_of_ones_own_with_the_field_value() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="own.proto", package="own", syntax="proto3")
    file.message_type.add(name="Own").field.add(name="value", number=1, type=Field.TYPE_BOOL, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("own.Own"))
    assert message_of({"value": True}, kind) == kind(value=True)


def nested(depth: int) -> Any:
    answer: Any = {"bool": True}
    for _ in range(depth):
        answer = {"inner": answer}
    return answer


def test_answers_are_only_so_deep() -> None:
    kind = message_factory.GetMessageClass(described("All"))
    assert message_of(nested(30), kind)
    with pytest.raises(InvalidArgumentError, match=r"^action: Failed to parse inner field: "):
        message_of(nested(33), kind)


def test_reasons_are_short() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        message_of({"x" * 1000: 1}, message_factory.GetMessageClass(described("All")))
    assert len(str(caught.value)) == len("action: ") + 300
    with pytest.raises(InvalidArgumentError, match=r"^action: expected an object$"):
        message_of([], wrappers_pb2.StringValue)
