"""From the data log's samples to stored ones."""

from __future__ import annotations

from typing import Any, cast

import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from hypothesis import example, given
from hypothesis import strategies as st

from tests.servers.datastore.harness import ENDED, RUNNING, late_sample, params_with, sample_of
from trio_cogment.api.common_pb2 import (
    Action,
    Message,
    Reward,
    RewardSource,
    SerializedMessage,
    TrialParams,
    TrialState,
)
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.addressing import ActorAddresses
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.servers.datastore._chunk_layouts import joined
from trio_cogment.servers.datastore._conversion import MAX_DELIVERIES, TrialConverter
from trio_cogment.servers.datastore._conversion_templates import Templates
from trio_cogment.servers.datastore._protobuf_wire import find_places, number_of
from trio_cogment.servers.datastore._trial_service import check_sample, checking
from trio_cogment.servers.datastore.storage import SampleWrite, WriteKind

PARAMS = params_with("c0.ann", "c1.bob", "c0.ada")


def convert(sample: DatalogSample, params: TrialParams = PARAMS) -> StoredTrialSample:
    return TrialConverter("t", params).convert(sample)[0]


def test_everything_that_is_said_is_kept() -> None:
    sample = DatalogSample(
        info=SampleInfo(tick_id=4, timestamp=77, state=ENDED, special_events=["one", "two"]),
        observations=ObservationSet(observations=[b"seen", b"unused", b"other"], actors_map=[0, 2, 0]),
        actions=[Action(tick_id=4, content=b"A"), Action(tick_id=-2), Action(tick_id=-2)],
        default_actors=[1],
        unavailable_actors=[2],
    )
    params = TrialParams()
    params.CopyFrom(PARAMS)
    params.actors[1].default_action.CopyFrom(SerializedMessage(content=b"default"))
    write = TrialConverter("t", params).write(sample)
    stored = StoredTrialSample.FromString(joined(write.data))
    assert write[:4] == ("t", 4, 77, ENDED)
    assert write.kind is WriteKind.LOGGED
    assert (stored.trial_id, stored.user_id, stored.tick_id, stored.timestamp) == ("t", "", 4, 77)
    assert stored.state == ENDED
    assert list(stored.payloads) == [b"seen", b"unused", b"other", b"A", b"default"]
    assert [actor.actor for actor in stored.actor_samples] == [0, 1, 2]
    assert [actor.observation for actor in stored.actor_samples] == [0, 2, 0]
    assert [actor.action for actor in stored.actor_samples[:2]] == [3, 4]
    assert not stored.actor_samples[2].HasField("action")
    assert list(stored.special_events) == ["one", "two"]
    assert (list(stored.default_actors), list(stored.unavailable_actors)) == ([1], [2])


def test_an_empty_action_is_an_action_and_a_missing_one_is_none() -> None:
    actions = [Action(tick_id=0), Action(tick_id=-2, content=b"void")]
    stored = convert(sample_of(0, actors=3, actions=actions))
    assert [actor.HasField("action") for actor in stored.actor_samples] == [True, False, False]


def test_fields_that_were_left_out_are_left_out() -> None:
    stored = convert(DatalogSample(info=SampleInfo(tick_id=1, timestamp=2, state=RUNNING)))
    assert not stored.payloads
    assert [actor.ListFields()[1:] for actor in stored.actor_samples[1:]] == [[], []]


def test_entries_of_the_map_beyond_the_last_actor_are_nobodys() -> None:
    # The orchestrator lets an environment send them.
    observations = ObservationSet(observations=[b"o"], actors_map=[0, 0, 0, 9])
    assert len(convert(sample_of(0, actors=3, observations=observations)).actor_samples) == 3


RECEIVERS = {
    "ann": [0],
    "*": [0, 1, 2],
    "c0.*": [0, 2],
    "c1.bob": [1],
    "c0.bob": [],
    "*.ann": [],
    "*.*": [],
    "env": [],
    "": [],
    "c0": [],
    "nobody": [],
    "a.b": [3],
}


@pytest.mark.parametrize("pattern", RECEIVERS)
def test_receivers(pattern: str) -> None:
    params = TrialParams()
    params.CopyFrom(PARAMS)
    params.actors.add(name="a.b", actor_class="a")
    if pattern == "*":
        del params.actors[3:]
    reward = Reward(receiver_name=pattern, sources=[RewardSource(sender_name="bob", value=1, confidence=1)])
    message = Message(receiver_name=pattern, sender_name="bob", payload=AnyMessage(type_url="x/y", value=b"z"))
    stored = convert(sample_of(0, rewards=[reward], messages=[message]), params)
    rewarded = [actor.actor for actor in stored.actor_samples if actor.HasField("reward")]
    told = [actor.actor for actor in stored.actor_samples if actor.received_messages]
    assert rewarded == told == RECEIVERS[pattern]
    sender = stored.actor_samples[1]
    assert [sent.receiver for sent in sender.sent_rewards] == RECEIVERS[pattern]
    assert [sent.receiver for sent in sender.sent_messages] == (RECEIVERS[pattern] or [-1])


