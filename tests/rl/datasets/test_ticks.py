"""A tick of a trial: the same whether its sample comes from a datastore or from a data log."""

from __future__ import annotations

from typing import Any

import pytest

from trio_cogment.api.common_pb2 import Action, ActorParams, Message, Reward, RewardSource, TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import (
    StoredTrialActorSample,
    StoredTrialActorSampleReward,
    StoredTrialSample,
)
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.base.stand_ins import StandIn, stand_in_note
from trio_cogment.rl.datasets.ticks import ActorTick, RewardFrom, tick_of
from trio_cogment.sdk import LogSample, StoredSample
from trio_cogment.sdk._stored import StoredTrial
from trio_cogment.sdk.spec import Spec

NAMES = ("ann", "ben", "cid")
NANOSECONDS = 7 * 10**9


def params() -> TrialParams:
    actors = [ActorParams(name=name, actor_class="fast" if name != "cid" else "slow") for name in NAMES]
    actors[1].default_action.content = b"usual"
    return TrialParams(actors=actors)


def logged(**changes: Any) -> DatalogSample:
    sample = DatalogSample(
        observations=ObservationSet(observations=[b"many", b"one"], actors_map=[0, 1, 0]),
        actions=[Action(tick_id=4, content=b"a"), Action(tick_id=4), Action(tick_id=4, content=b"c")],
    )
    sample.info.tick_id, sample.info.timestamp = 4, NANOSECONDS
    for name, value in changes.items():
        if isinstance(value, list):
            del getattr(sample, name)[:]
            getattr(sample, name).extend(value)
        else:
            getattr(sample, name).CopyFrom(value)
    return sample


def ticks(message: DatalogSample) -> dict[str, ActorTick]:
    tick = tick_of(LogSample(message, params()))
    assert (tick.tick_id, tick.timestamp_ns, list(tick.actors)) == (4, NANOSECONDS, list(NAMES))
    return dict(tick.actors)


def reward(receiver: str, *sources: tuple[str, float, float]) -> Reward:
    made = [RewardSource(sender_name=name, value=value, confidence=confidence) for name, value, confidence in sources]
    return Reward(receiver_name=receiver, sources=made)


def test_a_sample_of_a_data_log() -> None:
    found = ticks(logged())
    assert found == {
        "ann": ActorTick(b"many", b"a"),
        "ben": ActorTick(b"one", b""),
        "cid": ActorTick(b"many", b"c"),
    }


def test_an_action_that_nobody_sent() -> None:
    nobody = [Action(tick_id=-2, content=b"x"), Action(tick_id=-1, content=b"y"), Action(tick_id=0, content=b"z")]
    assert [tick.action for tick in ticks(logged(actions=nobody)).values()] == [None, b"y", b"z"]
    assert [tick.action for tick in ticks(logged(actions=nobody[1:])).values()] == [b"y", b"z", None]
    assert [tick.action for tick in ticks(logged(actions=[])).values()] == [None] * 3
    away = ticks(logged(unavailable_actors=[0, 2]))
    assert [tick.action for tick in away.values()] == [None, b"", None]


def test_a_default_action_is_that_of_the_parameters() -> None:
    found = ticks(logged(default_actors=[1]))
    assert [(tick.action, tick.default_action) for tick in found.values()] == [
        (b"a", False),
        (b"usual", True),
        (b"c", False),
    ]
    assert ticks(logged(default_actors=[1], unavailable_actors=[1]))["ben"].action is None


def test_a_sample_without_observations_and_one_with_too_few() -> None:
    message = logged()
    message.ClearField("observations")
    assert [tick.observation for tick in ticks(message).values()] == [None] * 3
    for observations in (
        ObservationSet(observations=[b"many"], actors_map=[0, 0]),
        ObservationSet(observations=[b"many"], actors_map=[0, 0, 1]),
    ):
        with pytest.raises(RemoteProtocolError, match=r"^sample 4: no observation of actor 'cid'$"):
            ticks(logged(observations=observations))


def test_rewards_are_those_of_every_source_for_everybody_who_is_meant() -> None:
    rewards = [
        reward("ann", ("ben", 1.0, 1.0), ("env", 4.0, 0.5)),
        reward("fast.*", ("cid", 2.0, 1.0)),
        reward("*", ("nobody", -1.0, 1.0)),
    ]
    found = ticks(logged(rewards=rewards))
    assert found["ann"].rewards == [
        RewardFrom("ben", 1.0, 1.0),
        RewardFrom("", 4.0, 0.5),
        RewardFrom("cid", 2.0, 1.0),
        RewardFrom("", -1.0, 1.0),
    ]
    assert found["ben"].rewards == [RewardFrom("cid", 2.0, 1.0), RewardFrom("", -1.0, 1.0)]
    assert found["cid"].rewards == [RewardFrom("", -1.0, 1.0)]
    assert found["ann"].reward == pytest.approx((1 + 2 + 2 - 1) / 3.5)
    assert (found["ben"].reward, found["cid"].reward) == (0.5, -1.0)
    alone = ticks(logged(rewards=[reward("ben", ("cid", 2.0, 1.0))]))
    assert (alone["ann"].reward, list(alone["ann"].rewards)) == (None, [])


def note(sender: str, receiver: str, stand_in: StandIn) -> Message:
    message = Message(tick_id=4, sender_name=sender, receiver_name=receiver)
    message.payload.Pack(stand_in_note(stand_in))
    return message


def test_who_has_acted_is_what_an_actor_says_to_itself() -> None:
    messages = [
        note("ann", "ann", StandIn.BOT),
        note("ann", "ben", StandIn.BOT),
        note("ben", "cid", StandIn.DEFAULT),
        note("cid", "cid", StandIn.DEFAULT),
    ]
    found = ticks(logged(messages=messages))
    assert [tick.stand_in for tick in found.values()] == [StandIn.BOT, None, StandIn.DEFAULT]


def test_a_sample_of_a_datastore_is_the_same_tick() -> None:
    message = StoredTrialSample(trial_id="t", tick_id=4, timestamp=NANOSECONDS, default_actors=[1])
    message.payloads.extend([b"many", b"one", b"a", b"usual"])
    message.actor_samples.extend(
        [
            StoredTrialActorSample(
                actor=0,
                observation=0,
                action=2,
                reward=1.5,
                received_rewards=[
                    StoredTrialActorSampleReward(sender=1, receiver=0, reward=1.0, confidence=1.0),
                    StoredTrialActorSampleReward(sender=-1, receiver=0, reward=2.0, confidence=1.0),
                ],
            ),
            StoredTrialActorSample(actor=1, observation=1, action=3),
            StoredTrialActorSample(actor=2),
        ]
    )
    tick = tick_of(StoredSample(message, StoredTrial("t", "u", 0, 5, params()), Spec()))
    assert (tick.tick_id, tick.timestamp_ns) == (4, NANOSECONDS)
    rewards = [RewardFrom("ben", 1.0, 1.0), RewardFrom(tick.actors["ann"].rewards[1].sender, 2.0, 1.0)]
    assert tick.actors == {
        "ann": ActorTick(b"many", b"a", False, 1.5, rewards),
        "ben": ActorTick(b"one", b"usual", True, None, []),
        "cid": ActorTick(None, None, False, None, []),
    }
