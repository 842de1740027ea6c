"""Samples of a datastore and of a data log: every field, and references that lead nowhere."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import StringValue, UInt32Value

from trio_cogment.api.common_pb2 import Action, ActorParams, Message, Reward, RewardSource, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import (
    StoredTrialActorSample,
    StoredTrialActorSampleMessage,
    StoredTrialActorSampleReward,
    StoredTrialSample,
)
from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.base.outcome import EndCause, TrialOutcome
from trio_cogment.base.stand_ins import StandIn, stand_in_note
from trio_cogment.sdk import ActorStatus, LogSample, StoredSample
from trio_cogment.sdk._stored import StoredMessage, StoredReward, StoredTrial
from trio_cogment.sdk.spec import ActorClass, Spec

SPEC = Spec.of(ActorClass("number", observation=UInt32Value, action=StringValue), ActorClass("raw"))
NUMBER, TEXT = UInt32Value(value=7).SerializeToString(), StringValue(value="go").SerializeToString()


def params() -> TrialParams:
    actors = [ActorParams(name="ann", actor_class="number"), ActorParams(name="ben", actor_class="raw")]
    actors[1].default_action.content = b"usual"
    return TrialParams(actors=actors)


def packed(text: str) -> AnyMessage:
    found = AnyMessage()
    found.Pack(StringValue(value=text))
    return found


def note(stand_in: StandIn) -> AnyMessage:
    found = AnyMessage()
    found.Pack(stand_in_note(stand_in))
    return found


# Of a datastore


def stored(*samples: StoredTrialActorSample, **fields: Any) -> StoredSample:
    payloads = [NUMBER, TEXT, packed("hello").SerializeToString(), b"\xff", note(StandIn.BOT).SerializeToString()]
    message = StoredTrialSample(
        trial_id="t",
        tick_id=4,
        timestamp=9,
        state=TrialState.RUNNING,
        payloads=payloads,
        actor_samples=samples,
        **fields,
    )
    return StoredSample(message, StoredTrial("t", "u", TrialState.RUNNING, 5, params()), SPEC)


def test_a_stored_sample() -> None:
    sample = stored(default_actors=[1], unavailable_actors=[0], special_events=["odd"])
    assert (sample.trial_id, sample.tick_id, sample.timestamp, sample.state) == ("t", 4, 9, TrialState.RUNNING)
    assert (sample.default_actors, sample.unavailable_actors) == (["ben"], ["ann"])
    assert (list(sample.special_events), sample.actors) == (["odd"], {})


def test_what_an_actor_saw_and_did() -> None:
    found = stored(
        StoredTrialActorSample(actor=0, observation=0, action=1, reward=0.0),
        StoredTrialActorSample(actor=1, observation=3, action=0),
    ).actors
    ann, ben = found["ann"], found["ben"]
    assert (ann.observation, ann.action, ann.reward) == (UInt32Value(value=7), StringValue(value="go"), 0.0)
    assert (ann.observation_bytes, ann.action_bytes) == (NUMBER, TEXT)
    assert (ben.observation, ben.action, ben.reward) == (b"\xff", NUMBER, None)
    assert (ben.observation_bytes, ben.action_bytes) == (b"\xff", NUMBER)
    nothing = stored(StoredTrialActorSample(actor=0)).actors["ann"]
    assert (nothing.observation, nothing.action, nothing.reward) == (None, None, None)
    assert (nothing.observation_bytes, nothing.action_bytes, nothing.stand_in) == (None, None, None)
    assert (nothing.received_rewards, nothing.sent_rewards) == ([], [])
    assert (nothing.received_messages, nothing.sent_messages) == ([], [])


def test_rewards_and_messages_name_both_sides() -> None:
    (ann,) = stored(
        StoredTrialActorSample(
            actor=0,
            received_rewards=[
                StoredTrialActorSampleReward(sender=-1, receiver=0, reward=2, confidence=0.5, user_data=2)
            ],
            sent_rewards=[StoredTrialActorSampleReward(sender=0, receiver=1, reward=1, confidence=1)],
            received_messages=[StoredTrialActorSampleMessage(sender=1, receiver=0, payload=2)],
            sent_messages=[StoredTrialActorSampleMessage(sender=0, receiver=-1, payload=2)],
        )
    ).actors.values()
    assert ann.received_rewards == [StoredReward("", "ann", 2.0, 0.5, packed("hello"))]
    assert ann.sent_rewards == [StoredReward("ann", "ben", 1.0, 1.0, None)]
    assert ann.received_messages == [StoredMessage("ben", "ann", packed("hello"))]
    assert ann.sent_messages == [StoredMessage("ann", "", packed("hello"))]


def test_who_has_acted_is_what_it_says_to_itself() -> None:
    for receiver, expected in ((0, StandIn.BOT), (1, None), (-1, None)):
        said = StoredTrialActorSampleMessage(sender=0, receiver=receiver, payload=4)
        assert stored(StoredTrialActorSample(actor=0, sent_messages=[said])).actors["ann"].stand_in is expected


def test_references_that_lead_nowhere() -> None:
    sample = stored()
    assert (sample.name(1), sample.name(-1), sample.payload(1)) == ("ben", "", TEXT)
    for index in (2, -2):
        with pytest.raises(RemoteProtocolError, match=f"^sample of t: there is no actor {index}$"):
            sample.name(index)
    with pytest.raises(RemoteProtocolError, match=r"^sample of t: there is no payload 5$"):
        sample.payload(5)
    with pytest.raises(RemoteProtocolError, match=r"^sample of t: payload 3 is not a protobuf Any$"):
        sample.any(3)
    broken = stored(StoredTrialActorSample(actor=0, observation=3)).actors["ann"]
    with pytest.raises(RemoteProtocolError, match="observation of 'ann'"):
        _ = broken.observation


@pytest.mark.parametrize(
    ("fields", "complete"),
    [
        ({}, True),
        ({"state": TrialState.RUNNING}, False),
        ({"ended_abnormally": True}, False),
        ({"outcome": TrialOutcome("t", EndCause.ENVIRONMENT, ticks=5)}, True),
        ({"outcome": TrialOutcome("t", EndCause.ENVIRONMENT, ticks=6)}, False),
        ({"outcome": TrialOutcome("t", EndCause.ENVIRONMENT, ticks=5, samples_lost=1)}, False),
    ],
)
def test_a_trial_that_is_stored_whole(fields: dict[str, Any], complete: bool) -> None:
    given: dict[str, Any] = {"state": TrialState.ENDED, "samples_count": 5, **fields}
    trial = StoredTrial(trial_id="t", user_id="u", params=params(), **given)
    assert trial.is_complete is complete
    assert trial.ended is (given["state"] == TrialState.ENDED)
    assert trial.actor_names == ["ann", "ben"]


# Of a data log


def logged(**fields: Any) -> LogSample:
    message = DatalogSample(**fields)
    message.info.tick_id, message.info.timestamp, message.info.state = 4, 9, TrialState.RUNNING
    return LogSample(message, params(), SPEC)


def test_a_logged_sample() -> None:
    sample = logged()
    sample.message.info.special_events.append("odd")
    assert (sample.tick_id, sample.timestamp, sample.state, sample.out_of_sync) == (4, 9, TrialState.RUNNING, False)
    assert (list(sample.special_events), sample.actor_names) == (["odd"], ["ann", "ben"])
    assert (sample.observation("ann"), sample.action(1), sample.rewards, sample.messages) == (None, None, [], [])
    sample.message.info.out_of_sync = True
    assert sample.out_of_sync


def test_observations_of_a_logged_sample() -> None:
    seen = ObservationSet(tick_id=-1, timestamp=5, observations=[b"raw", NUMBER], actors_map=[1, 0])
    sample = logged(observations=seen)
    for actor in ("ann", 0):
        found = sample.observation(actor)
        assert found is not None
        assert (found.tick_id, found.timestamp, found.payload) == (4, 5, UInt32Value(value=7))
    other = sample.observation("ben")
    assert other is not None
    assert other.payload == b"raw"
    sample.message.observations.tick_id = 0
    first = sample.observation(1)
    assert first is not None
    assert first.tick_id == 0
    del sample.message.observations.observations[:]
    with pytest.raises(RemoteProtocolError, match=r"^sample 4: no observation of actor 'ben'$"):
        sample.observation("ben")


def test_actions_of_a_logged_sample() -> None:
    actions = [Action(tick_id=4, timestamp=6, content=TEXT), Action(tick_id=3, timestamp=6, content=b"x")]
    found = logged(actions=actions).action("ann")
    assert found is not None
    assert (found.actor_index, found.status, found.payload) == (0, ActorStatus.ACTIVE, StringValue(value="go"))
    assert (found.tick_id, found.timestamp) == (4, 6)
    away = logged(actions=actions, unavailable_actors=[0]).action("ann")
    assert away is not None
    assert (away.status, away.payload, away.tick_id) == (ActorStatus.UNAVAILABLE, None, 4)
    default = logged(actions=actions, default_actors=[1]).action(1)
    assert default is not None
    assert (default.actor_index, default.status, default.payload) == (1, ActorStatus.DEFAULT, b"usual")
    assert default.tick_id == 3
    assert logged(actions=actions[:1]).action(1) is None


@pytest.mark.parametrize("actor", ["cid", 2, -1, 1.0])
def test_an_actor_that_is_none(actor: Any) -> None:
    for asked in (logged().observation, logged().action):
        with pytest.raises(
            InvalidArgumentError, match=f"^actor: expected an index, or one of 'ann', 'ben', got {actor!r}$"
        ):
            asked(actor)


def test_rewards_and_messages_of_a_logged_sample() -> None:
    source = RewardSource(sender_name="ben", value=2, confidence=0.5)
    sample = logged(
        rewards=[Reward(tick_id=3, receiver_name="ann", value=2, sources=[source])],
        messages=[Message(tick_id=4, sender_name="ann", receiver_name="ben", payload=packed("hello"))],
    )
    (reward,), (message,) = sample.rewards, sample.messages
    assert (reward.tick_id, reward.value, list(reward.sources), reward.receiver_name) == (3, 2.0, [source], "ann")
    assert (message.tick_id, message.sender_name, message.payload, message.receiver_name) == (
        4,
        "ann",
        packed("hello"),
        "ben",
    )