def test_rewards_of_a_tick_are_one_mean() -> None:
    def source(value: float, confidence: float) -> RewardSource:
        return RewardSource(sender_name="env", value=value, confidence=confidence)

    rewards = [
        Reward(receiver_name="ann", sources=[source(1, 1), source(4, 0.5)]),
        Reward(receiver_name="*", sources=[source(10, -1), source(2, 1.5)]),
        Reward(receiver_name="bob", value=9),
    ]
    ann, bob, _ = convert(sample_of(0, actors=3, rewards=rewards)).actor_samples
    assert ann.reward == pytest.approx((1 + 2 + 3) / 3)
    assert bob.reward == 2
    assert [entry.sender for entry in ann.received_rewards] == [-1] * 4
    assert [entry.receiver for entry in bob.received_rewards] == [1, 1]


def test_what_nobody_trusts_does_not_count_whatever_its_value() -> None:
    untrusted = [RewardSource(value=float("nan"), confidence=0), RewardSource(value=float("inf"), confidence=-1)]
    rewards = [Reward(receiver_name="ann", sources=[*untrusted, RewardSource(value=2, confidence=1)])]
    sample = sample_of(0, rewards=rewards)
    assert convert(sample).actor_samples[0].reward == 2
    check_written([sample] * 3)
    # By a template, too, where the first one had something to trust.
    known = sample_of(0, rewards=[Reward(receiver_name="ann", sources=[RewardSource(value=1, confidence=1)] * 2)])
    other = DatalogSample()
    other.CopyFrom(known)
    other.rewards[0].sources[0].MergeFrom(RewardSource(value=float("nan"), confidence=-1))
    check_written([known, other])


def test_values_that_are_no_numbers_survive() -> None:
    source = RewardSource(sender_name="ann", value=float("nan"), confidence=1)
    huge = RewardSource(sender_name="ann", value=3e38, confidence=3e38)
    stored = convert(
        sample_of(
            0,
            actors=3,
            rewards=[Reward(receiver_name="bob", sources=[source]), Reward(receiver_name="ann", sources=[huge])],
        )
    )
    assert str(stored.actor_samples[1].reward) == "nan"
    assert stored.actor_samples[0].reward == pytest.approx(3e38)


def test_messages_nobody_could_find_are_not_stored_and_one_without_payload_is_empty() -> None:
    messages = [
        Message(sender_name="env", receiver_name="env", payload=AnyMessage(value=b"monologue")),
        Message(sender_name="ann", receiver_name="bob"),
    ]
    stored = convert(sample_of(0, observations=None, actions=[], messages=messages))
    assert list(stored.payloads) == [b""]
    assert stored.actor_samples[1].received_messages[0].payload == 0


def test_the_same_sample_gives_the_same_bytes() -> None:
    rewards = [Reward(receiver_name="*", sources=[RewardSource(sender_name="ann", value=1, confidence=1)])] * 3
    sample = sample_of(3, actors=3, rewards=rewards)
    before = sample.SerializeToString()
    assert TrialConverter("t", PARAMS).write(sample) == TrialConverter("t", PARAMS).write(sample)
    assert sample.SerializeToString() == before


def test_samples_without_info_are_numbered_and_late_ones_found_their_tick() -> None:
    converter = TrialConverter("t", PARAMS, next_tick=5)
    plain = sample_of(0, actors=3, observations=ObservationSet(timestamp=9, observations=[b""], actors_map=[0] * 3))
    plain.ClearField("info")
    reward = Reward(tick_id=5, receiver_name="*", sources=[RewardSource(value=1, confidence=1)])
    future = Reward(tick_id=9, receiver_name="*", sources=[RewardSource(value=1, confidence=1)])
    samples = [plain, DatalogSample(rewards=[reward]), plain, DatalogSample(rewards=[future])]
    writes = [converter.write(sample) for sample in samples]
    assert [(write.tick_id, write.timestamp, write.kind) for write in writes] == [
        (5, 9, WriteKind.LOGGED),
        (5, 0, WriteKind.LATE),
        (6, 9, WriteKind.LOGGED),
        (7, 0, WriteKind.LOGGED),
    ]
    assert converter.info_missing
    assert not converter.saw_end


