"""The writer of PostgreSQL against a database in memory, whose connection fails anywhere, or after a commit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.postgresql import TransientError
from trio_cogment.servers.datastore._chunk_layouts import size_of
from trio_cogment.servers.datastore._postgresql_statements import (
    Begun,
    Changes,
    ChunkRow,
    Part,
    StaleError,
    TrialRow,
    as_text,
    from_text,
    key_of,
)
from trio_cogment.servers.datastore._postgresql_writer import (
    Batch,
    Deletion,
    PostgresqlWriter,
    WriterGoneError,
    Written,
)
from trio_cogment.servers.datastore._trial_edit import TrialEdit
from trio_cogment.servers.datastore._write_rules import Head
from trio_cogment.servers.datastore.chunks import Chunk, NewSamples, counted_chunk, decode
from trio_cogment.servers.datastore.storage import EndWrite, SampleWrite, StoredSample, TrialEnd, Write, WriteKind
from trio_cogment.testing.conformance.trial_store import late, late_rewards, new_trial, sample


@dataclass
class Tables:
    """What the database keeps."""

    batches: dict[int, int] = field(default_factory=lambda: {1: 0})
    gone: set[int] = field(default_factory=set)
    last_number: int = 0
    trials: dict[str, TrialRow] = field(default_factory=dict)
    chunks: dict[tuple[int, int], ChunkRow] = field(default_factory=dict)


class FakeSession:
    """A session of `Tables` that fails where it is told.

    Args:
        faults: for each call in turn, whether it fails, and if it is a commit whether that was done: `before`, `after`.
    """

    def __init__(self, faults: Sequence[str] = ()) -> None:
        self.tables = Tables()
        self.sessions_now = {1}
        self.faults = list(faults)
        #: How many transactions were begun with a question, and how many without one.
        self.asked = self.unasked = 0
        self._open: Tables | None = None

    def _call(self, *, after: bool = False) -> None:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before" or (fault == "after" and not after):
            self._open = None
            raise TransientError(fault)
        if fault == "after":
            assert self._open is not None
            self.tables, self._open = self._open, None
            raise TransientError(fault)

    def close(self) -> None:
        self._open = None

    roll_back = close

    def unknown(self, keys: Collection[str]) -> set[str]:
        self._call()
        return set(keys) - self.tables.trials.keys()

    def begin(self, writer: int, keys: Collection[str], *, creates: bool) -> Begun:
        self._call()
        self.asked += 1
        self._open = tables = copy.deepcopy(self.tables)
        tables.batches[writer] += 1
        rows = {key: tables.trials[key] for key in keys if key in tables.trials}
        is_gone = writer in tables.gone
        return Begun(tables.batches[writer], is_gone, tables.last_number if creates else None, rows)

    def chunks(self, trial: int, first_tick: int, last_tick: int) -> list[ChunkRow]:
        self._call()
        assert self._open is not None
        return [
            row
            for (number, _), row in self._open.chunks.items()
            if number == trial and row.chunk.last_tick >= first_tick and row.chunk.first_tick <= last_tick
        ]

    def sessions(self) -> set[int]:
        self._call()
        return self.sessions_now

    def lock_ended(self, keys: Collection[str]) -> list[tuple[int, str, int]]:
        self._call()
        self._open = copy.deepcopy(self.tables)
        rows = [self._open.trials[key] for key in keys if key in self._open.trials]
        return [(row.number, row.key, row.ending) for row in rows]

    def delete(self, numbers: Sequence[int]) -> None:
        assert self._open is not None
        self._open.trials = {key: row for key, row in self._open.trials.items() if row.number not in numbers}
        self._open.chunks = {at: row for at, row in self._open.chunks.items() if at[0] not in numbers}
        self._commit()

    def write(self, writer: int, begun: Begun, added: Iterable[ChunkRow], rest: Callable[[], Changes]) -> None:
        self._call()
        self._open = tables = copy.deepcopy(self.tables)
        is_there = all(tables.trials.get(key) == row for key, row in begun.rows.items())
        if writer in tables.gone or tables.batches[writer] + 1 != begun.batch or not is_there:
            self._open = None
            raise StaleError
        tables.batches[writer] += 1
        self.unasked += 1
        self.commit(added, rest, copies=False)

    def commit(self, added: Iterable[ChunkRow], rest: Callable[[], Changes], *, copies: bool) -> None:
        self._call()
        new_chunks = list(added)
        changes = rest()
        tables = self._open
        assert tables is not None
        for row in [*(new.row for new in changes.new), *changes.rows]:
            assert row.changes == (tables.trials[row.key].changes + 1 if row.key in tables.trials else 0)
            tables.trials[row.key] = row
        for number, first in changes.removed:
            del tables.chunks[number, first]
        changed = [(tables.chunks.pop((row.trial, first)), row)[1] for first, row in changes.changed]
        for chunk in [*new_chunks, *changed]:
            at = chunk.trial, chunk.chunk.first_position
            assert at not in tables.chunks, "the key of a chunk that is there"
            tables.chunks[at] = chunk
        if changes.last_number is not None:
            tables.last_number = changes.last_number
        self._commit()

    def _commit(self) -> None:
        self._call(after=True)
        assert self._open is not None
        self.tables, self._open = self._open, None

    def _trial(self, number: int) -> TrialRow:
        assert self._open is not None
        [row] = [row for row in self._open.trials.values() if row.number == number]
        return row

    def begin_merge(self, trial: int, after: int) -> tuple[str, list[Part]] | None:
        self._call()
        self._open = copy.deepcopy(self.tables)
        if self._trial(trial).ending == TrialEnd.OPEN:
            return None
        parts = []
        for (number, first), row in sorted(self._open.chunks.items()):
            if number == trial and first > after:
                chunk = row.chunk
                sizes = chunk.samples_count, chunk.raw_bytes, len(chunk.data), bool(row.waiting)
                parts.append(Part(first, chunk.last_position, chunk.first_tick, chunk.last_tick, *sizes))
        return self._trial(trial).key, parts

    def run(self, trial: int, first: int, last: int) -> list[Chunk]:
        self._call()
        assert self._open is not None
        return [row.chunk for at, row in sorted(self._open.chunks.items()) if (trial, first) <= at <= (trial, last)]

    def commit_merge(self, trial: int, merged: Chunk, last: int, growth: int) -> None:
        tables = self._open
        assert tables is not None
        for at in [at for at in tables.chunks if (trial, merged.first_position) <= at <= (trial, last)]:
            del tables.chunks[at]
        tables.chunks[trial, merged.first_position] = ChunkRow(trial, [], merged)
        row = self._trial(trial)
        tables.trials[row.key] = row._replace(bytes=row.bytes + growth, changes=row.changes + 1)
        self._commit()

    def rows(self, trial_id: str) -> list[Any]:
        """Return the samples of a trial that are committed, and check what is said of them."""
        row = self.tables.trials[key_of(trial_id)]
        chunks = [chunk for (number, _), chunk in sorted(self.tables.chunks.items()) if number == row.number]
        found = [sample for chunk in chunks for sample in decode(chunk.chunk, trial_id)]
        positions = [one.position for one in found]
        assert positions == sorted(set(positions))
        assert len({one.tick_id for one in found}) == len(found) == row.samples_count
        assert row.raw_bytes == sum(len(one.data) for one in found)
        assert row.info_bytes < row.bytes <= row.info_bytes + row.raw_bytes + 128 * len(found) or not found
        for chunk in chunks:
            ticks = [one.tick_id for one in decode(chunk.chunk, trial_id)]
            assert ticks == sorted(ticks)
            assert {chunk.chunk.first_tick, chunk.chunk.last_tick} == {min(ticks), max(ticks)}
        return found


def patiently(session: FakeSession, batch: Batch, writer: PostgresqlWriter) -> Written:
    while True:
        try:
            return writer.write(1, batch)
        except TransientError:
            pass


#: Few enough that most transactions come to their commit.
FAULTS = st.lists(st.sampled_from([*[""] * 6, "before", "after", "after"]), max_size=40)
WRITES = st.lists(
    st.one_of(
        st.builds(sample, st.sampled_from("ab"), st.integers(0, 12), run=st.integers(0, 1)),
        st.builds(sample, st.sampled_from("ab"), st.integers(0, 12), kind=st.just(WriteKind.STORED)),
        st.builds(late, st.sampled_from("ab"), st.integers(0, 12), st.sampled_from([0.25, 0.5])),
        st.builds(EndWrite, st.sampled_from("ab"), st.sampled_from(TrialEnd)),
        st.builds(new_trial, st.sampled_from("ab")),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(st.lists(WRITES, min_size=1, max_size=6), FAULTS)
def test_done_once_whatever_fails(batches: list[list[Write]], faults: list[str]) -> None:
    """What is kept, and what is answered, is the same as without a failure."""
    broken, whole = FakeSession(faults), FakeSession()
    writers = PostgresqlWriter(broken), PostgresqlWriter(whole)
    everything: list[list[Write]] = [[new_trial("a")], *batches]
    for writes in everything:
        answers = [
            patiently(session, Batch(writes), writer) for session, writer in zip((broken, whole), writers, strict=True)
        ]
        assert answers[0] == answers[1]
    for trial_id in "ab":
        if trial_id in whole.tables.trials:
            assert broken.rows(trial_id) == whole.rows(trial_id)
    assert broken.tables.trials == whole.tables.trials


@settings(max_examples=100, deadline=None)
@given(FAULTS)
def test_deleted_once_whatever_fails(faults: list[str]) -> None:
    session = FakeSession()
    writer = PostgresqlWriter(session)
    patiently(session, Batch([new_trial("a"), sample("a", 0), new_trial("b"), new_trial("c")]), writer)
    session.faults = faults
    deletion = Deletion(["b", "nobody", "a"], None, False)
    while True:
        try:
            assert writer.delete(deletion) == ["b", "a"]
        except TransientError:
            continue
        break
    assert session.tables.trials.keys() == {"c"}
    assert not session.tables.chunks


@settings(max_examples=100, deadline=None)
@given(st.lists(WRITES, min_size=1, max_size=12), FAULTS)
def test_merged_once_whatever_fails(batches: list[list[Write]], faults: list[str]) -> None:
    """Merges change no sample, and what the trial takes is what its chunks take."""
    session = FakeSession()
    writer = PostgresqlWriter(session)
    everything: list[list[Write]] = [[new_trial("a"), new_trial("b")], *batches, [EndWrite("a", TrialEnd.ENDED)]]
    for writes in everything:
        patiently(session, Batch(writes), writer)
    before, number = session.rows("a"), session.tables.trials["a"].number
    session.faults = faults
    after: int | None = 0
    while after is not None:
        try:
            after = writer.merge(number, after)
        except TransientError:
            assert session.rows("a") == before
    assert session.rows("a") == before
    chunks = [row.chunk for (trial, _), row in session.tables.chunks.items() if trial == number]
    row = session.tables.trials["a"]
    assert row.bytes - row.info_bytes == sum(
        counted_chunk(chunk.samples_count, chunk.raw_bytes, len(chunk.data)) for chunk in chunks
    )
    ticks = [one.tick_id for one in before]
    waits = any(row.waiting for (trial, _), row in session.tables.chunks.items() if trial == number)
    if ticks == sorted(ticks) and not waits:
        assert len(chunks) <= 1


def test_who_counts_as_gone_writes_nothing() -> None:
    session = FakeSession()
    session.tables.gone = {1}
    session.tables.batches[2] = 0
    writer = PostgresqlWriter(session)
    batch = Batch([new_trial("a"), sample("a", 0)])
    with pytest.raises(WriterGoneError):
        writer.write(1, batch)
    assert not session.tables.trials
    assert writer.write(2, batch).trial_ids == {"a"}


def test_a_commit_of_who_counts_as_gone_since_is_found() -> None:
    session = FakeSession(["", "", "", "after"])
    session.tables.batches[2] = 0
    writer = PostgresqlWriter(session)
    batch = Batch([new_trial("a"), sample("a", 0, kind=WriteKind.STORED)])
    with pytest.raises(TransientError):
        writer.write(1, batch)
    session.tables.gone = {1}
    assert writer.write(1, batch).trial_ids == {"a"}
    assert [one.position for one in session.rows("a")] == [1]


def test_who_has_lost_a_data_log_does_not_end_a_trial_that_another_has() -> None:
    session = FakeSession()
    session.tables.batches[2] = 0
    writer, other = PostgresqlWriter(session), PostgresqlWriter(session)
    session.sessions_now = {1, 2}
    writer.write(1, Batch([new_trial("a"), sample("a", 0)]))
    other.write(2, Batch([new_trial("a")]))
    writer.write(1, Batch([EndWrite("a", TrialEnd.ABNORMAL)]))
    assert session.tables.trials["a"].ending == TrialEnd.OPEN
    session.sessions_now = {1}
    writer.write(1, Batch([EndWrite("a", TrialEnd.ABNORMAL)]))
    assert session.tables.trials["a"].ending == TrialEnd.ABNORMAL


def test_a_trial_that_another_process_has_created_meanwhile_stays_its_owners() -> None:
    session = FakeSession()
    writer = PostgresqlWriter(session)
    writer.write(1, Batch([new_trial("a", owner="ann")]))
    refused = writer.write(1, Batch([new_trial("a", user_id="eve", owner="eve"), new_trial("a", owner="ann")])).refused
    assert refused == {0: "trial 'a': it belongs to somebody else"}
    assert writer.write(1, Batch([new_trial("a")])).refused == {}
    assert session.tables.trials["a"].owner == "ann"


def test_who_writes_alone_asks_once() -> None:
    session = FakeSession()
    writer = PostgresqlWriter(session)
    writer.write(1, Batch([new_trial("a"), new_trial("b")]))
    for tick in range(5):
        writer.write(1, Batch([sample("a", tick), sample("b", tick)]))
    assert (session.asked, session.unasked) == (1, 5)
    writer.write(1, Batch([late("a", 2, 0.5)]))  # merged into a sample that is there
    assert (session.asked, session.unasked) == (2, 5)
    writer.write(1, Batch([sample("a", 5)]))
    assert (session.asked, session.unasked) == (2, 6)
    assert [one.tick_id for one in session.rows("a")] == list(range(6))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([1, 2]), WRITES), min_size=1, max_size=12))
def test_writers_take_turns(batches: list[tuple[int, list[Write]]]) -> None:
    """Two that remember what they have written do the same as two that ask each time."""
    sessions = FakeSession(), FakeSession()
    for session in sessions:
        session.tables.batches[2] = 0
        session.sessions_now = {1, 2}
    remembering = {number: PostgresqlWriter(sessions[0]) for number in (1, 2)}
    everything: list[tuple[int, list[Write]]] = [(1, [new_trial("a"), new_trial("b")]), *batches]
    for number, writes in everything:
        answers = (
            remembering[number].write(number, Batch(writes)),
            PostgresqlWriter(sessions[1]).write(number, Batch(writes)),
        )
        assert answers[0] == answers[1]
    assert sessions[0].tables == sessions[1].tables
    assert not sessions[1].unasked


def test_who_counts_as_gone_is_told_though_it_asks_nothing() -> None:
    session = FakeSession()
    writer = PostgresqlWriter(session)
    writer.write(1, Batch([new_trial("a"), sample("a", 0)]))
    before = copy.deepcopy(session.tables)
    session.tables.gone = before.gone = {1}
    with pytest.raises(WriterGoneError):
        writer.write(1, Batch([sample("a", 1)]))
    assert session.tables == before


def test_another_attempt_is_fenced_off_though_it_asks_nothing() -> None:
    session = FakeSession()
    session.tables.batches[2] = 0
    writer, other = PostgresqlWriter(session), PostgresqlWriter(session)
    writer.write(1, Batch([new_trial("a", attempt=1), sample("a", 0)._replace(attempt=1)]))
    other.write(2, Batch([new_trial("a", attempt=2, takes_over=True)]))
    refused = writer.write(1, Batch([sample("a", 1)._replace(attempt=1)])).refused
    assert list(refused) == [0]
    assert [one.tick_id for one in session.rows("a")] == [0]


def test_samples_that_wait_keep_waiting() -> None:
    session = FakeSession()
    writer = PostgresqlWriter(session)
    writer.write(1, Batch([new_trial("a"), sample("a", 0), late("a", 5, 0.5)]))
    writer.write(1, Batch([late("a", 5, 0.25)]))
    writer.write(1, Batch([sample("a", 5)]))
    found = session.rows("a")
    assert [one.tick_id for one in found] == [0, 5]
    assert late_rewards(StoredSample(found[1].position, 5, found[1].data)) == [0.5, 0.25]


def edit(*, adds: bool) -> TrialEdit:
    """Return a trial that has a sample of tick 3, at position 1: before the batch, or with it."""
    made = TrialEdit(Head(1), -1, 1, lambda _first, _last: ())
    assert made.write(sample("a", 3)) is None
    return made if adds else TrialEdit(made.head, 3, 2, lambda _first, _last: ())


@given(
    st.lists(
        st.builds(
            sample,
            st.just("a"),
            st.integers(3, 40),
            kind=st.sampled_from([*[WriteKind.LOGGED] * 9, WriteKind.STORED, WriteKind.LATE]),
            state=st.sampled_from([TrialState.RUNNING, TrialState.ENDED]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 0, 50]),
)
def test_samples_that_follow_are_added_as_one_by_one(
    writes: list[SampleWrite], in_order: bool, adds: bool, then: int | None
) -> None:
    if in_order:
        writes.sort(key=lambda write: write.tick_id)
    together, alone, before = edit(adds=adds), edit(adds=adds), edit(adds=adds)
    done = together.extend(writes)
    ticks = [write.tick_id for write in writes]
    follow = ticks == sorted(set(ticks)) and ticks[0] > 3 and all(write.kind != WriteKind.LATE for write in writes)
    assert done == follow
    if done:
        assert [alone.write(write) for write in writes] == [None] * len(writes)
    else:
        alone = before
    if then is not None:  # something else after them
        assert together.write(sample("a", then)) == alone.write(sample("a", then))
    for name in ("head", "next_position", "top_tick", "changed"):
        assert getattr(together, name) == getattr(alone, name)
    assert list(map(list, together.added)) == list(map(list, alone.added))


@given(st.lists(st.tuples(st.integers(0, 9), st.binary(max_size=9))), st.integers(1, 20))
def test_pieces(samples: list[tuple[int, bytes]], most: int) -> None:
    rows = [(number, tick, 0, data) for number, (tick, data) in enumerate(samples, 1)]
    pieces = list(NewSamples.of(rows).in_chunks(most, 7))
    assert [row for piece in pieces for row in zip(*piece, strict=True)] == rows
    for piece in pieces:
        assert len(piece.data) == 1 or sum(map(size_of, piece.data)) <= most
        assert len(piece.data) <= 7
        assert list(piece.ticks) == sorted(piece.ticks)


@given(st.text())
def test_texts_come_back(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    kept = as_text(text)
    assert "\0" not in kept
    assert from_text(kept) == text


@given(st.text(max_size=3), st.text(max_size=3))
def test_keys_are_of_one_id(one: str, other: str) -> None:
    for long in ("", "x" * 2000):
        first, second = (text.encode("utf-8", "replace").decode() + long for text in (one, other))
        assert (key_of(first) == key_of(second)) == (first == second)
        assert len(key_of(first).encode()) <= 1000
