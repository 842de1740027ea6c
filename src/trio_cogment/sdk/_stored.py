"""Stored trials as objects, with names instead of indexes, and payloads of their declared types."""

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
from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.base.outcome import TrialOutcome
from trio_cogment.base.stand_ins import StandIn, stand_in_of
from trio_cogment.sdk.spec import Spec, decode

if TYPE_CHECKING:
    import numpy as np


# Arrays in payloads: the `Array` message of cogment-lab and cogment-verse as NumPy arrays.
#
# NumPy is imported when the first array is requested: `pip install trio-cogment[arrays]`.

_ARRAY_FIELDS = ("dtype", "shape", "raw_data", "npy_data")
#: The field of an observation or action that holds the array.
_WRAPPER_FIELD = "value"


def array_message(payload: Any) -> Message | None:
    """Return the `Array` message that a payload is, or holds in its field `value`; None if there is none."""
    if not isinstance(payload, Message):
        return None
    if all(name in payload.DESCRIPTOR.fields_by_name for name in _ARRAY_FIELDS):
        return payload
    inner = payload.DESCRIPTOR.fields_by_name.get(_WRAPPER_FIELD)
    if inner is None or inner.message_type is None or inner.is_repeated:
        return None
    found: Message = getattr(payload, _WRAPPER_FIELD)
    return array_message(found) if payload.HasField(_WRAPPER_FIELD) else None


def as_array(payload: Any) -> np.ndarray[Any, Any]:
    """Return the array that a payload is, or holds in its field `value`.

    The array is read-only: copy it to change it.

    Raises:
        InvalidArgumentError: the payload is not an array, its type is unknown, or its data does not match its shape.
        MissingExtraError: NumPy is not installed.
    """
    message = array_message(payload)
    if message is None:
        raise InvalidArgumentError(f"payload: expected an array, got {type(payload).__name__}")
    from trio_cogment.spaces.arrays import decode_array  # imports NumPy
    from trio_cogment.spaces.errors import SpaceError

    try:
        return decode_array(message)
    except SpaceError as error:
        raise error.of("array") from None


#: The index of an actor that stands for the environment.
_NOT_AN_ACTOR = -1


@dataclass(frozen=True, slots=True)
class StoredTrial:
    """The description of a stored trial.

    Attributes:
        trial_id: the trial's id.
        user_id: the user who started it.
        state: the `TrialState` of its last sample; ENDED when no more samples will come.
        samples_count: the number of ticks with a sample, including those that the datastore had to evict.
        params: the parameters of the trial.
        ended_abnormally: whether its orchestrator went away without sending a last sample.
        outcome: how it ended; None if it has not, or its last sample does not say.
        storage_trouble: why its last samples could not be stored; they wait at its orchestrator, where it may have
            ended. Empty: none of them is known to wait.
        orchestrator: where its orchestrator is reached, `grpc://host:port`; empty: it has not said so.
        stored_bytes: what it takes in the datastore's storage; 0: that is not known.
        raw_bytes: what its samples have as serialized messages; 0: that is not known.
    """

    trial_id: str
    user_id: str
    state: int
    samples_count: int
    params: TrialParams
    ended_abnormally: bool = False
    outcome: TrialOutcome | None = None
    storage_trouble: str = ""
    orchestrator: str = ""
    stored_bytes: int = 0
    raw_bytes: int = 0

    @classmethod
    def of(cls, info: StoredTrialInfo) -> StoredTrial:
        """Return the trial that a message of the API describes."""
        outcome = TrialOutcome.of(info.trial_id, info.end) if info.HasField("end") else None
        return cls(
            info.trial_id,
            info.user_id,
            info.last_state,
            info.samples_count,
            info.params,
            info.ended_abnormally,
            outcome,
            info.storage_trouble,
            info.orchestrator,
            info.stored_bytes,
            info.raw_bytes,
        )

    @property
    def ended(self) -> bool:
        """Whether no more samples will come."""
        return self.state == TrialState.ENDED

    @property
    def is_complete(self) -> bool:
        """Whether the trial has ended and every one of its samples is stored.

        A trial whose last sample does not say how it ended counts as complete when it has ended.
        """
        outcome = self.outcome
        lost = outcome is not None and (outcome.samples_lost > 0 or self.samples_count < outcome.ticks)
        return self.ended and not self.ended_abnormally and not lost

    @property
    def actor_names(self) -> list[str]:
        """The names of the actors, in the order of the parameters."""
        return [actor.name for actor in self.params.actors]