def test_a_sample_without_info_is_late_only_if_it_has_nothing_but_rewards() -> None:
    past = Reward(tick_id=0, receiver_name="ann", sources=[RewardSource(sender_name="env", value=1, confidence=1)])
    observed = ObservationSet(observations=[b"o"], actors_map=[0, 0, 0], timestamp=9)
    stored, kind = TrialConverter("t", PARAMS, next_tick=3).convert(
        DatalogSample(observations=observed, rewards=[past])
    )
    assert (stored.tick_id, kind) == (3, WriteKind.LOGGED)
    stored, kind = TrialConverter("t", PARAMS, next_tick=3).convert(DatalogSample(rewards=[past]))
    assert (stored.tick_id, kind) == (0, WriteKind.LATE)
    coming = Reward(tick_id=3, receiver_name="ann")
    stored, kind = TrialConverter("t", PARAMS, next_tick=3).convert(DatalogSample(rewards=[coming]))
    assert (stored.tick_id, kind) == (3, WriteKind.LOGGED)


def test_out_of_sync_samples_are_late_and_end_nothing() -> None:
    converter = TrialConverter("t", PARAMS)
    sample = late_sample(3)
    sample.info.state = ENDED
    assert converter.write(sample).kind is WriteKind.LATE
    assert not converter.saw_end
    converter.write(sample_of(4, ENDED))
    assert converter.saw_end


def many_rewards() -> DatalogSample:
    source = RewardSource(value=1, confidence=1)
    each = MAX_DELIVERIES // 3 + 1
    return sample_of(0, actors=3, rewards=[Reward(receiver_name="*", sources=[source] * each)])


