"""Parts of a seat: what a bot is told, and what people read of messages."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import wrappers_pb2
from google.protobuf.any_pb2 import Any as AnyMessage

from trio_cogment.api.common_pb2 import ActorInitialInput, SerializedMessage
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.seat_parts import SeatSettings, part_of, text_of
from trio_cogment.seats.presence import Outcome, SeatRules


@pytest.mark.parametrize("config", [None, b"\x08\x07", wrappers_pb2.Int64Value(value=7)])
def test_a_bot_is_told_what_the_person_was(config: Any) -> None:
    session: Any = SimpleNamespace(
        name="ann", actor_class="player", implementation="people", environment_name="env", config=config
    )
    expected = ActorInitialInput(actor_name="ann", actor_class="player", impl_name="people", env_name="env")
    if config is not None:
        expected.config.CopyFrom(SerializedMessage(content=b"\x08\x07"))
    assert part_of(session) == expected


def test_a_text_is_read_and_of_anything_else_what_it_is() -> None:
    payload = AnyMessage()
    payload.Pack(wrappers_pb2.StringValue(value="hello"))
    assert text_of(payload) == "hello"
    payload.value = b"\xff"
    assert text_of(payload) == "(google.protobuf.StringValue, 1 bytes)"
    payload.Pack(wrappers_pb2.Int64Value(value=300))
    assert text_of(payload) == "(google.protobuf.Int64Value, 3 bytes)"


@pytest.mark.parametrize(
    ("outcome", "given", "missing"),
    [(Outcome.DEFAULT, "default", "bot"), (Outcome.BOT, "bot", "default")],
)
def test_what_acts_for_somebody_has_to_be_there(outcome: Outcome, given: str, missing: str) -> None:
    rules = SeatRules(outcome=outcome)
    with pytest.raises(InvalidArgumentError, match=f"^{given}: expected "):
        SeatSettings(rules=rules, **{missing: object()})  # type: ignore[arg-type]  # it is only there
    assert SeatSettings(rules=rules, **{given: object()}).rules is rules  # type: ignore[arg-type]  # likewise
    assert SeatSettings(rules=SeatRules(outcome=Outcome.LOSS)).bot is None


def test_what_a_seat_has_unless_it_is_said() -> None:
    found = SeatSettings(rules=SeatRules(outcome=Outcome.LOSS))
    assert (found.default, found.bot, found.title, found.labels, found.receivers) == (None, None, "", (), ())
    assert (found.again, found.renderer) == (False, False)
