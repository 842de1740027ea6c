"""Out-of-sync samples and the sample of their tick: examples worked out by hand, and what holds for all."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_cogment.api.trial_datastore_pb2 import StoredTrialActorSample as Actor
from trio_cogment.api.trial_datastore_pb2 import StoredTrialActorSampleMessage as Message
from trio_cogment.api.trial_datastore_pb2 import StoredTrialActorSampleReward as Reward
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample as Sample
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.servers.datastore._merging import begin_waiting, merge_late


def merge(stored: Sample, *late: Sample) -> Sample:
    data = stored.SerializeToString()
    for one in late:
        data = merge_late(data, one.SerializeToString())
    return Sample.FromString(data)


def test_rewards_and_messages_find_their_actors_and_payloads() -> None:
    stored = Sample(
        user_id="ann",
        trial_id="t",
        tick_id=7,
        timestamp=70,
        state="RUNNING",
        payloads=[b"observation", b"action", b"why"],
        actor_samples=[
            Actor(
                actor=0,
                observation=0,
                action=1,
                reward=1.0,
                received_rewards=[Reward(sender=1, reward=1.0, confidence=1.0, user_data=2)],
            ),
            Actor(actor=1, observation=0, sent_rewards=[Reward(receiver=0, reward=1.0, confidence=1.0, user_data=2)]),
        ],
    )
    late = Sample(
        trial_id="t",
        tick_id=7,
        timestamp=99,
        payloads=[b"because", b"hello"],
        special_events=["late"],
        actor_samples=[
            Actor(
                actor=0,
                reward=4.0,
                received_rewards=[
                    Reward(sender=-1, reward=4.0, confidence=2.0, user_data=0),
                    Reward(sender=1, reward=100.0, confidence=0.0),
                ],
                received_messages=[Message(sender=1, payload=1)],
            ),
            Actor(
                actor=1,
                sent_rewards=[Reward(receiver=0, reward=100.0, confidence=0.0)],
                sent_messages=[Message(receiver=0, payload=1)],
            ),
        ],
    )
    merged = merge(stored, late)
    assert (merged.user_id, merged.trial_id, merged.tick_id, merged.timestamp) == ("ann", "t", 7, 70)
    assert merged.state == stored.state
    assert list(merged.payloads) == [b"observation", b"action", b"why", b"because", b"hello"]
    first, second = merged.actor_samples
    assert (first.observation, first.action, first.reward) == (0, 1, 3.0)  # (1*1 + 4*2) / 3
    assert [reward.reward for reward in first.received_rewards] == [1.0, 4.0, 100.0]
    assert [reward.user_data for reward in first.received_rewards] == [2, 3, 0]
    assert [reward.HasField("user_data") for reward in first.received_rewards] == [True, True, False]
    assert [message.payload for message in first.received_messages] == [4]
    assert [reward.reward for reward in second.sent_rewards] == [1.0, 100.0]
    assert [message.payload for message in second.sent_messages] == [4]
    assert not second.HasField("reward")
    assert list(merged.special_events) == ["late"]
    assert len(merged.merged_samples) == 1


def test_merged_twice_changes_nothing() -> None:
    stored = Sample(actor_samples=[Actor(actor=0)])
    late = [Sample(actor_samples=[Actor(received_rewards=[Reward(reward=n, confidence=1)])]) for n in range(3)]
    merged = merge(stored, *late)
    assert merge(merged, *late, *reversed(late)) == merged
    assert merged.actor_samples[0].reward == 1.0
    assert len(merged.merged_samples) == 3


def test_what_the_tick_has_is_not_overwritten() -> None:
    stored = Sample(payloads=[b"o"], actor_samples=[Actor(actor=0, observation=0, reward=0.5)])
    late = Sample(payloads=[b"x"], actor_samples=[Actor(actor=0, observation=0, action=0, reward=9.0), Actor(actor=2)])
    (first, third) = merge(stored, late).actor_samples
    assert (first.observation, first.action, first.reward) == (0, 1, 0.5)
    assert third.actor == 2
    # A reward that came without its sources stays until there are some.
    nothing = Sample(actor_samples=[Actor(actor=0)])
    assert merge(nothing, late).actor_samples[0].reward == 9.0


def test_actors_without_a_sample_get_one() -> None:
    late = Sample(default_actors=[1], unavailable_actors=[2], actor_samples=[Actor(actor=3, reward=1)])
    merged = merge(Sample(default_actors=[1, 4]), late)
    assert [actor.actor for actor in merged.actor_samples] == [3]
    assert list(merged.default_actors) == [1, 4]
    assert list(merged.unavailable_actors) == [2]


def test_what_waits_is_known_when_it_comes_again() -> None:
    late = [
        Sample(tick_id=n, actor_samples=[Actor(received_rewards=[Reward(reward=n, confidence=1)])]).SerializeToString()
        for n in range(3)
    ]
    waiting = merge_late(merge_late(begin_waiting(late[0]), late[1]), late[0])
    assert begin_waiting(waiting) == waiting
    whole = merge_late(Sample(actor_samples=[Actor(actor=0)]).SerializeToString(), waiting)
    assert len(Sample.FromString(whole).actor_samples[0].received_rewards) == 2
    assert merge_late(merge_late(whole, late[1]), late[0]) == whole
    assert merge_late(whole, late[2]) != whole


def test_nan_survives() -> None:
    late = Sample(actor_samples=[Actor(actor=0, received_rewards=[Reward(reward=math.nan, confidence=1)])])
    assert math.isnan(merge(Sample(), late).actor_samples[0].reward)


def test_no_sample() -> None:
    good = Sample(tick_id=1).SerializeToString()
    with pytest.raises(InvalidArgumentError, match="data"):
        merge_late(good, b"\xff")
    with pytest.raises(InvalidArgumentError, match="data"):
        merge_late(b"\xff", good)
    with pytest.raises(InvalidArgumentError, match="data"):
        begin_waiting(b"\xff")


rewards = st.builds(
    Reward,
    sender=st.integers(-1, 2),
    reward=st.floats(-10, 10, width=32),
    confidence=st.floats(-1, 1, width=32),
    user_data=st.none() | st.just(0),
)
actors = st.builds(
    Actor,
    actor=st.integers(0, 2),
    received_rewards=st.lists(rewards, max_size=3),
    sent_rewards=st.lists(rewards, max_size=2),
    received_messages=st.lists(st.builds(Message, sender=st.integers(-1, 2), payload=st.just(0)), max_size=2),
)
samples = st.builds(
    Sample,
    payloads=st.lists(st.binary(max_size=4), min_size=1, max_size=3),
    actor_samples=st.lists(actors, max_size=3, unique_by=lambda actor: actor.actor),
)


@given(stored=samples, late=st.lists(samples, max_size=4))
def test_nothing_is_lost_and_nothing_counts_twice(stored: Sample, late: list[Sample]) -> None:
    merged = merge(stored, *late, *late)
    different = {one.SerializeToString(): one for one in late}.values()
    for index in range(3):
        expected = [
            (reward.sender, reward.reward, one.payloads[0] if reward.HasField("user_data") else None)
            for one in (stored, *different)
            for actor in one.actor_samples
            if actor.actor == index
            for reward in actor.received_rewards
        ]
        found = [
            (reward.sender, reward.reward, merged.payloads[reward.user_data] if reward.HasField("user_data") else None)
            for actor in merged.actor_samples
            if actor.actor == index
            for reward in actor.received_rewards
        ]
        assert found == expected
    # In whichever portions they wait.
    if late:
        waiting = begin_waiting(late[0].SerializeToString())
        for one in late[1:]:
            waiting = merge_late(waiting, one.SerializeToString())
        assert (
            Sample.FromString(merge_late(stored.SerializeToString(), waiting)).merged_samples == merged.merged_samples
        )


def test_the_payloads_of_all_that_is_added_have_moved_and_of_nothing_else() -> None:
    """However much there was before, and however much comes."""

    def sample(rewards: int, messages: int) -> Sample:
        each = Actor(
            actor=0,
            received_rewards=[Reward(user_data=number) for number in range(rewards)],
            sent_rewards=[Reward(user_data=number) for number in range(rewards)],
            received_messages=[Message(payload=number) for number in range(messages)],
            sent_messages=[Message(payload=number) for number in range(messages)],
        )
        return Sample(payloads=[b"x"] * 3, actor_samples=[each])

    for before in range(4):
        for more in range(4):
            (merged,) = merge(sample(before, before), sample(more, more)).actor_samples
            expected = [*range(before), *range(3, 3 + more)]
            for rewards in (merged.received_rewards, merged.sent_rewards):
                assert [reward.user_data for reward in rewards] == expected
            for messages in (merged.received_messages, merged.sent_messages):
                assert [message.payload for message in messages] == expected
