"""Entries of messages: counted at all levels, and only those that become objects."""

from __future__ import annotations

import pytest
from google.protobuf import struct_pb2
from google.protobuf.message import Message as AnyMessage

from trio_cogment.api.common_pb2 import Action, ActorParams, Message, Reward, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.orchestrator_pb2 import TrialListRequest
from trio_cogment.base.errors import StatusCode
from trio_cogment.rpc import _entries
from trio_cogment.rpc._entries import check_entries, has_entries
from trio_cogment.rpc._streams import BadMessageError


def sample(rewards: int, sources: int) -> DatalogSample:
    made = DatalogSample()
    for _ in range(rewards):
        reward = made.rewards.add()
        for _ in range(sources):
            reward.sources.add()
    return made


THREE = struct_pb2.ListValue(values=[struct_pb2.Value(bool_value=True)] * 3)


@pytest.mark.parametrize(
    ("message", "entries"),
    [
        (Action(content=b"x" * 100), 0),
        (TrialParams(max_steps=1), 0),
        (TrialListRequest(filter=[TrialState.ENDED] * 3), 3),
        (Reward(sources=sample(1, 7).rewards[0].sources), 7),
        (sample(3, 4), 3 + 3 * 4),
        (DatalogSample(observations=ObservationSet(observations=[b""] * 5, actors_map=[0] * 100)), 5),
        (struct_pb2.Struct(fields={"a": struct_pb2.Value(list_value=THREE)}), 4),
    ],
)
def test_entries_count_at_all_levels(message: AnyMessage, entries: int) -> None:
    check_entries(message, entries)
    if entries:
        with pytest.raises(BadMessageError, match=f"max_message_entries is {entries - 1}") as caught:
            check_entries(message, entries - 1)
        assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


def test_types_that_contain_themselves() -> None:
    assert has_entries(struct_pb2.Value.DESCRIPTOR)
    assert has_entries(DatalogSample.DESCRIPTOR)
    assert not has_entries(Action.DESCRIPTOR)


def test_what_has_only_messages_without_entries_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_entries, "_types", {})  # whoever has asked before
    assert not has_entries(Message.DESCRIPTOR)
    assert not has_entries(ActorParams.DESCRIPTOR)
    assert has_entries(Reward.DESCRIPTOR)
