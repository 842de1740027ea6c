"""The JSON conventions of the reference's web proxy, and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Value
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import (
    ActorInitialInput,
    ActorParams,
    Reward,
    RewardSource,
    SerializedMessage,
    TrialParams,
    TrialState,
)
from trio_cogment.api.orchestrator_pb2 import TrialInfo
from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.gateways.rest.messages import (
    any_from_json,
    any_to_json,
    dumps,
    from_json,
    loads,
    payload_from_json,
    payload_to_json,
    to_json,
)

TYPES: dict[str, type[Message]] = {kind.DESCRIPTOR.full_name: kind for kind in (Reward, StringValue, TrialParams)}


def test_fields_without_a_value_are_there() -> None:
    assert to_json(Reward()) == {"tick_id": "0", "receiver_name": "", "value": 0.0, "sources": []}
    assert to_json(ActorParams(name="a")) == {
        "name": "a",
        "actor_class": "",
        "endpoint": "",
        "implementation": "",
        "config": None,
        "initial_connection_timeout": 0.0,
        "response_timeout": 0.0,
        "optional": False,
        "default_action": None,
    }


def test_fields_that_the_reference_has_not_are_there_only_with_a_value() -> None:
    assert to_json(ActorParams(observe_every=3))["observe_every"] == 3
    assert "hold_action" not in to_json(ActorParams(observe_every=3))
    info = TrialInfo(trial_id="t")
    assert "tick_rate" not in to_json(info)
    info.tick_rate.hz = 60
    assert to_json(info)["tick_rate"]["hz"] == 60.0


def test_integers_of_64_bits_are_texts_enums_names_and_bytes_base64() -> None:
    info = TrialInfo(trial_id="t", state=TrialState.RUNNING, tick_id=2**63, properties={"a": "b"})
    found = to_json(info)
    assert (found["state"], found["tick_id"], found["properties"]) == ("RUNNING", str(2**63), {"a": "b"})
    assert to_json(SerializedMessage(content=b"\xff")) == {"content": "/w=="}


def test_nulls_are_in_messages_within_messages_too() -> None:
    params = TrialParams(actors=[ActorParams(name="a", config=SerializedMessage(content=b"x"))])
    found = to_json(params)
    assert found["environment"] is None
    assert found["actors"][0]["default_action"] is None
    assert found["actors"][0]["config"] == {"content": "eA=="}
    assert to_json(Reward(sources=[RewardSource(sender_name="s")]))["sources"][0]["user_data"] is None


def test_what_an_unknown_any_holds_cannot_be_shown() -> None:
    packed = AnyMessage(type_url="type.googleapis.com/nobody.Knows", value=b"\x00\xff")
    with pytest.raises(RemoteProtocolError, match=r"RewardSource cannot be written"):
        to_json(RewardSource(user_data=packed))
    assert any_to_json(packed, TYPES) == {"@type": packed.type_url, "value": "AP8="}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"nothing": 1}, "nothing"),
        ({"tick_id": "x"}, "tick_id"),
        ({"value": []}, "value"),
        ([], "expected an object"),
        (None, "expected an object"),
        ("x", "expected an object"),
        ({"sources": {}}, "sources"),
    ],
)
def test_what_is_no_such_message(value: Any, text: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^here: .*{text}"):
        from_json(value, Reward, "here")


def test_payloads_without_a_type_are_base64() -> None:
    assert payload_to_json(b"\xff\x00") == "/wA="
    assert payload_from_json("/wA=", None, "action") == b"\xff\x00"
    values: list[Any] = ["!", "AAA", 3, None, {}]
    for bad in values:
        with pytest.raises(InvalidArgumentError, match=r"^action: "):
            payload_from_json(bad, None, "action")


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"NaN", b'{"a": Infinity}', b"[" * 100_000])
def test_what_is_no_json(body: bytes) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^body: expected JSON"):
        loads(body)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text().filter(lambda name: name != "@type"), inner),
    max_leaves=20,
)


@given(JSON)
def test_any_json_goes_and_comes_back(value: Any) -> None:
    packed = AnyMessage()
    packed.Pack(any_from_json(value, TYPES, "payload"))
    assert packed.Is(Value.DESCRIPTOR)
    assert loads(dumps(any_to_json(packed, TYPES))) == value


@pytest.mark.parametrize(
    "value",
    [
        {"@type": "type.googleapis.com/cogmentAPI.Reward", "tick_id": "5", "receiver_name": "a", "value": 2.0},
        {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "x"},
    ],
)
def test_messages_of_the_project_go_and_come_back(value: dict[str, Any]) -> None:
    packed = AnyMessage()
    packed.Pack(any_from_json(value, TYPES, "payload"))
    assert value.items() <= any_to_json(packed, TYPES).items()


@pytest.mark.parametrize("url", ["type.googleapis.com/nobody.Knows", "", 5, None])
def test_a_type_that_the_project_does_not_have(url: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"^payload: @type: expected type"):
        any_from_json({"@type": url}, TYPES, "payload")


@given(st.binary())
def test_no_body_breaks_the_reader(body: bytes) -> None:
    try:
        json.loads(body, parse_constant=float)
    except (ValueError, RecursionError):
        with pytest.raises(InvalidArgumentError, match=r"^body: expected JSON"):
            loads(body)


@given(JSON)
def test_no_value_breaks_a_message(value: Any) -> None:
    for kind in (TrialParams, ActorInitialInput):
        try:
            assert isinstance(from_json(value, kind, "x"), kind)
        except InvalidArgumentError:
            pass
