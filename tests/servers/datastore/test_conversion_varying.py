"""Samples whose payloads vary in length become what the full conversion makes of them, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.datastore.harness import params_with, sample_of
from tests.servers.datastore.test_conversion_shared import SAMPLES, same
from trio_cogment.api.common_pb2 import Action, Reward, RewardSource, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.environment_pb2 import ObservationSet
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.base.shared_message import SharedSample
from trio_cogment.base.taking_up import saved_checkpoint
from trio_cogment.servers.datastore._chunk_layouts import joined
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore._conversion_varying import VaryingTemplates
from trio_cogment.servers.datastore._protobuf_wire import only_field
from trio_cogment.servers.datastore._write_rules import MAX_NUMBER
from trio_cogment.servers.datastore.storage import SampleWrite

PARAMS = params_with("c0.ann", "c1.bob", "c0.ada")


def sample(tick_id: int, *lengths: int, value: float = 1.0) -> DatalogSample:
    """Return a sample of three actors with two observations and two actions of these lengths."""
    contents = [bytes((number,)) * length for number, length in enumerate(lengths)]
    return sample_of(
        tick_id,
        timestamp=10**18 + tick_id,
        observations=ObservationSet(observations=contents[:2], actors_map=[0, 1, 0]),
        actions=[Action(tick_id=tick_id, content=content) for content in contents[2:]],
        rewards=[
            Reward(receiver_name="*", sources=[RewardSource(sender_name="ann", value=value, confidence=0.5)]),
        ],
    )


def converted(sample: DatalogSample) -> SampleWrite:
    write = next(TrialConverter("t", PARAMS).writing(sample))
    assert write is not None
    return write


def learned(*samples: DatalogSample) -> TrialConverter:
    """Return a converter that has learned from these how samples of varying lengths are converted, and no other way."""
    converter = TrialConverter("t", PARAMS)
    for each in samples:
        converter.varying.learn(each, converted(each), converter._deliveries(each))
    return converter


@given(st.lists(SAMPLES, min_size=1, max_size=12))
def test_every_sample_is_converted_as_any_other(samples: list[SharedSample]) -> None:
    fast, full = TrialConverter("t", PARAMS), TrialConverter("t", PARAMS)
    for shared in [*samples, *samples]:  # the second time most have a layout that was learned
        if shared.tick_id >= MAX_NUMBER:
            continue
        message = shared.whole()
        same(fast.varying.convert(message.SerializeToString()) or next(fast.writing(message)), converted(message))
        same(full.write_at_once(message), converted(message))
    assert not fast.templates._of_length


@pytest.mark.parametrize("length", [1, 127, 128, 16383, 16384, 300_000])
def test_lengths_do_not_matter(length: int) -> None:
    converter = learned(sample(70, 5, 6, 7, 8))
    for lengths in ((length, 6, 7, 8), (1, length, 2, 3), (1, 2, length, 3), (1, 2, 3, length), (0, 0, 0, 0)):
        made = sample(71, *lengths, value=length)
        if min(lengths):
            same(converter.varying.convert(made.SerializeToString()), converted(made))
        else:  # an empty action is not there, as protobuf writes it
            assert converter.varying.convert(made.SerializeToString()) is None


def test_a_checkpoint_goes_along() -> None:
    converter = learned(sample(70, 5, 6, 7, 8))
    made = sample(70, 1, 200, 3, 4)
    made.observations.checkpoint.ParseFromString(saved_checkpoint(70, bytes(300)))
    write = converter.varying.convert(made.SerializeToString())
    assert write is not None
    assert joined(write.data) == joined(converted(made).data)
    assert write.data[4] == len(joined(write.data))
    # Nobody writes two, and protobuf would make one of them.
    inner = made.observations.SerializeToString()
    twice = DatalogSample()
    twice.CopyFrom(made)
    twice.ClearField("observations")
    whole = twice.SerializeToString()
    assert converter.varying.convert(whole + inner) is None
    # It teaches nothing.
    assert learned(made).varying.convert(made.SerializeToString()) is None


UNUSUAL: list[Callable[[DatalogSample], object]] = [
    lambda sample: sample.ClearField("info"),
    lambda sample: sample.ClearField("observations"),
    lambda sample: sample.info.special_events.append("event"),
    lambda sample: sample.info.end.SetInParent(),
    lambda sample: setattr(sample.info, "out_of_sync", True),
    lambda sample: setattr(sample.actions[1], "tick_id", -2),
    lambda sample: sample.unavailable_actors.append(1),
    lambda sample: sample.default_actors.append(0),
    lambda sample: sample.messages.add(receiver_name="ann"),
    lambda sample: sample.observations.actors_map.append(0),
    lambda sample: setattr(sample.info, "timestamp", MAX_NUMBER + 1),
    lambda sample: setattr(sample.info, "tick_id", MAX_NUMBER),
    lambda sample: setattr(sample.info, "state", TrialState.ENDED),
    lambda sample: setattr(sample.rewards[0].sources[0], "value", 0.0),
]


@pytest.mark.parametrize("number", range(len(UNUSUAL)))
def test_samples_that_say_something_else_take_the_other_way(number: int) -> None:
    converter = learned(sample(7, 5, 6, 7, 8))
    made = sample(7, 5, 6, 7, 8)
    UNUSUAL[number](made)
    assert converter.varying.convert(made.SerializeToString()) is None


_CHANGES = st.lists(st.tuples(st.integers(0, 200), st.sampled_from("+-="), st.integers(0, 255)), max_size=3)


@given(_CHANGES, st.booleans())
def test_bytes_that_others_wrote_are_what_protobuf_makes_of_them(changes: list[Any], varying: bool) -> None:
    base = sample(300, 5, 6, 7, 8)
    converter = learned(sample(300, 9, 9, 9, 9)) if varying else TrialConverter("t", PARAMS)
    if not varying:
        converter.write(base)
    changed = bytearray(base.SerializeToString())
    for at, what, byte in changes:
        place = at % len(changed)
        if what == "+":
            changed.insert(place, byte)
        elif what == "-":
            del changed[place]
        else:
            changed[place] = byte
    write = (converter.varying.convert if varying else converter.write_encoded)(bytes(changed))
    assert write is not None or bytes(changed) != base.SerializeToString()
    if write is None:
        return
    try:
        expected = converted(DatalogSample.FromString(bytes(changed)))
    except (DecodeError, InvalidArgumentError):
        pytest.fail("it was taken for a sample")
    assert write[:4] == expected[:4]
    found, wanted = (StoredTrialSample.FromString(joined(each.data)) for each in (write, expected))
    assert found.SerializeToString(deterministic=True) == wanted.SerializeToString(deterministic=True)


def test_time_and_memory_for_learning_are_bounded() -> None:
    converter = TrialConverter("t", PARAMS)
    wanted = 0
    for number in range(100):  # each has a layout of its own
        made = sample(1, 5, 6, 7, 8)
        made.rewards[0].receiver_name = "ann" + "x" * number
        assert converter.varying.convert(made.SerializeToString()) is None
        if converter.varying.wanted:
            wanted += 1
            converter.varying.learn(made, converted(made), converter._deliveries(made))
    assert 7 <= wanted < 14
    templates = VaryingTemplates()
    for tick_id in (1, 100, 10_000, 2**21, 2**30):
        templates._credit = 256
        made = sample(tick_id, 5, 6, 7, 8)
        templates.learn(made, converted(made), converter._deliveries(made))
        assert templates.convert(made.SerializeToString()) is not None
    assert len(templates._known) == 4


def test_what_is_large_beside_its_payloads_teaches_nothing() -> None:
    made = sample(1, 5, 6, 7, 8)
    made.rewards[0].receiver_name = "x" * 20_000
    assert learned(made).varying.convert(made.SerializeToString()) is None


def test_the_only_field_of_a_message() -> None:
    for length in (0, 1, 126, 127, 128, 129, 16383, 16384, 70_000):
        whole = StoredTrialSample(payloads=[bytes(length)]).SerializeToString()
        assert only_field(whole, whole[:1]) == bytes(length)
        assert only_field(whole, b"x") is None
        assert only_field(whole + b"x", whole[:1]) is None
        assert only_field(whole[:-1], whole[:1]) is None
    assert only_field(b"", b"x") is None
