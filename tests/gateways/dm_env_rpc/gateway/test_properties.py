"""The properties of a gateway: what is there before and after JoinWorld, values, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import Int32Value, StringValue

from trio_cogment._version import __version__
from trio_cogment.api.common_pb2 import Message, Reward, RewardSource
from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2, properties_pb2
from trio_cogment.base.errors import CogmentError, LocalProtocolError, StatusCode, status_of
from trio_cogment.gateways.dm_env_rpc.client.properties import Property, answered, packed, properties_of
from trio_cogment.gateways.dm_env_rpc.gateway.properties import _LONGEST_SHOWN, TABLE, Place, answer_extension
from trio_cogment.gateways.dm_env_rpc.gateway.records import PlayerRecord, Sending
from trio_cogment.spaces.tensors import decode_tensor, encode_tensor

WORLDS = {"one": ["anna"], "a.b": []}


def record(sending: Sending | None = None) -> PlayerRecord:
    actors = [("anna", "clerk"), ("ben.2", "buyer")]
    return PlayerRecord(
        actor_name="anna", actors=actors, environment_name="env", trial_id="one.3", state="RUNNING", sending=sending
    )


def joined(sending: Sending | None = None) -> Place:
    return Place(WORLDS, record(sending))


NOT_JOINED = Place(WORLDS)


def asked(place: Place, kind: str, key: str, value: Any = None) -> Any:
    request = properties_pb2.PropertyRequest()
    content = getattr(request, kind)
    content.key = key
    content.SetInParent()
    if value is not None:
        content.value.CopyFrom(value if isinstance(value, dm_env_rpc_pb2.Tensor) else encode_tensor(value))
    return answered("the gateway", kind, answer_extension(packed(request), place))


def read(place: Place, key: str) -> Any:
    return decode_tensor(asked(place, "read_property", key).value)


def refusal(place: Place, kind: str, key: str, value: Any = None) -> tuple[StatusCode, str]:
    with pytest.raises(CogmentError) as caught:
        asked(place, kind, key, value)
    return status_of(caught.value)


def everything(place: Place, key: str = "") -> Iterator[Property]:
    for each in properties_of("the gateway", asked(place, "list_property", key)):
        yield each
        if each.listable:
            yield from everything(place, each.key)


def all_names(place: Place) -> list[str]:
    return [each.key for each in everything(place)]


def test_what_is_there_before_and_after_joining() -> None:
    before = ["server", "server.version", "worlds", "worlds.one", "worlds.a.b"]
    assert all_names(NOT_JOINED) == before
    assert all_names(joined()) == [
        *before,
        "trial",
        *("trial.id", "trial.state", "trial.tick"),
        *("trial.actors", "trial.actors.anna", "trial.actors.ben.2", "trial.env", "trial.last_error"),
        *("reward", "reward.sources", "reward.late"),
        *("messages", "messages.in", "messages.out", "messages.out.env", "messages.out.ben.2"),
        *("feedback", "feedback.ben.2"),
    ]


@pytest.mark.parametrize("listed", list(everything(joined())), ids=lambda each: each.key)
def test_each_property_is_as_it_is_listed(listed: Property) -> None:
    place = joined()
    assert listed.description.endswith(".")
    if listed.readable:
        value = read(place, listed.key)
        assert listed.spec is not None
        assert value.ndim == len(listed.spec.shape)
        assert listed.spec.type.name == ("str" if value.dtype.kind == "U" else value.dtype.name)
    else:
        assert refusal(place, "read_property", listed.key)[0] is StatusCode.PERMISSION_DENIED
    if not listed.writable:
        assert refusal(place, "write_property", listed.key, 1)[0] is StatusCode.PERMISSION_DENIED
    if not listed.listable:
        assert refusal(place, "list_property", listed.key)[0] is StatusCode.INVALID_ARGUMENT
    assert (listed.spec is not None) == (listed.readable or listed.writable)


def test_values() -> None:
    place = joined()
    assert read(NOT_JOINED, "server.version") == __version__
    assert read(NOT_JOINED, "worlds").tolist() == ["one", "a.b"]
    assert read(NOT_JOINED, "worlds.one").tolist() == ["anna"]
    assert read(NOT_JOINED, "worlds.a.b").tolist() == []
    assert (read(place, "trial.id"), read(place, "trial.state")) == ("one.3", "RUNNING")
    assert read(place, "trial.actors").tolist() == ["anna", "ben.2"]
    assert (read(place, "trial.actors.ben.2"), read(place, "trial.env")) == ("buyer", "env")
    assert read(place, "trial.last_error") == ""


@pytest.mark.parametrize("key", ["trial.id", "messages.in", "nothing", "worlds.two", "worlds.*", "feedback.ben.2", ""])
def test_properties_that_are_not_there(key: str) -> None:
    code, text = refusal(NOT_JOINED, "read_property", key)
    assert (code, repr(key) in text) == (StatusCode.NOT_FOUND, True)
    assert ("after JoinWorld" in text) == (key in TABLE and key != "worlds.*")


@pytest.mark.parametrize("key", ["feedback.anna", "feedback.env", "messages.out.anna", "messages.out.*", "x" * 1000])
def test_nobody_writes_to_oneself_or_to_strangers(key: str) -> None:
    code, text = refusal(joined(), "write_property", key, 1.0)
    assert code is StatusCode.NOT_FOUND
    assert len(text) < 200


@pytest.mark.parametrize("kind", ["read_property", "write_property"])
def test_a_name_is_shown_whole_up_to_a_length(kind: str) -> None:
    for length in (_LONGEST_SHOWN - 1, _LONGEST_SHOWN):
        assert repr("x" * length) in refusal(joined(), kind, "x" * length, 1.0 if kind == "write_property" else None)[1]
    longer = refusal(joined(), kind, "x" * (_LONGEST_SHOWN + 1), 1.0 if kind == "write_property" else None)[1]
    assert repr("x" * _LONGEST_SHOWN + "...") in longer


def test_rewards_of_the_last_step() -> None:
    place = joined()
    slot = place.joined
    slot.tick = 5
    slot.begin_step()
    slot.add_reward(Reward(tick_id=4, value=1.0, sources=[RewardSource(sender_name="env", value=1.0)]))
    slot.add_reward(Reward(tick_id=5, value=2.0, sources=[RewardSource(sender_name="ben.2", value=2.0)]))
    found = []
    for each in read(place, "reward.sources"):
        found.append(RewardSource())
        assert each.Unpack(found[-1])
    assert [source.sender_name for source in found] == ["env", "ben.2"]
    assert (read(place, "reward.late"), read(place, "trial.tick")) == (1, 5)
    slot.begin_step()
    assert read(place, "reward.sources").size == 0
    slot.begin("one.4")
    assert (read(place, "reward.late"), read(place, "trial.id")) == (0, "one.4")


def test_messages_are_read_once_and_bounded() -> None:
    place = joined()
    place.joined.max_messages = 3
    for number in range(5):
        payload = AnyMessage()
        payload.Pack(Int32Value(value=number))
        place.joined.add_message(Message(sender_name="env", payload=payload))
    found = []
    for each in read(place, "messages.in"):
        message = Message()
        assert each.Unpack(message)
        value = Int32Value()
        assert message.payload.Unpack(value)
        found.append(value.value)
    assert found == [2, 3, 4]
    assert read(place, "messages.in").size == 0


def test_messages_and_rewards_for_others() -> None:
    sent: list[Any] = []
    sending = Sending(message=lambda *what: sent.append(what), reward=lambda *what: sent.append(what))
    place = joined(sending)
    payload = AnyMessage(type_url="a/b", value=b"c")
    asked(place, "write_property", "messages.out.env", np.array(payload, object))
    asked(place, "write_property", "messages.out.ben.2", "hello")
    asked(place, "write_property", "feedback.ben.2", 2)
    text = AnyMessage()
    text.Pack(StringValue(value="hello"))
    assert sent == [("env", payload), ("ben.2", text), ("ben.2", 2.0)]


@pytest.mark.parametrize(("key", "value"), [("messages.out.env", "x"), ("feedback.ben.2", 1.0)])
def test_without_a_trial_nothing_is_sent(key: str, value: Any) -> None:
    code, text = refusal(joined(), "write_property", key, value)
    assert (code, "there is no trial" in text) == (StatusCode.FAILED_PRECONDITION, True)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("messages.out.env", 1, "property 'messages.out.env': expected a message in a scalar .*, got 1"),
        ("messages.out.env", ["a"], r"expected a message in a scalar .*, got an array of strings with the shape \[1\]"),
        ("feedback.ben.2", "x", "property 'feedback.ben.2': expected a number, got 'x'"),
        ("feedback.ben.2", [1.0], "expected a number, got an array of float64"),
        ("feedback.ben.2", dm_env_rpc_pb2.Tensor(), "property 'feedback.ben.2': expected elements"),
    ],
)
def test_values_that_make_no_sense(key: str, value: Any, expected: str) -> None:
    never = Sending(message=lambda *_: pytest.fail("sent"), reward=lambda *_: pytest.fail("sent"))
    code, text = refusal(joined(never), "write_property", key, value)
    assert code is StatusCode.INVALID_ARGUMENT
    assert re.search(expected, text), text


def extension_refusal(extension: AnyMessage) -> tuple[StatusCode, str]:
    with pytest.raises(CogmentError) as caught:
        answer_extension(extension, NOT_JOINED)
    return status_of(caught.value)


def test_other_extensions() -> None:
    other = AnyMessage()
    other.Pack(StringValue(value="x"))
    code, text = extension_refusal(other)
    assert (code, "'google.protobuf.StringValue'" in text) == (StatusCode.UNIMPLEMENTED, True)
    empty = packed(properties_pb2.PropertyRequest())
    assert extension_refusal(empty)[0] is StatusCode.INVALID_ARGUMENT
    broken = AnyMessage(type_url=empty.type_url, value=b"\xff")
    assert extension_refusal(broken)[0] is StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize("key", ["messages.out.env", "feedback.ben.2"])
def test_a_trial_that_has_just_ended(key: str) -> None:
    def over(*_: Any) -> None:
        raise LocalProtocolError("the trial is over")

    value: Any = "hello" if key.startswith("messages") else 1.0
    code, text = refusal(joined(Sending(message=over, reward=over)), "write_property", key, value)
    assert (code, "there is no trial" in text) == (StatusCode.FAILED_PRECONDITION, True)
