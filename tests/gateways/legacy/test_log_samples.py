"""Samples for data logs of the legacy API, and theirs for today's: every field, in the order of the other side."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.wrappers_pb2 import StringValue

from trio_cogment.api.common_pb2 import Action, ActorParams, Message, Reward, RewardSource, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.gateways.legacy.log_samples import OldSamples, TodaysSamples

#: The ids of the legacy API go by the classes: ann 0, cid 1, ben 2.
CLASSES = ("fast", "slow")


def params() -> TrialParams:
    found = TrialParams()
    found.environment.name = "env"
    for name, kind in (("ann", "fast"), ("ben", "slow"), ("cid", "fast")):
        found.actors.append(ActorParams(name=name, actor_class=kind))
    found.actors[1].default_action.content = b"usual"
    return found


def packed(text: str) -> AnyMessage:
    found = AnyMessage()
    found.Pack(StringValue(value=text))
    return found


def sample(**fields: Any) -> DatalogSample:
    found = DatalogSample(**fields)
    found.info.tick_id, found.info.timestamp = 4, 9
    return found


def old(given: DatalogSample) -> Any:
    return OldSamples("t", "u", params(), CLASSES).old(given)


def todays(given: Any, *, last: bool = False) -> DatalogSample:
    return TodaysSamples(params(), CLASSES, {}).todays(given, last=last)


def seen() -> ObservationSet:
    return ObservationSet(tick_id=4, timestamp=8, observations=[b"one", b"two"], actors_map=[0, 1, 0])


def test_an_empty_sample() -> None:
    found = old(sample())
    assert (found.trial_id, found.user_id, found.timestamp, found.observations.tick_id) == ("t", "u", 9, 4)
    assert not found.observations.observations
    assert [len(part) for part in (found.actions, found.rewards, found.messages)] == [0, 0, 0]


def test_observations_are_in_the_order_of_ids() -> None:
    found = old(sample(observations=seen())).observations
    assert (found.timestamp, found.tick_id, list(found.actors_map)) == (8, 4, [0, 0, 1])
    assert [(one.content, one.snapshot) for one in found.observations] == [(b"one", True), (b"two", True)]


def test_actions_are_what_was_done() -> None:
    actions = [Action(content=content) for content in (b"a", b"b", b"c")]
    assert [one.content for one in old(sample(actions=actions)).actions] == [b"a", b"c", b"b"]
    found = old(sample(actions=actions, unavailable_actors=[2], default_actors=[1]))
    assert [one.content for one in found.actions] == [b"a", b"", b"usual"]


def test_rewards_are_one_for_each_actor() -> None:
    rewards = [
        Reward(receiver_name="ben", sources=[RewardSource(sender_name="env", value=1, confidence=1)]),
        Reward(receiver_name="*", sources=[RewardSource(sender_name="ann", value=4, confidence=0.5)]),
        Reward(receiver_name="env", sources=[RewardSource(sender_name="ann", value=7, confidence=1)]),
    ]
    ann, cid, ben = old(sample(rewards=rewards)).rewards
    assert [(one.value, one.confidence, len(one.feedbacks)) for one in (ann, cid, ben)] == [
        (4, 1, 1),
        (4, 1, 1),
        (2, 1, 2),
    ]
    assert [(one.value, one.confidence, one.tick_id, one.actor_id) for one in ben.feedbacks] == [
        (1, 1, 4, 2),
        (4, 0.5, 4, 2),
    ]
    alone = old(sample(rewards=rewards[:1])).rewards
    assert [len(one.feedbacks) for one in alone] == [0, 0, 1]


def test_messages_are_with_their_receivers() -> None:
    messages = [
        Message(sender_name="ann", receiver_name="ben", payload=packed("hello")),
        Message(sender_name="env", receiver_name="fast.*", payload=packed("all")),
        Message(sender_name="ben", receiver_name="env", payload=packed("you")),
        Message(sender_name="ben", receiver_name="nobody", payload=packed("lost")),
    ]
    found = old(sample(messages=messages)).messages
    assert [len(one.messages) for one in found] == [1, 1, 1, 1]
    ann, cid, ben, env = (one.messages[0] for one in found)
    assert (ann.sender_id, cid.sender_id, ben.sender_id, env.sender_id) == (-1, -1, 0, 2)
    assert (ann.receiver_id, cid.receiver_id, ben.receiver_id, env.receiver_id) == (0, 1, 2, -1)
    assert ben.payload.SerializeToString() == packed("hello").SerializeToString()  # of another pool of descriptors


def test_there_and_back() -> None:
    given = sample(
        observations=seen(),
        actions=[Action(content=content) for content in (b"a", b"b", b"c")],
        rewards=[Reward(receiver_name="ben", value=2, sources=[RewardSource(value=2, confidence=1)])],
        messages=[Message(sender_name="ann", receiver_name="ben", payload=packed("hello"))],
    )
    found = todays(old(given))
    assert (found.info.tick_id, found.info.timestamp, found.info.state) == (4, 9, TrialState.RUNNING)
    assert (found.observations.tick_id, found.observations.timestamp) == (4, 8)
    content = [found.observations.observations[place] for place in found.observations.actors_map]
    assert content == [b"one", b"two", b"one"]
    assert len(found.observations.observations) == 2
    assert [(one.tick_id, one.timestamp, one.content) for one in found.actions] == [
        (4, 9, b"a"),
        (4, 9, b"b"),
        (4, 9, b"c"),
    ]
    (reward,) = found.rewards
    assert (reward.receiver_name, reward.value, reward.tick_id) == ("ben", 2.0, 4)
    assert [(one.value, one.confidence) for one in reward.sources] == [(2.0, 1.0)]
    (message,) = found.messages
    assert (message.tick_id, message.sender_name, message.receiver_name) == (4, "ann", "ben")
    assert message.payload == packed("hello")


def test_the_last_one_and_one_without_a_time_of_its_own() -> None:
    given = old(sample(observations=seen()))
    given.timestamp = 0
    found = todays(given, last=True)
    assert (found.info.state, found.info.timestamp) == (TrialState.ENDED, 8)
    assert [len(part) for part in (found.actions, found.rewards, found.messages)] == [0, 0, 0]


@pytest.mark.parametrize("what", ["actions", "rewards"])
def test_one_that_does_not_fit_the_trial(what: str) -> None:
    given = old(sample(observations=seen()))
    for _ in range(2):
        getattr(given, what).add()
    with pytest.raises(RemoteProtocolError, match=f"^{what}: expected one for each of 3 actors, got 2$"):
        todays(given)
