"""One tick of a trial, as the steps of a data set are made of: the same from a datastore and from a data log. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trio_cogment.base.addressing import ActorAddresses
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.base.rewards import mean_reward
from trio_cogment.base.stand_ins import StandIn, stand_in_of
from trio_cogment.sdk import LogSample, StoredSample

#: The tick of an action in a data log that nobody sent.
_NO_ACTION_TICK = -2


class RewardFrom(NamedTuple):
    """What somebody rewarded an actor with.

    Attributes:
        sender: the name of an actor; empty for the environment.
        value: of 32 bits.
        confidence: the weight, from 0 to 1.
    """

    sender: str
    value: float
    confidence: float


class ActorTick(NamedTuple):
    """What one actor saw, did and got in a tick.

    Attributes:
        observation: the payload; None if it is not stored.
        action: the payload; None if there was none.
        default_action: the action is the default one of the trial's parameters.
        held_action: the action is an earlier one, which was taken again.
        reward: the mean of the rewards, weighted by their confidence; None without any.
        rewards: these rewards.
        stand_in: what acted for a person who was away; None: the actor itself did.
    """

    observation: bytes | None
    action: bytes | None
    default_action: bool = False
    reward: float | None = None
    rewards: Sequence[RewardFrom] = ()
    stand_in: StandIn | None = None
    held_action: bool = False


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of a trial.

    Attributes:
        tick_id: its number, from 0.
        timestamp_ns: when it began, in nanoseconds since the epoch.
        actors: by name, in the order of the trial's parameters.
    """

    tick_id: int
    timestamp_ns: int
    actors: Mapping[str, ActorTick]


def tick_of(sample: StoredSample | LogSample) -> Tick:
    """Return the tick that a sample of a datastore or of a data log is about.

    Raises:
        RemoteProtocolError: the sample refers to an actor or a payload that it does not have.
    """
    return _of_stored(sample) if isinstance(sample, StoredSample) else _of_logged(sample)


def _of_stored(sample: StoredSample) -> Tick:
    defaults, held = frozenset(sample.message.default_actors), frozenset(sample.message.held_actors)
    actors = {}
    for message in sample.message.actor_samples:
        name = sample.name(message.actor)
        rewards = [
            RewardFrom(sample.name(reward.sender), reward.reward, reward.confidence)
            for reward in message.received_rewards
        ]
        actors[name] = ActorTick(
            sample.payload(message.observation) if message.HasField("observation") else None,
            sample.payload(message.action) if message.HasField("action") else None,
            message.actor in defaults,
            message.reward if message.HasField("reward") else None,
            rewards,
            sample.actors[name].stand_in if message.sent_messages else None,
            message.actor in held,
        )
    return Tick(sample.tick_id, sample.timestamp, actors)


def _of_logged(sample: LogSample) -> Tick:
    rewards = _rewards_of(sample)
    observed, known = sample.message.observations, sample.message.HasField("observations")
    actors = {}
    for index, actor in enumerate(sample.params.actors):
        try:
            observation = observed.observations[observed.actors_map[index]] if known else None
        except IndexError:
            raise RemoteProtocolError(f"sample {sample.tick_id}: no observation of actor {actor.name!r}") from None
        got = rewards.get(index, ())
        actors[actor.name] = ActorTick(
            observation,
            _logged_action(sample, index),
            index in sample.message.default_actors,
            mean_reward([(reward.value, reward.confidence) for reward in got]) if got else None,
            got,
            stand_in_of(
                one.payload for one in sample.message.messages if one.sender_name == one.receiver_name == actor.name
            ),
            index in sample.message.held_actors,
        )
    return Tick(sample.tick_id, sample.timestamp, actors)


def _logged_action(sample: LogSample, index: int) -> bytes | None:
    message = sample.message
    if index >= len(message.actions) or index in message.unavailable_actors:
        return None
    action = message.actions[index]
    if index in message.default_actors:
        # The sample does not repeat what the parameters say.
        default: bytes = sample.params.actors[index].default_action.content
        return default
    content: bytes = action.content
    return None if action.tick_id == _NO_ACTION_TICK else content


def _rewards_of(sample: LogSample) -> dict[int, list[RewardFrom]]:
    found: dict[int, list[RewardFrom]] = {}
    if not sample.message.rewards:
        return found
    addresses = ActorAddresses((actor.name, actor.actor_class) for actor in sample.params.actors)
    names = addresses.by_name
    for reward in sample.message.rewards:
        for index in addresses.resolve(reward.receiver_name):
            for source in reward.sources:
                # Whoever is not an actor is the environment.
                sender = source.sender_name if source.sender_name in names else ""
                found.setdefault(index, []).append(RewardFrom(sender, source.value, source.confidence))
    return found
