"""Facts about fields of messages, against what protobuf takes."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.struct_pb2 import Struct, Value

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import RetrieveTrialsRequest
from trio_cogment.sdk.spec.fields import (
    Integers,
    by_type,
    enum_name,
    enum_numbers,
    is_entry,
    is_map,
    is_well_known,
    is_wrapper,
    other_choice,
)


def named(descriptor: Any, name: str) -> Any:
    return descriptor.fields_by_name[name]


def test_every_type_has_its_own() -> None:
    table = by_type(text="text", content="bytes", boolean="bool", number=str, integer=lambda found: f"int{found.bits}")
    types = {kind for name, kind in vars(FieldDescriptor).items() if name.startswith("TYPE_")}
    others = {FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP, FieldDescriptor.TYPE_ENUM}
    assert table.keys() == types - others
    assert table[FieldDescriptor.TYPE_FLOAT] == "32"
    assert table[FieldDescriptor.TYPE_FIXED64] == "int64"


@pytest.mark.parametrize("kind", [f"{sign}Int{bits}Value" for sign in ("", "U") for bits in (32, 64)])
def test_the_limits_of_integers_are_those_of_protobuf(kind: str) -> None:
    message = getattr(wrappers_pb2, kind)
    found: dict[int, Integers | None] = by_type(
        text=None, content=None, boolean=None, number=lambda _: None, integer=lambda integers: integers
    )
    integers = found[named(message.DESCRIPTOR, "value").type]
    assert integers is not None
    assert message(value=integers.least).value == integers.least
    assert message(value=integers.most).value == integers.most
    for outside in (integers.least - 1, integers.most + 1):
        with pytest.raises(ValueError, match="out of range"):
            message(value=outside)


def test_maps_wrappers_and_what_comes_with_protobuf() -> None:
    assert is_map(named(RetrieveTrialsRequest.DESCRIPTOR, "properties"))
    assert not is_map(named(RetrieveTrialsRequest.DESCRIPTOR, "trial_ids"))
    assert not is_entry(RetrieveTrialsRequest.DESCRIPTOR)
    assert is_wrapper(wrappers_pb2.BoolValue.DESCRIPTOR)
    assert not is_wrapper(Value.DESCRIPTOR)
    assert is_well_known(Struct.DESCRIPTOR)
    assert not is_well_known(RetrieveTrialsRequest.DESCRIPTOR)


def test_enums_by_name_and_number() -> None:
    assert enum_numbers(TrialState.DESCRIPTOR) == dict(TrialState.items())
    assert enum_name(TrialState.DESCRIPTOR, TrialState.ENDED) == "ENDED"
    assert enum_name(TrialState.DESCRIPTOR, 99) is None


def test_what_excludes_another_field() -> None:
    value = Value(number_value=1)
    assert other_choice(value, named(Value.DESCRIPTOR, "string_value")) == "number_value"
    assert other_choice(value, named(Value.DESCRIPTOR, "number_value")) is None
    assert other_choice(Value(), named(Value.DESCRIPTOR, "number_value")) is None
    request = RetrieveTrialsRequest()
    assert other_choice(request, named(request.DESCRIPTOR, "trial_ids")) is None
