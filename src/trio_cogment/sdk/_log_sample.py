"""A sample as a data log receives it, with names instead of indexes, and payloads of their declared types."""

from __future__ import annotations

from collections.abc import Sequence

from google.protobuf.message import DecodeError

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.base.errors import InvalidArgumentError, RemoteProtocolError
from trio_cogment.sdk._events import ActorStatus, RecvAction, RecvMessage, RecvObservation, RecvReward
from trio_cogment.sdk.spec import ActorClass, Spec, decode


class LogSample:
    """One tick of a trial.

    What the trial's `datalog_exclude_fields` leave out is empty here: numbers are 0, and the state is UNKNOWN.

    Attributes:
        message: the message of the API.
        params: the parameters of the trial.
        spec: the types of the payloads.
    """

    def __init__(self, message: DatalogSample, params: TrialParams, spec: Spec | None = None) -> None:
        self.message = message
        self.params = params
        self.spec = spec or Spec()

    @classmethod
    def deserialize(cls, data: bytes, params: TrialParams, spec: Spec | None = None) -> LogSample:
        """Return the sample that `serialize`, or the published SDK's `LogSample.serialize` (type 2), has written.

        Raises:
            InvalidArgumentError: the bytes are not a sample.
        """
        try:
            return cls(DatalogSample.FromString(data), params, spec)
        except DecodeError:
            raise InvalidArgumentError(f"sample: expected a serialized DatalogSample, got {len(data)} bytes") from None

    def serialize(self) -> bytes:
        """Return the sample as bytes; the trial's parameters are not part of them."""
        return self.message.SerializeToString()

    @property
    def tick_id(self) -> int:
        """The number of the tick, from 0."""
        return self.message.info.tick_id

    @property
    def timestamp(self) -> int:
        """When the tick began, in nanoseconds since the epoch."""
        return self.message.info.timestamp

    @property
    def state(self) -> int:
        """The trial's state at the end of the tick, a `TrialState`; the last sample has ENDED."""
        return self.message.info.state

    @property
    def out_of_sync(self) -> bool:
        """Whether the sample only adds rewards to a tick whose sample came before."""
        return self.message.info.out_of_sync

    @property
    def special_events(self) -> Sequence[str]:
        """Remarks of the orchestrator about this tick."""
        return self.message.info.special_events

    @property
    def actor_names(self) -> list[str]:
        """The names of the actors, in the order of the parameters."""
        return [actor.name for actor in self.params.actors]

    def observation(self, actor: int | str) -> RecvObservation | None:
        """Return what an actor, given by its index or name, observed in this tick; None if the sample has none.

        Raises:
            InvalidArgumentError: there is no such actor.
        """
        index, kind = self._actor(actor)
        if not self.message.HasField("observations"):
            return None
        found = self.message.observations
        try:
            content = found.observations[found.actors_map[index]]
        except IndexError:
            raise RemoteProtocolError(f"sample {self.tick_id}: no observation of actor {actor!r}") from None
        payload = decode(content, kind.observation, f"sample {self.tick_id}: observation of {actor!r}")
        # Environments leave the tick to the orchestrator, with -1.
        return RecvObservation(self.tick_id if found.tick_id < 0 else found.tick_id, found.timestamp, payload)

    def action(self, actor: int | str) -> RecvAction | None:
        """Return what an actor, given by its index or name, did in this tick; None if the sample has no actions.

        Raises:
            InvalidArgumentError: there is no such actor.
        """
        index, kind = self._actor(actor)
        if index >= len(self.message.actions):
            return None
        found = self.message.actions[index]
        if index in self.message.unavailable_actors:
            return RecvAction(index, ActorStatus.UNAVAILABLE, None, found.tick_id)
        what = f"sample {self.tick_id}: action of {actor!r}"
        if index in self.message.default_actors:
            # The sample does not repeat what the parameters say.
            payload = decode(self.params.actors[index].default_action.content, kind.action, what)
            return RecvAction(index, ActorStatus.DEFAULT, payload, found.tick_id)
        payload = decode(found.content, kind.action, what)
        if index in self.message.held_actors:
            return RecvAction(index, ActorStatus.HELD, payload, found.tick_id, found.timestamp)
        return RecvAction(index, ActorStatus.ACTIVE, payload, found.tick_id, found.timestamp)

    @property
    def rewards(self) -> list[RecvReward]:
        """The rewards of this tick, one for each actor that got any."""
        return [
            RecvReward(reward.tick_id, reward.value, list(reward.sources), reward.receiver_name)
            for reward in self.message.rewards
        ]

    @property
    def messages(self) -> list[RecvMessage]:
        """The messages of this tick."""
        return [
            RecvMessage(message.tick_id, message.sender_name, message.payload, message.receiver_name)
            for message in self.message.messages
        ]

    def _actor(self, actor: int | str) -> tuple[int, ActorClass]:
        names = self.actor_names
        index = names.index(actor) if isinstance(actor, str) and actor in names else actor
        if not (isinstance(index, int) and 0 <= index < len(names)):
            known = ", ".join(map(repr, names))
            raise InvalidArgumentError(f"actor: expected an index, or one of {known}, got {actor!r}")
        return index, self.spec.actor_class(self.params.actors[index].actor_class)