@dataclass(frozen=True, slots=True)
class StoredReward:
    """The reward from one source. An empty name stands for the environment."""

    sender: str
    receiver: str
    value: float
    confidence: float
    #: Unpack it with `user_data.Unpack(...)`.
    user_data: AnyMessage | None


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message. An empty name stands for the environment."""

    sender: str
    receiver: str
    #: Unpack it with `payload.Unpack(...)`.
    payload: AnyMessage


class ActorSample:
    """The data of one actor in a tick. Fields that were not selected, or do not exist, are None or empty.

    Attributes:
        name: the actor's name.
        message: the message of the API.
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
    def observation_bytes(self) -> bytes | None:
        """The observation as it was sent."""
        return self._sample.payload(self.message.observation) if self.message.HasField("observation") else None

    @property
    def action_bytes(self) -> bytes | None:
        """The action as it was sent."""
        return self._sample.payload(self.message.action) if self.message.HasField("action") else None

    @property
    def action(self) -> Any:
        """The action, of the type that the spec declares, or bytes; None also if the actor was unavailable."""
        return self._decode(self.message.action, "action") if self.message.HasField("action") else None

    @property
    def reward(self) -> float | None:
        """The mean of the received rewards, weighted by confidence; None without any."""
        return self.message.reward if self.message.HasField("reward") else None

    @property
    def received_rewards(self) -> list[StoredReward]:
        """The received rewards, one for each source."""
        return [self._reward(reward) for reward in self.message.received_rewards]

    @property
    def sent_rewards(self) -> list[StoredReward]:
        """The rewards sent to actors."""
        return [self._reward(reward) for reward in self.message.sent_rewards]

    @property
    def received_messages(self) -> list[StoredMessage]:
        """The received messages."""
        return [self._message(message) for message in self.message.received_messages]

    @property
    def sent_messages(self) -> list[StoredMessage]:
        """The sent messages."""
        return [self._message(message) for message in self.message.sent_messages]

    @property
    def stand_in(self) -> StandIn | None:
        """What acted for a person who was away; None: the actor itself did."""
        sent = self.message.sent_messages
        return stand_in_of(self._sample.any(one.payload) for one in sent if one.receiver == self.message.actor)

    def observation_array(self) -> np.ndarray[Any, Any]:
        """Return the observation as a NumPy array.

        Raises:
            InvalidArgumentError: it is not an array.
        """
        return as_array(self.observation)

    def action_array(self) -> np.ndarray[Any, Any]:
        """Return the action as a NumPy array.

        Raises:
            InvalidArgumentError: it is not an array.
        """
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
        trial: the trial, as it was when the samples were requested.
        message: the message of the API.
        spec: the types of the payloads.
    """

    def __init__(self, message: StoredTrialSample, trial: StoredTrial, spec: Spec) -> None:
        self.message = message
        self.trial = trial
        self.spec = spec

    @property
    def trial_id(self) -> str:
        """The id of the trial."""
        return self.trial.trial_id

    @property
    def tick_id(self) -> int:
        """The number of the tick, from 0."""
        return self.message.tick_id

    @property
    def timestamp(self) -> int:
        """When the tick began, in nanoseconds since the epoch."""
        return self.message.timestamp

    @property
    def state(self) -> int:
        """The trial's state at the end of the tick, a `TrialState`; the last sample has ENDED."""
        return self.message.state

    @property
    def special_events(self) -> Sequence[str]:
        """Remarks of the orchestrator about this tick."""
        return self.message.special_events

    @property
    def default_actors(self) -> list[str]:
        """The actors whose default action was used."""
        return [self.name(actor) for actor in self.message.default_actors]

    @property
    def held_actors(self) -> list[str]:
        """The actors whose last action was taken again."""
        return [self.name(actor) for actor in self.message.held_actors]

    @property
    def unavailable_actors(self) -> list[str]:
        """The actors that were not available."""
        return [self.name(actor) for actor in self.message.unavailable_actors]

    @cached_property
    def actors(self) -> dict[str, ActorSample]:
        """The data of each selected actor, by name."""
        samples = [ActorSample(self, message) for message in self.message.actor_samples]
        return {sample.name: sample for sample in samples}

    def name(self, actor: int) -> str:
        """Return the name of an actor by its index; empty for the environment."""
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
        """Return a payload that is a `google.protobuf.Any`, by its index."""
        try:
            return AnyMessage.FromString(self.payload(index))
        except DecodeError:
            raise RemoteProtocolError(f"sample of {self.trial_id}: payload {index} is not a protobuf Any") from None
