"""The conversion of a data log's sample to what is stored, without I/O.

`TrialConverter` is the full conversion, for every sample. It is done for every tick of every trial, so samples that are
like an earlier one of their trial take a fast path, which is learned from the full one: that of
`_conversion_templates`, or that of `_conversion_varying` where the lengths of payloads differ. Samples that are objects
yet have one of their own, `_conversion_shared`.

What differs from the reference, and why, is in `docs/datastore.md`. In short: a reader finds everything that the data
log was told, and can tell an action that never came from an empty one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from trio_cogment.api.common_pb2 import Action, Message, Reward, RewardSource, TrialParams, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import StoredTrialActorSample, StoredTrialSample
from trio_cogment.base.addressing import ActorAddresses
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.rewards import RewardMean
from trio_cogment.base.shared_message import SharedSample
from trio_cogment.servers.datastore._chunk_layouts import joined, size_of
from trio_cogment.servers.datastore._conversion_shared import SharedTemplates
from trio_cogment.servers.datastore._conversion_templates import Deliveries, Templates
from trio_cogment.servers.datastore._conversion_varying import VaryingTemplates
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER
from trio_cogment.servers.datastore.storage import SampleWrite, WriteKind

#: Rewards and messages of one sample, each counted once for each receiver: a few bytes may stand for many deliveries.
MAX_DELIVERIES = 100_000
#: After this many deliveries other tasks get a turn.
_STEP = 1000
#: The sender or receiver of a reward or message that is not an actor.
ENVIRONMENT = -1
#: The tick of an action that never came.
_NO_ACTION_TICK = -2
#: Stored samples with more bytes do not become templates: learning takes time for each field.
_MAX_LEARNED_BYTES = 16 * 1024

T = TypeVar("T")

_STATES = frozenset(TrialState.values())
#: Looking up a member of a protobuf or `enum` enumeration takes as long as half of a conversion.
_ENDED = TrialState.ENDED
_LOGGED, _LATE = WriteKind.LOGGED, WriteKind.LATE


class TrialConverter:
    """Converts the samples of one trial, in the order of their arrival.

    A sample without `info` (which a trial's parameters may exclude) is numbered in the order of arrival, and its
    timestamp is that of its observations.

    Args:
        trial_id: of the trial.
        params: of the trial; not changed, and not to be changed by others.
        next_tick: the tick of the first sample, if it has no `info`.
        attempt: which run of the trial this is; 0: that does not count.

    Attributes:
        saw_end: a sample said that the trial has ended.
        info_missing: a sample had no `info`, so maybe none will ever say that the trial has ended.
        next_tick: the tick of the next sample, if it has no `info`.
        templates: the fast path, for most samples.
        varying: that of samples whose payloads vary in length.
    """

    def __init__(self, trial_id: str, params: TrialParams, *, next_tick: int = 0, attempt: int = 0) -> None:
        self._trial_id = trial_id
        self._attempt = attempt
        self.next_tick = next_tick
        self._count = len(params.actors)
        self._defaults = [actor.default_action.content for actor in params.actors]
        self._addresses = ActorAddresses((actor.name, actor.actor_class) for actor in params.actors)
        self._index = self._addresses.by_name
        #: A stored sample with nothing in it. Copying it is faster than making one.
        self._blank = StoredTrialSample(
            trial_id=trial_id, actor_samples=[StoredTrialActorSample(actor=index) for index in range(self._count)]
        )
        self._receivers: dict[str, Sequence[int]] = {}
        self.templates = Templates()
        self.varying = VaryingTemplates()
        self._shared = SharedTemplates()
        self.saw_end = False
        self.info_missing = False

    def write(self, sample: DatalogSample) -> SampleWrite:
        """Convert a sample and serialise it.

        Raises:
            InvalidArgumentError: see `convert`; nothing has changed then.
        """
        write = self.write_by_template(sample) or _last(self.writing(sample))
        return write._replace(data=joined(write.data))

    def write_by_template(self, sample: DatalogSample) -> SampleWrite | None:
        """Convert a sample by a fast path to its parts; None: there is no template for it, use `writing`."""
        return self.write_encoded(sample.SerializeToString())

    def write_encoded(self, data: bytes) -> SampleWrite | None:
        """Do as `write_by_template` for a serialised sample, whoever has serialised it."""
        write = self.templates.convert(data)
        if write is None and not self.templates.wanted:
            write = self.varying.convert(data)
        if write is not None:
            self._logged(write[1], write[3])
        return write

    def write_at_once(self, sample: DatalogSample) -> SampleWrite | None:
        """Convert a sample if that is one step of some milliseconds at most; None: use `writing`.

        Raises:
            InvalidArgumentError: see `convert`; nothing has changed then.
        """
        return self.write_by_template(sample) or next(self.writing(sample))

    def write_shared(self, sample: SharedSample) -> SampleWrite | None:
        """Do as `write_at_once` for a sample that is shared.

        Raises:
            InvalidArgumentError: see `convert`; nothing has changed then.
        """
        writes = self.writes_of([sample])
        return writes[0] if writes else next(self.writing_shared(sample))

    def writes_of(self, samples: Sequence[SharedSample], start: int = 0) -> list[SampleWrite]:
        """Convert samples from one of them on, up to the first that has no template: that is for `writing_shared`."""
        writes = self._shared.convert(samples, start)
        if writes:
            self._logged(writes[-1].tick_id, writes[-1].state)
        return writes

    def writing_shared(self, sample: SharedSample) -> Iterator[SampleWrite | None]:
        """Do as `writing` for a sample that is shared, and that has no template.

        Raises:
            InvalidArgumentError: see `convert`; nothing has changed then.
        """
        whole = sample.whole()
        for write in self._in_full(whole):
            if write is not None and self._shared.wanted:
                self._shared.learn(write, self._deliveries(whole))
            yield write

    def writing(self, sample: DatalogSample) -> Iterator[SampleWrite | None]:
        """Convert a sample in full, in steps of some milliseconds: yield None after each, then the result.

        Nothing has changed before the last step.

        Raises:
            InvalidArgumentError: see `convert`.
        """
        for write in self._in_full(sample):
            if write is not None:
                if self.templates.wanted:
                    if size_of(write.data) <= _MAX_LEARNED_BYTES:
                        self._learn(self.templates, sample, write)
                elif self.varying.wanted:
                    self._learn(self.varying, sample, write)
            yield write

    def _in_full(self, sample: DatalogSample) -> Iterator[SampleWrite | None]:
        converted: tuple[StoredTrialSample, WriteKind] | None = None
        for converted in self._converting(sample):
            if converted is None:
                yield None
        assert converted is not None
        stored, kind = converted
        data = stored.SerializeToString()
        said = self._trial_id, stored.tick_id, stored.timestamp, stored.state, data, kind
        yield SampleWrite(*said, attempt=self._attempt)

    def _learn(self, templates: Templates | VaryingTemplates, sample: DatalogSample, write: SampleWrite) -> None:
        # There is one end in a trial.
        if write.kind is not _LOGGED or not sample.HasField("info") or sample.messages or sample.info.HasField("end"):
            return
        if sample.observations.HasField("checkpoint"):  # no two are alike
            return
        if any(source.HasField("user_data") for reward in sample.rewards for source in reward.sources):
            return
        templates.learn(sample, write, self._deliveries(sample))

    def _deliveries(self, sample: DatalogSample) -> Deliveries:
        received: dict[int, list[int]] = {}
        sent: dict[int, list[int]] = {}
        sources = [(reward, source) for reward in sample.rewards for source in reward.sources]
        for number, (reward, source) in enumerate(sources):
            sender = self._index.get(source.sender_name, ENVIRONMENT)
            for receiver in self._receivers_of(reward.receiver_name):
                received.setdefault(receiver, []).append(number)
                if sender >= 0:
                    sent.setdefault(sender, []).append(number)
        return Deliveries(received, sent)

    def convert(self, sample: DatalogSample) -> tuple[StoredTrialSample, WriteKind]:
        """Convert a sample; it is only read.

        Raises:
            InvalidArgumentError: an index or value in it is invalid, or it has too many deliveries; the text names the
                field.
        """
        return _last(self._converting(sample))

    def _converting(self, sample: DatalogSample) -> Iterator[tuple[StoredTrialSample, WriteKind] | None]:
        _check_size(sample)
        stored = StoredTrialSample()
        stored.CopyFrom(self._blank)
        kind = self._take_info(sample, stored)
        # Repeated fields are read by slices: going through them entry by entry takes three times as long.
        samples = stored.actor_samples[:]
        payloads: list[bytes] = []
        if sample.HasField("observations"):
            self._take_observations(sample.observations, samples, payloads)
            if sample.observations.HasField("checkpoint"):
                stored.checkpoint.CopyFrom(sample.observations.checkpoint)
        unavailable: Sequence[int] = ()
        defaults: Collection[int] = ()
        if sample.unavailable_actors or sample.default_actors or sample.held_actors:
            unavailable, defaults = sample.unavailable_actors[:], frozenset(sample.default_actors)
            self._take_absences(sample, stored)
        self._take_actions(sample.actions[:], unavailable, defaults, samples, payloads)
        if sample.rewards:
            yield from self._take_rewards(sample.rewards[:], samples, payloads)
        if sample.messages:
            yield from self._take_messages(sample.messages[:], samples, payloads)
        stored.payloads.extend(payloads)
        if kind is _LOGGED:
            self._logged(stored.tick_id, stored.state)
        yield stored, kind

    def _logged(self, tick_id: int, state: int) -> None:
        self.next_tick = tick_id + 1
        if state == _ENDED:
            self.saw_end = True

    def _take_info(self, sample: DatalogSample, stored: StoredTrialSample) -> WriteKind:
        if not sample.HasField("info"):
            self.info_missing = True
            return self._number(sample, stored)
        info = sample.info
        tick_id, timestamp, state = info.tick_id, info.timestamp, info.state
        if tick_id >= MAX_NUMBER:
            raise InvalidArgumentError(f"sample.info.tick_id: expected less than 2**63 - 1, got {tick_id}")
        if timestamp > MAX_NUMBER:
            raise InvalidArgumentError(f"sample.info.timestamp: expected less than 2**63 nanoseconds, got {timestamp}")
        if state not in _STATES:
            raise InvalidArgumentError(f"sample.info.state: {state} is not a trial state")
        stored.tick_id = tick_id
        stored.timestamp = timestamp
        stored.state = state
        if info.special_events:
            stored.special_events.extend(info.special_events)
        if info.HasField("end"):
            stored.end.CopyFrom(info.end)
        return _LATE if info.out_of_sync else _LOGGED

    def _number(self, sample: DatalogSample, stored: StoredTrialSample) -> WriteKind:
        stored.timestamp = min(sample.observations.timestamp, MAX_NUMBER)
        rewards = sample.rewards
        if len(sample.ListFields()) == 1 and rewards and 0 <= rewards[0].tick_id < self.next_tick:
            # Nothing but rewards, for a tick that is over: only an out-of-sync sample looks like that.
            stored.tick_id = rewards[0].tick_id
            return _LATE
        stored.tick_id = self.next_tick
        return _LOGGED

    def _take_observations(
        self, observations: ObservationSet, samples: Sequence[StoredTrialActorSample], payloads: list[bytes]
    ) -> None:
        payloads += observations.observations[:]
        size = len(payloads)
        # The map may have more entries than there are actors; the others belong to none.
        for stored, content in zip(samples, observations.actors_map[:], strict=False):
            if not 0 <= content < size:
                raise InvalidArgumentError(
                    f"sample.observations.actors_map: expected indexes of {size} observations, got {content}"
                )
            stored.observation = content

    def _take_absences(self, sample: DatalogSample, stored: StoredTrialSample) -> None:
        for name, indexes in (
            ("unavailable_actors", sample.unavailable_actors),
            ("default_actors", sample.default_actors),
            ("held_actors", sample.held_actors),
        ):
            if indexes and max(indexes) >= self._count:
                raise InvalidArgumentError(
                    f"sample.{name}: expected indexes of {self._count} actors, got {max(indexes)}"
                )
        stored.unavailable_actors.extend(sample.unavailable_actors)
        stored.default_actors.extend(sample.default_actors)
        stored.held_actors.extend(sample.held_actors)

    def _take_actions(
        self,
        actions: Sequence[Action],
        unavailable: Sequence[int],
        defaults: Collection[int],
        samples: Sequence[StoredTrialActorSample],
        payloads: list[bytes],
    ) -> None:
        if len(actions) > self._count:
            raise InvalidArgumentError(f"sample.actions: expected at most {self._count}, got {len(actions)}")
        missing = frozenset(unavailable) if unavailable else ()
        for index, action in enumerate(actions):
            if index in missing:
                continue
            if action.tick_id != _NO_ACTION_TICK:
                content = action.content
            elif index in defaults:
                content = self._defaults[index]  # the environment got the default action
            else:
                continue
            samples[index].action = len(payloads)
            payloads.append(content)

    def _take_rewards(
        self, rewards: Sequence[Reward], samples: Sequence[StoredTrialActorSample], payloads: list[bytes]
    ) -> Iterator[None]:
        given: list[tuple[Sequence[RewardSource], Sequence[int]]] = []
        deliveries = 0
        for reward in rewards:
            receivers = self._receivers_of(reward.receiver_name)
            if receivers:
                deliveries += len(reward.sources) * len(receivers)
                _check_deliveries("rewards", deliveries)
                given.append((reward.sources[:], receivers))
        means: defaultdict[int, RewardMean] = defaultdict(RewardMean)
        delivered = 0
        for sources, receivers in given:
            for source in sources:
                delivered += len(receivers)
                if delivered > _STEP:
                    delivered = 0
                    yield
                sender = self._index.get(source.sender_name, ENVIRONMENT)
                value, confidence = source.value, source.confidence
                data: int | None = None
                if source.HasField("user_data") and (source.user_data.type_url or source.user_data.value):
                    data = len(payloads)
                    payloads.append(source.user_data.SerializeToString())
                for receiver in receivers:
                    # Setting fields takes half the time of keyword arguments.
                    entry = samples[receiver].received_rewards.add()
                    entry.sender = sender
                    entry.receiver = receiver
                    entry.reward = value
                    entry.confidence = confidence
                    if data is not None:
                        entry.user_data = data
                    if sender >= 0:
                        samples[sender].sent_rewards.append(entry)
                    means[receiver].add(value, confidence)
        for receiver, mean in means.items():
            samples[receiver].reward = mean.value

    def _take_messages(
        self, messages: Sequence[Message], samples: Sequence[StoredTrialActorSample], payloads: list[bytes]
    ) -> Iterator[None]:
        given = [(message, self._receivers_of(message.receiver_name)) for message in messages]
        _check_deliveries("messages", sum(len(receivers) for _, receivers in given))
        delivered = 0
        for message, receivers in given:
            delivered += len(receivers) + 1
            if delivered > _STEP:
                delivered = 0
                yield
            sender = self._index.get(message.sender_name, ENVIRONMENT)
            if sender < 0 and not receivers:
                continue  # it belongs to no actor, so no reader could find it
            payload = len(payloads)
            # A missing payload reads as an empty `Any`, which serialises to nothing, too.
            payloads.append(message.payload.SerializeToString())
            for receiver in receivers:
                entry = samples[receiver].received_messages.add(sender=sender, receiver=receiver, payload=payload)
                if sender >= 0:
                    samples[sender].sent_messages.append(entry)
            if not receivers:
                samples[sender].sent_messages.add(sender=sender, receiver=ENVIRONMENT, payload=payload)

    def _receivers_of(self, pattern: str) -> Sequence[int]:
        found = self._receivers.get(pattern)
        if found is None:
            found = self._addresses.resolve(pattern)
            # Patterns come from outside. Only those with receivers are kept, so that their number is bounded.
            if found:
                self._receivers[pattern] = found
        return found


def _check_size(sample: DatalogSample) -> None:
    # Before anything is made of the entries: what is addressed to nobody is an object, too.
    for field, entries in (
        ("rewards", sample.rewards),
        ("messages", sample.messages),
        ("observations.observations", sample.observations.observations),
        ("observations.actors_map", sample.observations.actors_map),
        ("unavailable_actors", sample.unavailable_actors),
        ("default_actors", sample.default_actors),
        ("held_actors", sample.held_actors),
    ):
        if len(entries) > MAX_DELIVERIES:
            raise InvalidArgumentError(f"sample.{field}: expected at most {MAX_DELIVERIES}, got {len(entries)}")


def _check_deliveries(field: str, count: int) -> None:
    if count > MAX_DELIVERIES:
        raise InvalidArgumentError(f"sample.{field}: expected at most {MAX_DELIVERIES}, each counted for each receiver")


def _last(steps: Iterable[T | None]) -> T:
    """Take all steps at once and return the result."""
    result: T | None = None
    for result in steps:  # noqa: B007  only the last one counts
        pass
    assert result is not None
    return result