BAD: dict[str, tuple[DatalogSample, str]] = {
    "observation": (
        sample_of(0, observations=ObservationSet(observations=[b"o"], actors_map=[0, 1])),
        "sample.observations.actors_map",
    ),
    "negative observation": (
        sample_of(0, observations=ObservationSet(observations=[b"o"], actors_map=[-1])),
        "sample.observations.actors_map",
    ),
    "actions": (sample_of(0, actors=4, observations=None), "sample.actions"),
    "default actors": (sample_of(0, default_actors=[0, 3]), "sample.default_actors"),
    "unavailable actors": (sample_of(0, unavailable_actors=[2**32 - 1]), "sample.unavailable_actors"),
    "state": (sample_of(0, state=17), "sample.info.state"),
    "tick": (DatalogSample(info=SampleInfo(tick_id=2**64 - 1)), "sample.info.tick_id"),
    "time": (sample_of(0, timestamp=2**63), "sample.info.timestamp"),
    "rewards": (many_rewards(), "sample.rewards"),
    "messages": (
        sample_of(0, actors=3, messages=[Message(receiver_name="*")] * (MAX_DELIVERIES // 3 + 1)),
        "sample.messages",
    ),
    "rewards to nobody": (sample_of(0, rewards=[Reward()] * (MAX_DELIVERIES + 1)), "sample.rewards"),
    "messages to nobody": (sample_of(0, messages=[Message()] * (MAX_DELIVERIES + 1)), "sample.messages"),
    "many observations": (
        sample_of(0, observations=ObservationSet(observations=[b""] * (MAX_DELIVERIES + 1))),
        "sample.observations.observations",
    ),
    "a long map": (
        sample_of(0, observations=ObservationSet(observations=[b""], actors_map=[0] * (MAX_DELIVERIES + 1))),
        "sample.observations.actors_map",
    ),
    "many default actors": (sample_of(0, default_actors=[0] * (MAX_DELIVERIES + 1)), "sample.default_actors"),
    "many unavailable actors": (
        sample_of(0, unavailable_actors=[0] * (MAX_DELIVERIES + 1)),
        "sample.unavailable_actors",
    ),
}


def steps_of(sample: DatalogSample) -> int:
    """Return how often others get a turn while a sample is converted."""
    return sum(1 for write in TrialConverter("t", PARAMS).writing(sample) if write is None)


@pytest.mark.parametrize(("receiver", "each"), [("ann", 1), ("*", 3), ("nobody", 0)])
def test_large_samples_are_converted_in_steps(receiver: str, each: int) -> None:
    """Of a thousand deliveries; a message counts beside its deliveries, as it is looked at even without any."""

    def rewards(count: int) -> DatalogSample:
        source = RewardSource(sender_name="bob", value=1, confidence=1)
        return DatalogSample(rewards=[Reward(receiver_name=receiver, sources=[source] * count)])

    def messages(count: int) -> DatalogSample:
        return DatalogSample(messages=[Message(sender_name="bob", receiver_name=receiver)] * count)

    for make, one in ((rewards, each), (messages, each + 1)):
        if not one:
            assert steps_of(make(5000)) == 0
            continue
        most = 1000 // one
        assert [steps_of(make(count)) for count in (1, most, most + 1)] == [0, 0, 1]
        assert [steps_of(make(count)) for count in (2 * most + 1, 2 * most + 2)] == [1, 2]


def test_a_large_sample_is_not_converted_at_once() -> None:
    converter = TrialConverter("t", PARAMS)
    small = sample_of(3, actors=3)
    assert converter.write_at_once(small) == TrialConverter("t", PARAMS).write(small)
    source = RewardSource(sender_name="bob", value=1, confidence=1)
    large = sample_of(7, rewards=[Reward(receiver_name="*", sources=[source] * 1000)])
    assert converter.write_at_once(large) is None
    assert converter.next_tick == 4
    assert converter.write(large).tick_id == 7


def test_as_many_deliveries_as_are_documented_are_taken() -> None:
    """Only begun: the first step comes when all has been counted."""
    params = params_with("c0.ann", "c1.bob")
    for receiver, count in (("ann", 100_000), ("*", 50_000)):
        sources = [RewardSource(value=1)] * count
        for sample in (
            sample_of(0, rewards=[Reward(receiver_name=receiver, sources=sources)]),
            sample_of(0, rewards=[Reward(receiver_name="nobody", sources=sources)] * 2),
            sample_of(0, messages=[Message(receiver_name=receiver)] * count),
        ):
            next(TrialConverter("t", params).writing(sample))
        more = sample_of(0, rewards=[Reward(receiver_name=receiver, sources=[*sources, sources[0]])])
        with pytest.raises(InvalidArgumentError, match="at most 100000"):
            next(TrialConverter("t", params).writing(more))


def test_patterns_from_outside_are_kept_only_where_they_mean_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that their number is bounded; and those that mean somebody are looked up once."""
    asked: list[str] = []
    resolve = ActorAddresses.resolve

    def noted(self: ActorAddresses, pattern: str) -> Any:
        asked.append(pattern)
        return resolve(self, pattern)

    monkeypatch.setattr(ActorAddresses, "resolve", noted)
    converter = TrialConverter("t", PARAMS)
    for _ in range(3):
        converter.convert(sample_of(0, messages=[Message(receiver_name="c0.*"), Message(receiver_name="stranger")]))
    assert sorted(asked) == ["c0.*", *["stranger"] * 3]


def test_large_samples_are_checked_in_steps() -> None:
    def steps(sample: StoredTrialSample) -> int:
        return sum(1 for _ in checking(sample, 2))

    small = StoredTrialSample(actor_samples=[{"actor": 1}] * 999)
    assert steps(small) == 0
    small.actor_samples.add(actor=0)
    assert steps(small) == 1
    for field in ("received_rewards", "sent_rewards", "received_messages", "sent_messages"):
        wide = StoredTrialSample(actor_samples=[{"actor": 1}], payloads=[b""])
        for _ in range(4000):
            getattr(wide.actor_samples[0], field).add()
        assert steps(wide) == 4
        getattr(wide.actor_samples[0], field).add(sender=2)
        with pytest.raises(InvalidArgumentError, match="sender"):
            steps(wide)
    assert steps(StoredTrialSample(default_actors=[1] * 2000, unavailable_actors=[0] * 1000)) == 3


@pytest.mark.parametrize("what", BAD)
def test_bad_samples_are_refused_by_the_name_of_the_field(what: str) -> None:
    sample, field = BAD[what]
    converter = TrialConverter("t", PARAMS, next_tick=3)
    with pytest.raises(InvalidArgumentError) as caught:
        converter.write(sample)
    assert str(caught.value).startswith(f"{field}:")
    # It did not count.
    good = sample_of(0, actors=3)
    good.ClearField("info")
    assert converter.write(good).tick_id == 3


some_data = AnyMessage(type_url="a/b")
UNUSUAL: dict[str, DatalogSample] = {
    **{what: sample for what, (sample, _) in BAD.items()},
    "late": late_sample(1),
    "events": DatalogSample(info=SampleInfo(tick_id=1, timestamp=1, special_events=["e"])),
    "action that never came": sample_of(0, actions=[Action(tick_id=-2)]),
    "message": sample_of(0, messages=[Message(receiver_name="ann")]),
    "default actor": sample_of(0, default_actors=[0]),
    "unavailable actor": sample_of(0, unavailable_actors=[0]),
    "many rewards": sample_of(0, rewards=[Reward(receiver_name="ann", sources=[RewardSource(value=1)] * 1001)]),
    "user data": sample_of(
        0, rewards=[Reward(receiver_name="ann", sources=[RewardSource(value=1, user_data=some_data)])]
    ),
}

names = st.sampled_from(["ann", "bob", "ada", "env", "*", "c0.*", "c1.bob", "*.*", "", "nobody", "c0."])
payloads = st.builds(AnyMessage, type_url=st.sampled_from(["", "a/b"]), value=st.binary(max_size=4))
sources = st.builds(
    RewardSource,
    sender_name=names,
    value=st.floats(width=32),
    confidence=st.floats(-2, 2, width=32),
    user_data=st.none() | payloads,
)
rewards_drawn = st.builds(Reward, receiver_name=names, sources=st.lists(sources, max_size=3))
messages_drawn = st.builds(Message, sender_name=names, receiver_name=names, payload=st.none() | payloads)
maps: Any = st.integers(0, 3).flatmap(
    lambda count: st.builds(
        ObservationSet,
        observations=st.lists(st.binary(max_size=3), min_size=count, max_size=count),
        actors_map=st.lists(st.integers(0, count - 1), max_size=4) if count else st.just([]),
    )
)
samples_drawn = st.builds(
    DatalogSample,
    info=st.none() | st.builds(SampleInfo, tick_id=st.integers(0, 9), out_of_sync=st.booleans()),
    observations=st.none() | maps,
    actions=st.lists(st.builds(Action, tick_id=st.integers(-2, 3), content=st.binary(max_size=3)), max_size=3),
    rewards=st.lists(rewards_drawn, max_size=3),
    messages=st.lists(messages_drawn, max_size=3),
    default_actors=st.lists(st.integers(0, 2), max_size=3),
    unavailable_actors=st.lists(st.integers(0, 2), max_size=3),
)


@given(samples_drawn)
def test_whatever_comes_everything_stored_points_to_something(sample: DatalogSample) -> None:
    stored = convert(sample)
    check_sample(stored, len(PARAMS.actors))
    assert [actor.actor for actor in stored.actor_samples] == [0, 1, 2]
    for actor in stored.actor_samples:
        assert actor.HasField("reward") == bool(actor.received_rewards)
        assert {got.receiver for got in actor.received_rewards} <= {actor.actor}
        assert {got.receiver for got in actor.received_messages} <= {actor.actor}
        assert {sent.sender for sent in actor.sent_rewards} <= {actor.actor}
        assert {sent.sender for sent in actor.sent_messages} <= {actor.actor}


numbers = st.one_of(st.floats(width=32), st.sampled_from([0.0, -0.0, 1.0, 3.4e38]))
plain_sources = st.builds(RewardSource, sender_name=names, value=numbers, confidence=numbers)
plain_rewards = st.builds(Reward, receiver_name=names, sources=st.lists(plain_sources, max_size=3))
short_maps = maps.filter(lambda observations: len(observations.actors_map) <= len(PARAMS.actors))
usual_samples = st.builds(
    DatalogSample,
    info=st.builds(
        SampleInfo,
        tick_id=st.integers(0, 2**63 - 2),
        timestamp=st.integers(0, 2**63 - 1),
        state=st.sampled_from(TrialState.values()),
    ),
    observations=st.none() | short_maps,
    actions=st.lists(st.builds(Action, tick_id=st.integers(-1, 3), content=st.binary(max_size=200)), max_size=3),
    rewards=st.lists(plain_rewards, max_size=4),
)


def same_bytes(data: bytes) -> bytes:
    """Return the bytes that protobuf would have chosen; numbers that are none are compared by them, too."""
    return StoredTrialSample.FromString(data).SerializeToString(deterministic=True)


@given(st.one_of(usual_samples, samples_drawn))
@example(sample_of(0, actors=3))
def test_what_is_written_is_the_message(sample: DatalogSample) -> None:
    converter = TrialConverter("t", PARAMS)
    stored, kind = converter.convert(sample)
    tick_id, saw_end = converter.next_tick, converter.saw_end
    converter = TrialConverter("t", PARAMS)
    write = converter.write(sample)
    assert write[:4] == ("t", stored.tick_id, stored.timestamp, stored.state)
    assert write.kind is kind
    assert same_bytes(joined(write.data)) == stored.SerializeToString(deterministic=True)
    assert (converter.next_tick, converter.saw_end) == (tick_id, saw_end)


def check_written(samples: list[DatalogSample]) -> None:
    """Check that a converter writes what fresh ones convert."""
    converter = TrialConverter("t", PARAMS)
    for sample in samples:
        fresh = TrialConverter("t", PARAMS, next_tick=converter.next_tick)
        stored, kind = fresh.convert(sample)
        write = converter.write(sample)
        assert write[:4] == ("t", stored.tick_id, stored.timestamp, stored.state)
        assert write.kind is kind
        assert same_bytes(joined(write.data)) == stored.SerializeToString(deterministic=True)
        assert converter.next_tick == fresh.next_tick


def others_like(sample: DatalogSample, draw: Any) -> DatalogSample:
    """Return a sample that has another content in the same places."""
    other = DatalogSample()
    other.CopyFrom(sample)
    other.info.tick_id = draw(st.integers(0, 300))
    other.info.timestamp = draw(st.integers(0, 2**63 - 1))
    other.observations.observations[:] = [bytes(len(one)) for one in sample.observations.observations]
    for action in other.actions:
        action.tick_id = draw(st.integers(-2, 3))
        action.content = draw(st.binary(min_size=len(action.content), max_size=len(action.content)))
    for reward in other.rewards:
        for source in reward.sources:
            source.value, source.confidence = draw(numbers), draw(numbers)
    return other


@given(usual_samples, st.data())
def test_samples_that_look_alike_are_written_as_any_other(sample: DatalogSample, data: st.DataObject) -> None:
    likes = [others_like(sample, data.draw) for _ in range(4)]
    check_written([sample, *likes, *likes[::-1]])


@given(st.lists(st.one_of(usual_samples, samples_drawn), max_size=4))
def test_samples_of_all_kinds_are_written_one_after_the_other(samples: list[DatalogSample]) -> None:
    check_written(samples * 3)


def test_a_template_is_told_by_everything_but_numbers_and_contents() -> None:
    one, other = RewardSource(sender_name="ann", value=1, confidence=1), RewardSource(sender_name="bob", value=2)
    rewarded = [
        sample_of(tick, actors=3, rewards=[Reward(receiver_name=receiver, sources=[source])])
        for tick in range(3)
        for receiver in ("ann", "bob", "env")
        for source in (one, other)
    ]
    named = [sample_of(70, actions=[Action(tick_id=tick, content=b"a")] * 2) for tick in (3, -2, 5, -2)]
    seen = [
        sample_of(0, observations=ObservationSet(observations=[b"o", b"p"], actors_map=[first, 1 - first, 0]))
        for first in (0, 1, 0)
    ]
    check_written((rewarded + named + seen) * 2)


@pytest.mark.parametrize(
    ("known", "longer"),
    [
        # Where the tick of the known one ends that of the other goes on: with the tag of the timestamp as its next
        # byte. What follows that, up to the end, can be a special event, be it one with a strange name.
        (SampleInfo(tick_id=5, timestamp=8), SampleInfo(tick_id=0x11 << 7 | 5, special_events=["xxxxxx\x18\x03"])),
        (SampleInfo(tick_id=300, timestamp=8), SampleInfo(tick_id=0x11 << 14 | 300, special_events=["xxxxxx\x18\x03"])),
        # Or it ends earlier, and the state follows, which no tag of a timestamp is.
        (
            SampleInfo(tick_id=3 << 7, timestamp=8),
            SampleInfo(tick_id=3, state=cast("TrialState", 0x11), special_events=["xxxxxx\x18\x03"]),
        ),
    ],
)
def test_what_only_looks_like_a_template(known: SampleInfo, longer: SampleInfo) -> None:
    known.state = TrialState.RUNNING
    before = DatalogSample(info=known)
    other = DatalogSample(info=longer)
    assert before.ByteSize() == other.ByteSize()
    converter = TrialConverter("t", PARAMS)
    converter.write(before)
    assert converter.templates.convert(before.SerializeToString()) is not None
    assert converter.templates.convert(other.SerializeToString()) is None


def observed(tick_id: int, *observations: bytes, timestamp: int = 0) -> DatalogSample:
    seen = ObservationSet(tick_id=tick_id, timestamp=timestamp, observations=observations, actors_map=[0, 0, 0])
    return DatalogSample(info=SampleInfo(tick_id=1, timestamp=1), observations=seen)


def acted(tick_id: int, content: bytes = b"", *, timestamp: int = 0) -> DatalogSample:
    action = Action(tick_id=tick_id, timestamp=timestamp, content=content)
    return DatalogSample(info=SampleInfo(tick_id=1, timestamp=1), actions=[action])


def test_what_only_looks_like_a_template_in_another_place() -> None:
    """Where one tick ends another goes on, and what stands for a time there is an observation, or an action's content.

    0x11 is the tag of a time, and as the second byte of the tick -0x441 its end.
    """
    for known, longer in (
        (observed(-1, b"seen", timestamp=8), observed(-0x441, b"extra!", b"seen")),
        (acted(-1, timestamp=8), acted(-0x441, b"extra!")),
    ):
        assert known.ByteSize() == longer.ByteSize()
        converter = TrialConverter("t", PARAMS)
        converter.write(known)
        assert converter.templates.convert(known.SerializeToString()) is not None
        assert converter.templates.convert(longer.SerializeToString()) is None
        check_written([known, longer])


def test_samples_that_differ_in_all_their_numbers_have_one_template() -> None:
    def made(number: int) -> DatalogSample:
        source = RewardSource(sender_name="ann", value=number, confidence=1 / number)
        return DatalogSample(
            info=SampleInfo(tick_id=number, timestamp=1000 + number, state=RUNNING),
            observations=ObservationSet(
                tick_id=number, timestamp=number, observations=[b"%d" % number] * 2, actors_map=[0, 1, 0]
            ),
            actions=[Action(tick_id=number + actor, timestamp=number, content=b"%d" % number) for actor in range(3)],
            rewards=[Reward(tick_id=number, receiver_name="*", value=number, sources=[source])],
        )

    converter = TrialConverter("t", PARAMS)
    converter.write(made(1))
    for number in range(2, 9):
        write = converter.write_by_template(made(number))
        assert write is not None
        stored, _ = TrialConverter("t", PARAMS).convert(made(number))
        assert same_bytes(joined(write.data)) == stored.SerializeToString(deterministic=True)
    assert converter.templates.credit == 256 - 2 - 32 + 7


def test_a_tick_that_is_too_large_is_refused_whatever_came_before() -> None:
    converter = TrialConverter("t", PARAMS)
    for tick_id in (2**55, 2**62, 2**63 - 2):
        converter.write(sample_of(tick_id, actors=3, timestamp=1, observations=None, actions=[]))
    with pytest.raises(InvalidArgumentError, match=r"sample\.info\.tick_id"):
        converter.write(sample_of(2**63 - 1, actors=3, timestamp=1, observations=None, actions=[]))


@pytest.mark.parametrize("absent", [0, 1, 2])
def test_an_action_that_never_came_is_not_taken_for_one_of_an_odd_tick(absent: int) -> None:
    ticks = [-3, -3, -3]
    usual = [sample_of(number, actors=3, actions=[Action(tick_id=tick) for tick in ticks]) for number in range(5)]
    ticks[absent] = -2
    check_written([*usual, sample_of(5, actors=3, actions=[Action(tick_id=tick) for tick in ticks])])


def test_an_action_that_is_not_stored_is_not_taken_for_another() -> None:
    """The one of an actor that is unavailable, though it has the same content as the next one's."""
    alike = [sample_of(5, actors=3, actions=[Action(content=b"a")] * 3, unavailable_actors=[0]) for _ in range(3)]
    differs = sample_of(
        5, actors=3, actions=[Action(content=b"b"), *[Action(content=b"a")] * 2], unavailable_actors=[0]
    )
    check_written([*alike, differs])


def with_payload(size: int, actors: int = 1) -> DatalogSample:
    return sample_of(1, actors=actors, observations=ObservationSet(observations=[bytes(size)], actors_map=[0]))


def test_templates_of_a_trial_are_bounded_by_their_bytes() -> None:
    """Those of samples with many places take more: there are fewer of them."""
    for actors, least, most in ((2, 100, 100), (64, 6, 9)):
        converter = TrialConverter("t", params_with(*(f"c.a{number}" for number in range(actors))))
        samples = [with_payload(size, actors) for size in range(1, 101)]
        at_once = 0
        for number, sample in enumerate(samples):
            converter.templates.credit = 256
            converter.write(sample)
            known = []
            for earlier in samples[: number + 1]:
                converter.templates.credit = 256
                if converter.templates.convert(earlier.SerializeToString()) is not None:
                    known.append(earlier)
            assert known[-1] is sample
            at_once = max(at_once, len(known))
        assert least <= at_once <= most


def test_little_time_is_spent_on_samples_unlike_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    learned: list[DatalogSample] = []

    def learn(self: Templates, sample: DatalogSample, *args: Any) -> None:
        learned.append(sample)
        really_learn(self, sample, *args)

    really_learn = Templates.learn
    monkeypatch.setattr(Templates, "learn", learn)
    converter = TrialConverter("t", PARAMS)
    samples = [with_payload(size) for size in range(2000)]
    for sample in samples:
        converter.write(sample)
    assert len(learned) < 20
    # Once samples are alike again, that is noticed.
    for _ in range(10_000):
        converter.write(samples[7])
    assert converter.templates.credit > 100
    check_written(samples[:300])


def test_what_is_spent_on_samples_unlike_any_other() -> None:
    """A budget that is used up by the first of them, and filled again by pauses, each twice as long as the last."""
    looked_up: list[int] = []
    learned: list[int] = []
    number = 0

    class Noting(Templates):
        def convert(self, data: bytes, *args: Any) -> SampleWrite | None:
            before = self.credit
            write = super().convert(data, *args)
            if self.credit != before:
                looked_up.append(number)
            return write

        def learn(self, *args: Any) -> None:
            learned.append(number)
            super().learn(*args)

    converter = TrialConverter("t", PARAMS)
    converter.templates = Noting()
    for number in range(6000):
        converter.write(with_payload(number))
    assert looked_up == [0, 1, 2, 3, 4, 5, 6, 7, 72, 201, 458, 459, 972, 1997, 3022, 4047, 5072]
    assert learned == [0, 1, 2, 3, 4, 5, 6, 458]


def test_of_samples_of_one_length_the_last_four_layouts_are_known() -> None:
    layouts = [
        sample_of(0, observations=ObservationSet(observations=[b"o", b"p"], actors_map=[a, b, c]))
        for a, b, c in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0))
    ]
    converter = TrialConverter("t", PARAMS)
    for sample in layouts:
        converter.write(sample)
    assert [converter.templates.convert(sample.SerializeToString()) is not None for sample in layouts] == [
        False,
        True,
        True,
        True,
        True,
    ]


