"""Selection: the part of a stored sample that a reader gets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.datastore.harness import params_with, sample_of
from tests.servers.datastore.test_conversion import samples_drawn
from trio_cogment.api.common_pb2 import Message, Reward, RewardSource
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.trial_datastore_pb2 import (
    RetrieveSamplesRequest,
    StoredTrialActorSample,
    StoredTrialSample,
    StoredTrialSampleField,
)
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore._selection import Selection
from trio_cogment.servers.datastore._trial_service import check_sample

PARAMS = params_with("c0.ann.x", "c1.bob.y", "c0.ada.y")
FIELDS = ["observation", "action", "reward", "received_rewards", "sent_rewards", "received_messages", "sent_messages"]


def stored_of(sample: DatalogSample) -> StoredTrialSample:
    return TrialConverter("t", PARAMS).convert(sample)[0]


def full() -> StoredTrialSample:
    reward = Reward(receiver_name="*", sources=[RewardSource(sender_name="ann", value=1, confidence=1)])
    reward.sources[0].user_data.value = b"why"
    messages = [Message(sender_name=name, receiver_name="*") for name in ("ann", "bob", "ada")]
    for message in messages:
        message.payload.value = message.sender_name.encode()
    sample = sample_of(0, actors=3, rewards=[reward], messages=messages, default_actors=[1], unavailable_actors=[2])
    sample.info.special_events.append("something")
    return stored_of(sample)


def select(sample: StoredTrialSample, **request: Any) -> StoredTrialSample:
    selection = Selection(RetrieveSamplesRequest(**request))
    selected = StoredTrialSample()
    selected.CopyFrom(sample)
    selection.apply(selected, selection.actors(PARAMS))
    return selected


ACTORS: list[tuple[dict[str, list[str]], list[int]]] = [
    ({"actor_names": ["bob", "nobody"]}, [1]),
    ({"actor_classes": ["c0"]}, [0, 2]),
    ({"actor_implementations": ["y"]}, [1, 2]),
    ({"actor_classes": ["c0"], "actor_implementations": ["y"]}, [2]),
    ({"actor_names": ["ann"], "actor_classes": ["c0"], "actor_implementations": ["y"]}, []),
    ({"actor_names": ["nobody"]}, []),
]


@pytest.mark.parametrize(("request_", "actors"), ACTORS)
def test_actors(request_: dict[str, list[str]], actors: list[int]) -> None:
    before, after = full(), select(full(), **request_)
    assert [actor.actor for actor in after.actor_samples] == actors
    assert list(after.actor_samples) == [before.actor_samples[index] for index in actors]
    assert list(after.default_actors) == [index for index in (1,) if index in actors]
    assert list(after.unavailable_actors) == [index for index in (2,) if index in actors]
    assert list(after.special_events) == ["something"]


@pytest.mark.parametrize("number", range(1, 8))
def test_fields(number: int) -> None:
    before, after = full(), select(full(), selected_sample_fields=[number, 0])
    name = FIELDS[number - 1]
    for old, new in zip(before.actor_samples, after.actor_samples, strict=True):
        assert {field.name for field, _ in new.ListFields()} <= {"actor", name}
        assert getattr(new, name) == getattr(old, name)
    assert len(after.payloads) == len(before.payloads)
    assert [payload for payload in after.payloads if payload] == sorted_payloads(before, name)


def sorted_payloads(sample: StoredTrialSample, name: str) -> list[bytes]:
    indexes = set()
    for actor in sample.actor_samples:
        if name in ("observation", "action"):
            indexes |= {getattr(actor, name)} if actor.HasField(name) else set()
        elif name.endswith("rewards"):
            indexes |= {reward.user_data for reward in getattr(actor, name)}
        elif name.endswith("messages"):
            indexes |= {message.payload for message in getattr(actor, name)}
    return [sample.payloads[index] for index in sorted(indexes)]


def test_only_the_field_that_means_nothing_leaves_the_actors() -> None:
    after = select(full(), selected_sample_fields=[0])
    assert [[field.name for field, _ in actor.ListFields()] for actor in after.actor_samples] == [
        [],
        ["actor"],
        ["actor"],
    ]
    assert not any(after.payloads)


def test_without_a_filter_there_is_nothing_to_do() -> None:
    assert Selection(RetrieveSamplesRequest(trial_ids=["t"])).everything
    nothing: Any = 0
    assert not Selection(RetrieveSamplesRequest(selected_sample_fields=[nothing])).everything
    assert not Selection(RetrieveSamplesRequest(actor_names=[""])).everything


@pytest.mark.parametrize("number", [8, 99, -1])
def test_unknown_fields_are_refused(number: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=f"selected_sample_fields: {number}"):
        Selection(RetrieveSamplesRequest(selected_sample_fields=[number, number]))


@given(
    samples_drawn,
    st.lists(st.sampled_from(["ann", "bob"]), max_size=2),
    st.lists(st.sampled_from(["c0", "c1"]), max_size=1),
    st.lists(st.sampled_from(["x", "y"]), max_size=1),
    st.lists(st.integers(0, 7), max_size=3),
)
def test_selecting_twice_changes_nothing_and_every_index_stays_good(
    sample: DatalogSample, names: list[str], classes: list[str], implementations: list[str], fields: list[int]
) -> None:
    stored = stored_of(sample)
    request: dict[str, Any] = {
        "actor_names": names,
        "actor_classes": classes,
        "actor_implementations": implementations,
        "selected_sample_fields": fields,
    }
    once = select(stored, **request)
    check_sample(once, len(PARAMS.actors))
    assert select(once, **request).SerializeToString() == once.SerializeToString()
    assert len(once.payloads) == len(stored.payloads)
    for field in ("tick_id", "timestamp", "state", "trial_id", "special_events"):
        assert getattr(once, field) == getattr(stored, field)


def test_what_nothing_points_to_any_more_is_emptied() -> None:
    """A reward without data points to no payload, not to the first."""
    rewarded = StoredTrialActorSample(actor=0, observation=0, action=1)
    rewarded.received_rewards.add(sender=-1, receiver=0, reward=1)
    rewarded.received_rewards.add(sender=-1, receiver=0, reward=1, user_data=2)
    sample = StoredTrialSample(actor_samples=[rewarded], payloads=[b"seen", b"done", b"data", b"nobody's"])
    request = RetrieveSamplesRequest(
        selected_sample_fields=[StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_RECEIVED_REWARDS]
    )
    Selection(request).apply(sample, None)
    assert list(sample.payloads) == [b"", b"", b"data", b""]
