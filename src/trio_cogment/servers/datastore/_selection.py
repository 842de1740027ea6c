"""The selection of actors and fields that a reader asks for."""

from __future__ import annotations

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.trial_datastore_pb2 import (
    RetrieveSamplesRequest,
    StoredTrialActorSample,
    StoredTrialSample,
    StoredTrialSampleField,
)
from trio_cogment.base.errors import InvalidArgumentError

#: The fields of an actor's sample, by the numbers a request has for them; 0 stands for nothing.
_FIELDS: dict[int, str] = {
    StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_OBSERVATION: "observation",
    StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_ACTION: "action",
    StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_REWARD: "reward",
    StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_RECEIVED_REWARDS: "received_rewards",
    StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_SENT_REWARDS: "sent_rewards",
    StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_RECEIVED_MESSAGES: "received_messages",
    StoredTrialSampleField.STORED_TRIAL_SAMPLE_FIELD_SENT_MESSAGES: "sent_messages",
}
_KNOWN = frozenset(StoredTrialSampleField.values())


class Selection:
    """What a request asks for.

    Args:
        request: every list in it narrows the choice, an empty one does not.

    Raises:
        InvalidArgumentError: it names a field that does not exist.

    Attributes:
        everything: nothing is left out, so that samples need not be looked into.
    """

    def __init__(self, request: RetrieveSamplesRequest) -> None:
        wanted = set(request.selected_sample_fields)
        unknown = wanted - _KNOWN
        if unknown:
            raise InvalidArgumentError(f"selected_sample_fields: {min(unknown)} is not a field of a sample")
        self._names = frozenset(request.actor_names)
        self._classes = frozenset(request.actor_classes)
        self._implementations = frozenset(request.actor_implementations)
        self._unwanted = [name for number, name in _FIELDS.items() if number not in wanted] if wanted else []
        self._every_actor = not (self._names or self._classes or self._implementations)
        self.everything = self._every_actor and not wanted

    def actors(self, params: TrialParams) -> frozenset[int] | None:
        """Return the actors of a trial that are asked for, by their indexes; None: all."""
        if self._every_actor:
            return None
        return frozenset(
            index
            for index, actor in enumerate(params.actors)
            if (not self._names or actor.name in self._names)
            and (not self._classes or actor.actor_class in self._classes)
            and (not self._implementations or actor.implementation in self._implementations)
        )

    def apply(self, sample: StoredTrialSample, actors: frozenset[int] | None) -> None:
        """Take out of a sample what is not asked for.

        What is said of the sample as a whole stays. Payloads keep their places: those that nothing points to any more
        become empty. Doing it twice changes nothing.

        Args:
            sample: is changed.
            actors: see `actors`.
        """
        if actors is not None:
            _keep_actors(sample, actors)
        for actor_sample in sample.actor_samples:
            for name in self._unwanted:
                actor_sample.ClearField(name)
        used = set[int]()
        for actor_sample in sample.actor_samples:
            _collect_payloads(actor_sample, used)
        payloads = sample.payloads[:]
        del sample.payloads[:]
        sample.payloads.extend(payload if index in used else b"" for index, payload in enumerate(payloads))


def _keep_actors(sample: StoredTrialSample, actors: frozenset[int]) -> None:
    kept = [actor_sample for actor_sample in sample.actor_samples if actor_sample.actor in actors]
    if len(kept) < len(sample.actor_samples):
        copies = StoredTrialSample(actor_samples=kept)
        del sample.actor_samples[:]
        sample.actor_samples.MergeFrom(copies.actor_samples)
    for indexes in (sample.default_actors, sample.unavailable_actors, sample.held_actors):
        known = [index for index in indexes if index in actors]
        del indexes[:]
        indexes.extend(known)


def _collect_payloads(actor_sample: StoredTrialActorSample, used: set[int]) -> None:
    if actor_sample.HasField("observation"):
        used.add(actor_sample.observation)
    if actor_sample.HasField("action"):
        used.add(actor_sample.action)
    for rewards in (actor_sample.received_rewards, actor_sample.sent_rewards):
        used.update(reward.user_data for reward in rewards if reward.HasField("user_data"))
    for messages in (actor_sample.received_messages, actor_sample.sent_messages):
        used.update(message.payload for message in messages)
