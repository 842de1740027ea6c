"""Chunks: what goes in comes out bit for bit, merged or not, and no damage goes unnoticed."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers.datastore.harness import values_of
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.api.trial_datastore_pb2 import StoredTrialActorSample, StoredTrialSample
from trio_cogment.base.errors import DataLossError
from trio_cogment.base.taking_up import saved_checkpoint
from trio_cogment.sdk import actor_params, trial_params
from trio_cogment.servers.datastore import chunks
from trio_cogment.servers.datastore._chunk_layouts import Cut, Layouts, Parts, all_joined, joined
from trio_cogment.servers.datastore._conversion import TrialConverter
from trio_cogment.servers.datastore.chunks import (
    PLAIN,
    ZSTD,
    Chunk,
    ChunkCodec,
    ChunkSample,
    NewSample,
    VaryingValues,
    columns,
    decode,
)

_MAX = (1 << 63) - 1


@st.composite
def _messages(draw: st.DrawFn, tick_id: int, timestamp: int) -> bytes:
    floats = st.floats(width=32, allow_nan=False)
    sample = StoredTrialSample(trial_id="trial", user_id=draw(st.sampled_from(["", "ann"])), tick_id=tick_id)
    sample.timestamp = timestamp
    sample.state = TrialState.RUNNING
    for index in range(draw(st.integers(0, 2))):
        actor = StoredTrialActorSample(actor=index, observation=index)
        if draw(st.booleans()):
            actor.reward = draw(floats)
            for _ in range(draw(st.integers(0, 2))):
                actor.received_rewards.add(sender=-1, receiver=index, reward=draw(floats), confidence=1.0)
                actor.sent_rewards.add(sender=index, receiver=1, reward=draw(floats))
        sample.actor_samples.append(actor)
    sample.payloads.extend(draw(st.lists(st.binary(max_size=300), max_size=3)))
    if draw(st.integers(0, 5)) == 0:
        sample.special_events.append("event")
    return sample.SerializeToString()


@st.composite
def _samples(draw: st.DrawFn, first: int = 0) -> list[ChunkSample]:
    position, made = first, []
    for _ in range(draw(st.integers(1, 12))):
        position += draw(st.sampled_from([1, 1, 1, 7]))
        tick_id = draw(st.one_of(st.just(position), st.sampled_from([0, 127, 128, 16384]), st.integers(0, _MAX)))
        timestamp = draw(st.one_of(st.just(0), st.integers(0, _MAX)))
        data = draw(st.one_of(_messages(tick_id, timestamp), _messages(5, 5), st.binary(max_size=60)))
        made.append(ChunkSample(position, tick_id, timestamp, data))
    return made


def _logged(count: int, *, size: int = 40, varying: bool = False, first: int = 0) -> list[DatalogSample]:
    drawn = random.Random(first)
    made = []
    for tick in range(first, first + count):
        sample = DatalogSample()
        sample.info.tick_id, sample.info.timestamp, sample.info.state = tick, 10**18 + tick, TrialState.RUNNING
        for actor in range(2):
            content = drawn.randbytes(drawn.randint(0, 200) if varying else size)
            sample.observations.observations.append(content)
            sample.observations.actors_map.append(actor)
            sample.actions.add(tick_id=tick, content=bytes((tick % 3,)))
        reward = sample.rewards.add(receiver_name="ann", tick_id=tick, value=tick / 2 + 1)
        reward.sources.add(sender_name="env", value=tick / 2 + 1, confidence=1.0)
        made.append(sample)
    return made


def taken(logged: Sequence[DatalogSample]) -> list[NewSample]:
    """Return samples as the conversion hands them over."""
    converter = TrialConverter("trial", trial_params([actor_params(name, "player") for name in ("ann", "bob")]))
    writes = [converter.write_by_template(sample) or converter.write(sample) for sample in logged]
    return [(position, write.tick_id, write.timestamp, write.data) for position, write in enumerate(writes, 1)]


def converted(logged: Sequence[DatalogSample]) -> list[ChunkSample]:
    """Return the same samples, put together."""
    return [ChunkSample(*sample[:3], joined(sample[3])) for sample in taken(logged)]


@given(_samples(), st.sampled_from([0, 1, 3]))
def test_what_goes_in_comes_out(samples: list[ChunkSample], level: int) -> None:
    chunk = ChunkCodec(level).encode(samples)
    for few in (0, 1000):
        with mock.patch.object(chunks, "_FEW", few):
            assert decode(chunk, "trial") == samples
    assert (chunk.samples_count, chunk.raw_bytes) == (len(samples), sum(len(sample.data) for sample in samples))
    assert (chunk.first_position, chunk.last_position) == (samples[0].position, samples[-1].position)
    assert (chunk.first_tick, chunk.last_tick) == (samples[0].tick_id, samples[-1].tick_id)


@given(_samples(), st.integers(0, 100), st.integers(1, 5), st.sampled_from([0, 3, 1000]))
def test_a_part_of_it(samples: list[ChunkSample], after: int, limit: int, few: int) -> None:
    chunk = ChunkCodec().encode(samples)
    expected = [sample for sample in samples if sample.position > after]
    with mock.patch.object(chunks, "_FEW", few):  # one by one or all together, the samples are the same
        assert decode(chunk, "trial", after=after) == expected
        assert decode(chunk, "trial", after=after, limit=limit) == expected[:limit]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.data())
def test_merged_is_one_after_the_other(seeds: list[int], data: st.DataObject) -> None:
    codec, parts = ChunkCodec(), []
    position = 0
    for _ in seeds:
        parts.append(data.draw(_samples(position)))
        position = parts[-1][-1].position
    merged = codec.merge([codec.encode(part) for part in parts], "trial")
    together = [sample for part in parts for sample in part]
    assert decode(merged, "trial") == together
    whole = codec.encode(together)
    assert merged._replace(data=b"", checksum=0, size=0) == whole._replace(data=b"", checksum=0, size=0)


def test_more_layouts_than_a_chunk_may_have() -> None:
    codec = ChunkCodec()
    samples = [
        ChunkSample(n + 1, n, n, StoredTrialSample(tick_id=n, timestamp=n, payloads=[b"x"] * n).SerializeToString())
        for n in range(1, 80)
    ]
    assert decode(codec.encode(samples), "trial") == samples
    merged = codec.merge([codec.encode(samples[at : at + 20]) for at in range(0, len(samples), 20)], "trial")
    assert decode(merged, "trial") == samples


def test_known_layouts_are_as_many_as_any_others() -> None:
    """A chunk numbers its layouts by a byte."""
    known = Layouts()
    samples: list[ChunkSample] = []
    parts: list[NewSample] = []
    for n in range(1, 300):
        data = StoredTrialSample(trial_id="t" * n, tick_id=n, timestamp=n, payloads=[b"x"]).SerializeToString()
        split = known.split(n, n, data)
        assert split is not None
        middle = split.layout.middle.pack(split.layout.same[0], n.to_bytes(8, "little"), split.layout.same[1])
        samples.append(ChunkSample(n, n, n, data))
        parts.append((n, n, n, Parts(split.layout, n, middle, [b"x"], len(data))))
    assert decode(ChunkCodec().encode(parts), "t") == samples


@pytest.mark.parametrize("varying", [False, True])
def test_samples_of_a_trial_are_columns(varying: bool) -> None:
    samples, handed = converted(_logged(400, varying=varying)), taken(_logged(400, varying=varying))
    # The first of each kind teaches what is known of the others.
    assert sum(isinstance(data, bytes) for *_, data in handed) < 12
    assert any(isinstance(data, Parts) and bool(data.payloads) for *_, data in handed) is varying
    chunk = ChunkCodec().encode(handed)
    assert decode(chunk, "trial") == samples
    found = columns(chunk, "trial")
    assert found.ticks.tolist() == list(range(400))
    assert found.positions.tolist() == list(range(1, 401))
    assert found.timestamps.tolist() == [10**18 + tick for tick in range(400)]
    assert sorted(row for group in found.groups for row in group.rows.tolist()) == list(range(400))
    assert len(found.groups) <= 2
    for group in found.groups:
        assert group.sample is not None
        parsed = [StoredTrialSample.FromString(samples[row].data) for row in group.rows]
        assert len(group.sample.actor_samples) == 2
        means = group.rewards[0, "reward", -1, "reward"]
        assert means.tolist() == [sample.actor_samples[0].reward for sample in parsed]
        given_ = group.rewards[0, "received_rewards", 0, "reward"]
        assert given_.tolist() == [sample.actor_samples[0].received_rewards[0].reward for sample in parsed]
        for number, payloads in enumerate(group.payloads):
            if isinstance(payloads, VaryingValues):
                values = [
                    payloads.data[a:b].tobytes()
                    for a, b in zip(payloads.offsets[:-1], payloads.offsets[1:], strict=True)
                ]
            else:
                values = [row.tobytes() for row in payloads]
            assert values == [sample.payloads[number] for sample in parsed]


def test_a_tick_of_another_length_has_the_same_layout() -> None:
    samples = converted(_logged(10, first=120) + _logged(10, first=16380))
    assert len(columns(ChunkCodec().encode(samples), "trial").groups) == 1


def test_samples_without_a_layout_are_kept_whole() -> None:
    samples = [ChunkSample(1, 0, 0, b"\xff\xfe"), ChunkSample(2, 1, 5, b"")]
    (group,) = columns(ChunkCodec().encode(samples), "trial").groups
    assert group.sample is None
    (whole,) = group.payloads
    assert isinstance(whole, VaryingValues)
    assert whole.data.tobytes() == b"\xff\xfe"
    assert whole.offsets.tolist() == [0, 2, 2]


def test_a_longer_varint_than_needed_is_kept_whole() -> None:
    data = StoredTrialSample(tick_id=1, timestamp=2, payloads=[b"abc"]).SerializeToString()
    longer = data.replace(b"\x3a\x03abc", b"\x3a\x83\x00abc")
    assert Layouts().split(1, 2, data) is not None
    assert Layouts().split(1, 2, longer) is None
    assert decode(ChunkCodec().encode([ChunkSample(1, 1, 2, longer)]), "trial")[0].data == longer


def test_a_sample_that_says_another_time_is_kept_whole() -> None:
    data = StoredTrialSample(tick_id=1, timestamp=2).SerializeToString()
    assert Layouts().split(1, 3, data) is None
    assert Layouts().split(2, 2, data) is None
    known = Layouts()
    assert known.split(1, 2, data) is not None
    assert known.split(1, 3, data) is None


def test_the_level() -> None:
    samples = converted(_logged(200))
    plain, small = ChunkCodec(0).encode(samples), ChunkCodec(1).encode(samples)
    assert (plain.encoding, small.encoding) == (PLAIN, ZSTD)
    assert len(small.data) < len(plain.data) == plain.size == small.size


def test_what_does_not_shrink_is_not_compressed() -> None:
    noise = random.Random(1).randbytes(5000)
    chunk = ChunkCodec().encode([ChunkSample(1, 0, 0, noise)])
    assert chunk.encoding == PLAIN
    assert decode(chunk, "trial")[0].data == noise


def test_columns_take_fewer_bytes_than_rows() -> None:
    samples = converted(_logged(500, size=16))
    chunk = ChunkCodec().encode(samples)
    assert len(chunk.data) < 0.5 * chunk.raw_bytes


@pytest.mark.parametrize("level", [0, 1])
def test_damage_at_every_byte_is_noticed(level: int) -> None:
    chunk = ChunkCodec(level).encode(converted(_logged(20)))
    for at in range(len(chunk.data)):
        damaged = bytearray(chunk.data)
        damaged[at] ^= 1 << at % 8
        with pytest.raises(DataLossError, match="trial 'a': the samples of ticks 0 to 19 are damaged"):
            decode(chunk._replace(data=bytes(damaged)), "a")
    for data in (chunk.data[:-1], chunk.data + b"\0", b"", chunk.data * 2):
        with pytest.raises(DataLossError):
            decode(chunk._replace(data=data), "a")


@pytest.mark.parametrize("name", [name for name in Chunk._fields if name != "data"])
def test_damage_of_what_is_said_of_it_is_noticed(name: str) -> None:
    chunk = ChunkCodec().encode(converted(_logged(20)))
    for value in (getattr(chunk, name) + 1, 1 << 31):
        changed: Any = {name: value}
        with pytest.raises(DataLossError):
            decode(chunk._replace(**changed), "a")


@given(st.binary(max_size=200), st.sampled_from([PLAIN, ZSTD, 7]), st.integers(0, 1 << 33))
def test_bytes_that_are_no_chunk(data: bytes, encoding: int, size: int) -> None:
    """Whoever can compute a checksum gets an error all the same, and no memory that is not there."""
    from trio_cogment.servers.datastore.chunks import _checksum

    for said in (size, len(data)):
        chunk = Chunk(1, 2, 0, 1, 2, encoding, said, 0, 0, data)
        with pytest.raises(DataLossError):
            decode(chunk._replace(checksum=_checksum(chunk)), "a")


def test_every_part_of_the_decoded_bytes_is_checked() -> None:
    """With a checksum of its own, too, a damaged chunk is an error or as many samples as it says, never a crash."""
    from trio_cogment.servers.datastore.chunks import _checksum

    chunk = ChunkCodec(0).encode(converted(_logged(3)))
    drawn = random.Random(3)
    for at in range(len(chunk.data)):
        damaged = bytearray(chunk.data)
        damaged[at] = drawn.randrange(256)
        changed = chunk._replace(data=bytes(damaged))
        try:
            assert len(decode(changed._replace(checksum=_checksum(changed)), "a")) == 3
        except DataLossError:
            pass


def test_a_frame_that_lacks_its_end_is_noticed() -> None:
    from trio_cogment.servers.datastore.chunks import _checksum

    chunk = ChunkCodec().encode(converted(_logged(100)))
    short = chunk._replace(data=chunk.data[:-4])
    with pytest.raises(DataLossError):
        decode(short._replace(checksum=_checksum(short)), "a")


@pytest.mark.parametrize("varying", [False, True])
def test_cuts_of_templates_agree_with_the_search(varying: bool) -> None:
    known = Layouts()
    for _, tick_id, timestamp, data in taken(_logged(200, varying=varying)):
        if not isinstance(data, bytes):
            split = known.split(tick_id, timestamp, joined(data))
            assert split is not None
            assert values_of(data) == split.values
            assert data.form.layout.key == split.layout.key


def test_layouts_are_limited() -> None:
    known = Layouts()
    for number in range(3000):
        data = StoredTrialSample(trial_id=f"{number:>01000}", tick_id=1).SerializeToString()
        assert known.split(1, 0, data) is not None
    assert sum(map(len, known._known.values())) < 1100


def test_numbers_beyond_what_is_signed() -> None:
    stamp = (1 << 64) - 1
    data = StoredTrialSample(tick_id=3, timestamp=stamp).SerializeToString()
    samples = [ChunkSample(1, 3, stamp, data), ChunkSample(2, 3, 0, b"")]
    assert decode(ChunkCodec().encode(samples), "trial") == samples


def test_a_cut_knows_what_is_empty() -> None:
    data = StoredTrialSample(tick_id=300, timestamp=2, payloads=[b"", b"abc"]).SerializeToString()
    split = Layouts().split(300, 2, data)
    assert split is not None
    came = b"\xac\x02" + (2).to_bytes(8, "little") + b"--abc"
    places = [slice(0, 0), slice(12, 15)]
    parts = Parts(Cut(split.layout, len(came), slice(0, 2), slice(2, 10), places, {}), 300, came, (), len(data))
    assert values_of(parts) == (b"", b"abc")
    assert joined(parts) == data
    chunk = ChunkCodec().encode([(1, 300, 2, parts)])
    assert decode(chunk, "t") == [ChunkSample(1, 300, 2, data)]
    assert np.array_equal(columns(chunk, "t").ticks, [300])


_NUMBERS = st.floats(width=32, allow_nan=False) | st.sampled_from([1.0, -0.0, 0.5])


@given(st.lists(st.lists(_NUMBERS, min_size=4, max_size=4), min_size=1, max_size=30), st.integers(1, 2))
def test_means_of_columns_are_those_of_single_samples(numbers: list[list[float]], sources: int) -> None:
    logged = _logged(len(numbers))
    for sample, row in zip(logged, numbers, strict=True):
        del sample.rewards[0].sources[:]
        for number in range(sources):
            value, confidence = row[2 * number : 2 * number + 2]
            sample.rewards[0].sources.add(sender_name="env", value=value, confidence=confidence)
    full = TrialConverter("trial", trial_params([actor_params(name, "player") for name in ("ann", "bob")]))
    whole = [full.convert(sample)[0].SerializeToString() for sample in logged]
    decoded = decode(ChunkCodec(0).encode(taken(logged)), "trial")
    assert [sample.data for sample in decoded] == whole


def test_samples_with_a_checkpoint_look_like_the_others() -> None:
    converter = TrialConverter("trial", trial_params([actor_params("a", "cls", implementation="i")], environment="e"))
    handed: list[NewSample] = []
    for tick in range(100):
        sample = DatalogSample()
        sample.info.tick_id, sample.info.timestamp, sample.info.state = tick, 1000 + tick, TrialState.RUNNING
        sample.observations.observations.append(b"%d" % tick)
        sample.observations.actors_map.append(0)
        sample.actions.add(tick_id=tick, content=b"a" * (tick % 5))
        if tick % 10 == 9 and tick > 9:  # no layout is known at first
            sample.observations.checkpoint.ParseFromString(saved_checkpoint(tick, bytes(100)))
        write = converter.write_by_template(sample) or converter.write(sample)
        handed.append((tick + 1, write.tick_id, write.timestamp, write.data))
    assert sum(isinstance(data, Parts) and bool(data.checkpoint) for *_, data in handed) >= 9
    codec = ChunkCodec()
    merged = codec.merge([codec.encode(handed[:35]), codec.encode(handed[35:40]), codec.encode(handed[40:])], "trial")
    for chunk in (codec.encode(handed), merged):
        expected = [joined(data) for *_, data in handed]
        assert chunk.raw_bytes == sum(map(len, expected))
        assert [sample.data for sample in decode(chunk, "trial")] == expected
        assert [sample.data for sample in decode(chunk, "trial", after=19, limit=3)] == expected[19:22]
        opened = chunks.OpenChunk(chunk, "trial")
        assert opened.with_checkpoints == list(range(19, 100, 10))
        assert [len(run.ticks) for run in opened.runs()] == [100]
        assert len(opened.columns().groups) == 1


def test_samples_of_all_kinds_are_put_together_in_their_order() -> None:
    some = [taken(_logged(60)), taken(_logged(60, varying=True)), [(1, 1, 1, b"%d" % n) for n in range(60)]]
    data = [sample[3] for together in zip(*some, strict=True) for sample in together]
    assert sum(isinstance(each, Parts) for each in data) > 50
    assert all_joined(data) == list(map(joined, data))
    assert all_joined([]) == []
