"""The samples of a trial, as data logs of the legacy API have them and as today's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trio_cogment.api.common_pb2 import Action, RewardSource, TrialParams, TrialState
from trio_cogment.api.common_pb2 import Message as TodaysMessage
from trio_cogment.api.common_pb2 import Reward as TodaysReward
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.legacy import common_pb2 as legacy
from trio_cogment.api.legacy import data_pb2 as pb
from trio_cogment.base.addressing import ActorAddresses
from trio_cogment.base.errors import RemoteProtocolError
from trio_cogment.base.rewards import mean_reward
from trio_cogment.gateways.legacy.actor_ids import ENVIRONMENT, ids_in
from trio_cogment.gateways.legacy.deltas import ApplyDelta
from trio_cogment.gateways.legacy.messages import legacy_message, message_of
from trio_cogment.gateways.legacy.rewards import legacy_reward, reward_of
from trio_cogment.gateways.legacy.snapshots import Snapshots


class OldSamples:
    """Makes samples for an old data log.

    Args:
        trial_id: of the trial.
        user_id: who has started it.
        params: of the trial.
        classes: the actor classes of the project, in its order.

    Raises:
        InvalidArgumentError: the trial has a class that the project does not have.
    """

    def __init__(self, trial_id: str, user_id: str, params: TrialParams, classes: Sequence[str]) -> None:
        self._trial_id = trial_id
        self._user_id = user_id
        self._params = params
        self._ids = ids_in(params, classes, params.environment.name)
        self._addresses = ActorAddresses((actor.name, actor.actor_class) for actor in params.actors)

    def old(self, sample: DatalogSample) -> pb.DatalogSample:
        """Return a sample as an old data log has it.

        Observations, actions and rewards are in the order of the ids. Messages are by their receivers: a collection for
        each actor, and one more for the environment.
        """
        ids = self._ids
        found = pb.DatalogSample(trial_id=self._trial_id, user_id=self._user_id, timestamp=sample.info.timestamp)
        found.observations.tick_id = sample.info.tick_id
        if sample.HasField("observations"):
            seen = sample.observations
            found.observations.timestamp = seen.timestamp
            for content in seen.observations:
                found.observations.observations.add(content=content, snapshot=True)
            found.observations.actors_map.extend(ids.by_id(seen.actors_map))
        if sample.actions:
            found.actions.extend(legacy.Action(content=content) for content in ids.by_id(self._contents(sample)))
        if sample.rewards:
            found.rewards.extend(self._rewards(sample.rewards, sample.info.tick_id))
        if sample.messages:
            found.messages.extend(self._messages(sample.messages))
        return found

    def _contents(self, sample: DatalogSample) -> list[bytes]:
        contents = [action.content for action in sample.actions]
        for place in sample.unavailable_actors:
            contents[place] = b""
        for place in sample.default_actors:
            contents[place] = self._params.actors[place].default_action.content
        return contents

    def _rewards(self, rewards: Sequence[TodaysReward], tick_id: int) -> list[legacy.Reward]:
        sources: list[list[RewardSource]] = [[] for _ in self._ids.members]
        for reward in rewards:
            for actor_id in self._receivers(reward.receiver_name):
                if actor_id != ENVIRONMENT:
                    sources[actor_id] += reward.sources
        found = []
        for member, given in zip(self._ids.members, sources, strict=True):
            value = mean_reward([(each.value, each.confidence) for each in given])
            found.append(legacy_reward(value, given, tick_id, member) if given else legacy.Reward())
        return found

    def _messages(self, messages: Sequence[TodaysMessage]) -> list[legacy.MessageCollection]:
        found = [legacy.MessageCollection() for _ in range(len(self._ids) + 1)]
        for message in messages:
            for receiver in self._receivers(message.receiver_name):
                converted = legacy_message(message.payload, message.sender_name, receiver, self._ids)
                if converted is not None:
                    found[receiver].messages.append(converted)  # the environment, -1, is the last one
        return found

    def _receivers(self, name: str) -> list[int]:
        """Return the ids that a name or a pattern stands for."""
        members = {member.place: member.actor_id for member in self._ids.members}
        found = [members[place] for place in self._addresses.resolve(name)]
        return found or ([ENVIRONMENT] if self._ids.id_of(name) == ENVIRONMENT else [])


class TodaysSamples:
    """Makes samples of today of those that an old orchestrator has logged.

    Args:
        params: of the trial, with names.
        classes: the actor classes of the project, in its order.
        deltas: how deltas are applied, by class.

    Raises:
        InvalidArgumentError: the trial has a class that the project does not have.
    """

    def __init__(self, params: TrialParams, classes: Sequence[str], deltas: Mapping[str, ApplyDelta]) -> None:
        self._ids = ids_in(params, classes, params.environment.name)
        self._snapshots = Snapshots(self._ids, deltas)

    def todays(self, old: pb.DatalogSample, *, last: bool) -> DatalogSample:
        """Return a sample as today's data logs have it.

        Args:
            old: the sample.
            last: it is the last one of its trial.

        Raises:
            RemoteProtocolError: it does not fit the trial.
        """
        ids, tick_id = self._ids, old.observations.tick_id
        sample = DatalogSample()
        sample.info.tick_id, sample.info.timestamp = tick_id, old.timestamp or old.observations.timestamp
        sample.info.state = TrialState.ENDED if last else TrialState.RUNNING
        seen = sample.observations
        seen.tick_id, seen.timestamp = tick_id, old.observations.timestamp
        places: dict[bytes, int] = {}
        for content in ids.by_place(self._snapshots.take(old.observations)):
            seen.actors_map.append(places.setdefault(content, len(places)))
        seen.observations.extend(places)
        if old.actions:
            self._check(len(old.actions), "actions")
            for each in ids.by_place(old.actions):
                sample.actions.append(Action(tick_id=tick_id, timestamp=sample.info.timestamp, content=each.content))
        if old.rewards:
            self._check(len(old.rewards), "rewards")
            for member, reward in zip(ids.members, old.rewards, strict=True):
                if reward.feedbacks:
                    sample.rewards.append(self._reward(member.name, reward, tick_id))
        for collection in old.messages:
            for message in collection.messages:
                found = message_of(message, ids)
                if not isinstance(found, str):
                    payload, receiver = found
                    sender = ids.name_of(message.sender_id) or ""
                    sample.messages.add(tick_id=tick_id, sender_name=sender, receiver_name=receiver, payload=payload)
        return sample

    def _check(self, found: int, what: str) -> None:
        if found != len(self._ids):
            raise RemoteProtocolError(f"{what}: expected one for each of {len(self._ids)} actors, got {found}")

    def _reward(self, receiver: str, old: legacy.Reward, tick_id: int) -> TodaysReward:
        reward = TodaysReward(tick_id=tick_id, receiver_name=receiver, value=old.value)
        for feedback in old.feedbacks:
            converted = reward_of(feedback, self._ids)
            if not isinstance(converted, str):
                source = reward.sources.add(value=converted.value, confidence=converted.confidence)
                if converted.user_data is not None:
                    source.user_data.Pack(converted.user_data)
        return reward
