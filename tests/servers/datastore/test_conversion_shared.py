"""Samples of this process become what they would become as messages, bit for bit."""

from __future__ import annotations

import struct
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.servers.datastore.harness import params_with, values_of
from trio_cogment.api.common_pb2 import RewardSource, TrialState
from trio_cogment.api.environment_pb2 import EnvRunTrialOutput
from trio_cogment.base.shared_message import SharedAction, SharedObservationSet, SharedReward, SharedSample
from trio_cogment.servers.datastore._chunk_layouts import Layouts, joined
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore._conversion_shared import SharedTemplates
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER

PARAMS = params_with("c0.ann", "c1.bob", "c0.ada")
NUMBERS = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1.0])


def sample_of(
    tick_id: int, *, timestamp: int = 7, rewards: Any = (), contents: Any = (b"o",), actions: Any = (b"x", b"", b"zz")
) -> SharedSample:
    sample = SharedSample(tick_id, timestamp)
    sample.state = TrialState.RUNNING
    places = [index % len(contents) for index in range(3)]
    sample.observations = SharedObservationSet(-1, 3, list(contents), places)
    sample.actions = [SharedAction(tick_id, 4, content) for content in actions]
    for receiver, sources in rewards:
        made = [RewardSource(sender_name=name, value=value, confidence=trust) for name, value, trust in sources]
        sample.rewards.append(SharedReward(EnvRunTrialOutput, -1, receiver, 0.0, made))
    return sample


SOURCES = st.lists(st.tuples(st.sampled_from(["env", "ann", "bob"]), NUMBERS, NUMBERS), max_size=3)
REWARDS = st.lists(st.tuples(st.sampled_from(["ann", "c0.*", "*", "nobody"]), SOURCES), max_size=3)
SAMPLES = st.builds(
    sample_of,
    st.sampled_from([0, 1, 127, 128, 16384, MAX_NUMBER - 1, MAX_NUMBER]),
    timestamp=st.sampled_from([0, 1, 2**62, MAX_NUMBER]),
    rewards=REWARDS,
    contents=st.lists(st.binary(max_size=4) | st.just(b"l" * 20_000), min_size=1, max_size=3),
    actions=st.lists(st.binary(max_size=200), max_size=3),
)


def same(write: Any, plain: Any) -> None:
    assert write._replace(data=joined(write.data)) == plain._replace(data=joined(plain.data))
    if not isinstance(write.data, bytes):
        split = Layouts().split(write.tick_id, write.timestamp, joined(write.data))
        assert split is not None
        assert values_of(write.data) == split.values


@given(st.lists(SAMPLES, min_size=1, max_size=12))
def test_every_sample_is_converted_as_its_message(samples: list[SharedSample]) -> None:
    shared, full = TrialConverter("t", PARAMS), TrialConverter("t", PARAMS)
    for sample in [*samples, *samples]:  # the second time most have a layout that was learned
        if sample.tick_id >= MAX_NUMBER:
            continue
        write = shared.write_shared(sample)
        plain = next(full.writing(sample.whole()))
        assert write is not None
        same(write, plain)
        assert (shared.next_tick, shared.saw_end) == (full.next_tick, full.saw_end)


@given(st.lists(SAMPLES, min_size=1, max_size=12))
def test_samples_are_converted_together_as_one_by_one(samples: list[SharedSample]) -> None:
    together, apart = TrialConverter("t", PARAMS), TrialConverter("t", PARAMS)
    given_ones = [sample for sample in [*samples, *samples, *samples] if sample.tick_id < MAX_NUMBER]
    done = 0
    while done < len(given_ones):
        writes = together.writes_of(given_ones, done)
        if done + len(writes) < len(given_ones):  # the first without a template: it has one afterwards
            converted = next(together.writing_shared(given_ones[done + len(writes)]))
            assert converted is not None
            writes.append(converted)
        for write, sample in zip(writes, given_ones[done:], strict=False):
            plain = apart.write_shared(sample)
            assert plain is not None
            assert write._replace(data=joined(write.data)) == plain._replace(data=joined(plain.data))
            assert joined(write.data) == joined(TrialConverter("t", PARAMS).write(sample.whole()).data)
        done += len(writes)
    assert (together.next_tick, together.saw_end) == (apart.next_tick, apart.saw_end)


def test_a_layout_is_learned_once_whatever_the_lengths() -> None:
    templates, converter = SharedTemplates(), TrialConverter("t", PARAMS)
    rewards = [("ann", [("env", 0.5, 1.0)])]
    first = sample_of(1, rewards=rewards)
    assert not templates.convert([first])
    assert templates.wanted
    whole = first.whole()
    plain = next(converter.writing(whole))
    assert plain is not None
    templates.learn(plain, converter._deliveries(whole))
    later = sample_of(300, rewards=[("ann", [("env", 0.25, 1.0)])], contents=[b"longer" * 5000])
    (write,) = templates.convert([later])
    assert struct.pack("<f", 0.25) in joined(write.data)
    same(write, next(converter.writing(later.whole())))


def test_what_has_user_data_or_no_observations_takes_the_other_way() -> None:
    templates = SharedTemplates()
    blank = SharedSample(1, 2)
    assert not templates.convert([blank])
    assert not templates.wanted
    said = sample_of(1, rewards=[("ann", [("env", 1.0, 1.0)])])
    said.rewards[0].sources[0].user_data.value = b"more"
    assert not templates.convert([said])
    assert not templates.wanted


def test_learning_takes_a_bounded_part_of_the_time() -> None:
    converter = TrialConverter("t", PARAMS)
    learned = 0
    for tick in range(100):  # each has a layout of its own
        sample = sample_of(tick, rewards=[("ann", [("env", 1.0, 1.0)] * (tick + 1))])
        converter._shared.convert([sample])
        learned += converter._shared.wanted
        converter.write_shared(sample)
    assert learned < 20