def has_template(sample: DatalogSample, params: TrialParams = PARAMS) -> bool:
    converter = TrialConverter("t", params)
    write = converter.write(sample)
    found = converter.templates.convert(sample.SerializeToString())
    assert found is None or found._replace(data=joined(found.data)) == write
    return found is not None


def test_large_samples_have_no_templates() -> None:
    """Nor have those of which something large is stored: up to 16 KiB they have."""
    small, large = with_payload(100), with_payload(20_000)
    converter = TrialConverter("t", PARAMS)
    for sample in (small, large) * 2:
        converter.write(sample)
    assert converter.templates.convert(large.SerializeToString()) is None
    check_written([small, large] * 100)

    def to_nobody(size: int) -> DatalogSample:  # nothing of it is stored
        return sample_of(1, rewards=[Reward(receiver_name="x" * size)])

    beside = to_nobody(1000).ByteSize() - 1000
    assert has_template(to_nobody(16 * 1024 - beside))
    assert not has_template(to_nobody(16 * 1024 - beside + 1))
    crowd = params_with(*(f"c.a{number}" for number in range(200)))

    def to_everybody(sources: int) -> tuple[DatalogSample, int]:
        source = RewardSource(sender_name="env", value=1, confidence=1)
        sample = sample_of(1, rewards=[Reward(receiver_name="*", sources=[source] * sources)])
        return sample, len(TrialConverter("t", crowd).write(sample).data)

    (fits, size), (does_not, too_much) = to_everybody(2), to_everybody(3)
    assert 8 * 1024 < size <= 16 * 1024 < too_much < 32 * 1024
    assert has_template(fits, crowd)
    assert not has_template(does_not, crowd)


