"""Values of fields as text: integers, and values of enums by name or number."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from trio_cogment.sdk.spec._message_fields import _enum, _integer
from trio_cogment.sdk.spec.fields import Integers

RANGES = [
    (Integers(32, signed=True), -(2**31), 2**31 - 1),
    (Integers(64, signed=True), -(2**63), 2**63 - 1),
    (Integers(32, signed=False), 0, 2**32 - 1),
    (Integers(64, signed=False), 0, 2**64 - 1),
]
ENUM = FieldDescriptorProto.DESCRIPTOR.enum_types_by_name["Label"]


@pytest.mark.parametrize(("integers", "least", "most"), RANGES)
def test_integers_as_far_as_a_field_has_them(integers: Integers, least: int, most: int) -> None:
    read = _integer(integers)
    for number in (least, 0, 1, most):
        assert read(str(number)) == number
    assert read("+1") == 1
    for wrong in (str(least - 1), str(most + 1), "", "-", "1.0", "1e3", "0x1", " 1", "one"):
        with pytest.raises(ValueError, match=f"^a decimal integer from {least} to {most}$"):
            read(wrong)


@pytest.mark.parametrize(("integers", "least", "most"), RANGES)
def test_an_integer_is_not_longer_than_the_longest(integers: Integers, least: int, most: int) -> None:
    """Whatever its digits are: long ones take long to read."""
    read = _integer(integers)
    room = len(str(most)) + 1
    assert read("7".zfill(room)) == 7
    with pytest.raises(ValueError, match="a decimal integer"):
        read("7".zfill(room + 1))
    with pytest.raises(ValueError, match="a decimal integer"):
        read("9" * 100_000)


def test_values_of_enums_have_names_and_numbers() -> None:
    for text, number in (("LABEL_REPEATED", 3), ("3", 3), ("+1", 1), ("3".zfill(11), 3)):
        assert _enum(text, ENUM) == number
    for wrong in ("", "label_repeated", "4", "0", "-1", "3.0", "3".zfill(12), "9" * 100_000):
        with pytest.raises(ValueError, match=r"^one of LABEL_OPTIONAL, "):
            _enum(wrong, ENUM)
