"""Stored trials as objects: what a datastore says, with names instead of indexes and payloads of their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.message import DecodeError, Message

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.trial_datastore_pb2 import (
    StoredTrialActorSample,
    StoredTrialActorSampleMessage,
    StoredTrialActorSampleReward,
    StoredTrialInfo,
    StoredTrialSample,
)
from trio_cogment.errors import RemoteProtocolError
from trio_cogment.sdk._arrays import as_array
from trio_cogment.spec import Spec, decode

if TYPE_CHECKING:
    import numpy as np

#: The place of an actor where somebody else (the environment) is meant.
_NOT_AN_ACTOR = -1


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """What a datastore knows of a trial beside its samples.

    Attributes:
        trial_id: its id.
        user_id: who started it.
        state: of its last sample, a `TrialState`; ENDED when no more samples come.
        samples_count: ticks with a sample, those the datastore had to evict included.
        params: its parameters.
        ended_abnormally: its orchestrator went away without a last sample.
    """

    trial_id: str
    user_id: str
    state: int
    samples_count: int
    params: TrialParams
    ended_abnormally: bool = False

    @classmethod
    def of(cls, info: StoredTrialInfo) -> StoredTrial:
        """Make one of what the API says."""
        return cls(info.trial_id, info.user_id, info.last_state, info.samples_count, info.params, info.ended_abnormally)

    @property
    def ended(self) -> bool:
        """Whether no more samples come."""
        return self.state == TrialState.ENDED

    @property
    def actor_names(self) -> list[str]:
        """The actors, in the order of the parameters."""
        return [actor.name for actor in self.params.actors]


@dataclass(frozen=True, slots=True)
class StoredReward:
    """One source's reward; a name is empty where it was not an actor's (the environment's)."""

    sender: str
    receiver: str
    value: float
    confidence: float
    #: Unpack it with `user_data.Unpack(...)`.
    user_data: AnyMessage | None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message; a name is empty where it was not an actor's (the environment's)."""

    sender: str
    receiver: str
    #: Unpack it with `payload.Unpack(...)`.
    payload: AnyMessage


class ActorSample:
    """What one actor saw, did, got and sent in a tick. What was not selected, or was not there, is None or empty.

    Attributes:
        name: the actor.
        message: as the API has it.
    """

    def __init__(self, sample: StoredSample, message: StoredTrialActorSample) -> None:
        self._sample = sample
        self.message = message
        self.name = sample.name(message.actor)

    @property
    def observation(self) -> Any:
        """The observation, of the type that the spec declares, or bytes."""
        if not self.message.HasField("observation"):
            return None
        return self._decode(self.message.observation, "observation")

    @property
    def action(self) -> Any:
        """The action, of the type that the spec declares, or bytes; None also if the actor was unavailable."""
        return self._decode(self.message.action, "action") if self.message.HasField("action") else None

    @property
    def reward(self) -> float | None:
        """The mean of the rewards got, weighted by confidence; None without any."""
        return self.message.reward if self.message.HasField("reward") else None

    @property
    def received_rewards(self) -> list[StoredReward]:
        """The rewards got, source by source."""
        return [self._reward(reward) for reward in self.message.received_rewards]

    @property
    def sent_rewards(self) -> list[StoredReward]:
        """The rewards given to actors."""
        return [self._reward(reward) for reward in self.message.sent_rewards]

    @property
    def received_messages(self) -> list[StoredMessage]:
        """The messages got."""
        return [self._message(message) for message in self.message.received_messages]

    @property
    def sent_messages(self) -> list[StoredMessage]:
        """The messages sent."""
        return [self._message(message) for message in self.message.sent_messages]

    def observation_array(self) -> np.ndarray[Any, Any]:
        """Return the observation's array; see `sdk.arrays.as_array`."""
        return as_array(self.observation)

    def action_array(self) -> np.ndarray[Any, Any]:
        """Return the action's array; see `sdk.arrays.as_array`."""
        return as_array(self.action)

    def _decode(self, index: int, what: str) -> Any:
        actor = self._sample.trial.params.actors[self.message.actor]
        expected: type[Message] | None = getattr(self._sample.spec.actor_class(actor.actor_class), what)
        return decode(self._sample.payload(index), expected, f"{what} of {self.name!r}")

    def _reward(self, reward: StoredTrialActorSampleReward) -> StoredReward:
        data = self._sample.any(reward.user_data) if reward.HasField("user_data") else None
        names = self._sample.name(reward.sender), self._sample.name(reward.receiver)
        return StoredReward(*names, reward.reward, reward.confidence, data)

    def _message(self, message: StoredTrialActorSampleMessage) -> StoredMessage:
        names = self._sample.name(message.sender), self._sample.name(message.receiver)
        return StoredMessage(*names, self._sample.any(message.payload))


class StoredSample:
    """One tick of a trial.

    Attributes:
        trial: the trial, as it was when the samples were asked for.
        message: as the API has it.
        spec: the types of the payloads.
    """

    def __init__(self, message: StoredTrialSample, trial: StoredTrial, spec: Spec) -> None:
        self.message = message
        self.trial = trial
        self.spec = spec

    @property
    def trial_id(self) -> str:
        """The trial."""
        return self.trial.trial_id

    @property
    def tick_id(self) -> int:
        """The tick, from 0."""
        return self.message.tick_id

    @property
    def timestamp(self) -> int:
        """When the tick began: nanoseconds since the epoch."""
        return self.message.timestamp

    @property
    def state(self) -> int:
        """The trial's state at the end of the tick, a `TrialState`; the last sample has ENDED."""
        return self.message.state

    @property
    def special_events(self) -> Sequence[str]:
        """What the orchestrator had to say about this tick."""
        return self.message.special_events

    @property
    def default_actors(self) -> list[str]:
        """The actors for which their default action was taken."""
        return [self.name(actor) for actor in self.message.default_actors]

    @property
    def unavailable_actors(self) -> list[str]:
        """The actors that were not there."""
        return [self.name(actor) for actor in self.message.unavailable_actors]

    @cached_property
    def actors(self) -> dict[str, ActorSample]:
        """What is stored of each actor (of those selected), by name."""
        samples = [ActorSample(self, message) for message in self.message.actor_samples]
        return {sample.name: sample for sample in samples}

    def name(self, actor: int) -> str:
        """Return an actor's name; an empty one for who is no actor."""
        if actor == _NOT_AN_ACTOR:
            return ""
        if not 0 <= actor < len(self.trial.params.actors):
            raise RemoteProtocolError(f"sample of {self.trial_id}: there is no actor {actor}")
        return self.trial.params.actors[actor].name

    def payload(self, index: int) -> bytes:
        """Return a payload by its index."""
        if index >= len(self.message.payloads):
            raise RemoteProtocolError(f"sample of {self.trial_id}: there is no payload {index}")
        return self.message.payloads[index]

    def any(self, index: int) -> AnyMessage:
        """Return a payload that is a message of any type."""
        try:
            return AnyMessage.FromString(self.payload(index))
        except DecodeError:
            raise RemoteProtocolError(f"sample of {self.trial_id}: payload {index} is no google.protobuf.Any") from None
