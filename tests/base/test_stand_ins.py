"""Notes of who acted for a person."""

from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.wrappers_pb2 import Int64Value, StringValue

from trio_cogment.base.stand_ins import StandIn, stand_in_note, stand_in_of


def packed(message: Message) -> AnyMessage:
    found = AnyMessage()
    found.Pack(message)
    return found


@pytest.mark.parametrize("stand_in", StandIn)
def test_a_note_is_found_among_others(stand_in: StandIn) -> None:
    others = [packed(StringValue(value="stand-in: me")), packed(Int64Value(value=1)), AnyMessage()]
    broken = packed(StringValue(value="x"))
    broken.value = b"\xff"
    assert stand_in_of([*others, broken, packed(stand_in_note(stand_in))]) is stand_in
    assert stand_in_of([*others, broken]) is None