USUAL: dict[str, DatalogSample] = {
    "tick": DatalogSample(info=SampleInfo(tick_id=1, timestamp=1)),
    "payloads": sample_of(0, actors=3),
    "longer map": sample_of(0, observations=ObservationSet(observations=[b"o"], actors_map=[0, 0, 0, 0])),
    "reward": sample_of(
        0, rewards=[Reward(receiver_name="*", sources=[RewardSource(sender_name="ann", value=0, confidence=-1)])]
    ),
}


@pytest.mark.parametrize("what", USUAL)
def test_usual_samples_have_templates(what: str) -> None:
    converter = TrialConverter("t", PARAMS)
    converter.write(USUAL[what])
    assert converter.write_by_template(USUAL[what]) is not None


@pytest.mark.parametrize("what", UNUSUAL)
def test_unusual_samples_have_no_templates(what: str) -> None:
    converter = TrialConverter("t", PARAMS)
    for _ in range(2):
        assert converter.write_by_template(UNUSUAL[what]) is None
        try:
            converter.write(UNUSUAL[what])
        except InvalidArgumentError:
            assert what in BAD


def test_numbers_are_read_as_protobuf_writes_them() -> None:
    for number in (1, 127, 128, 300, 16383, 16384, 2**35, 2**63 - 1):
        assert number_of(StoredTrialSample(tick_id=number).SerializeToString()[1:]) == number


@given(st.binary(max_size=200))
def test_any_bytes_are_converted_or_refused(data: bytes) -> None:
    sample = DatalogSample()
    try:
        sample.ParseFromString(data)
    except Exception:  # noqa: BLE001  what is not a sample is not our affair
        return
    try:
        stored = convert(sample)
    except InvalidArgumentError:
        return
    check_sample(stored, len(PARAMS.actors))


@pytest.mark.parametrize(("data", "text"), [(b"\x0b\x0c", "a group"), (b"\x80\x01", "16 or more")])
def test_what_no_usual_sample_has_ends_the_search_for_places(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        list(find_places(data, {}, 0, len(data)))
