"""Chunks in a database: how they are merged, taken apart, and made of the rows of older databases."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
import trio.lowlevel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers.datastore.older_files import make_older
from tests.sim import stored
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import RetrieveSamplesRequest
from trio_cogment.base.errors import DataLossError, NotFoundError, ResourceExhaustedError
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.servers.datastore import Datastore, _sqlite, _sqlite_chunks, _sqlite_reader
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore._sqlite import FORMAT, SqliteStore, open_sqlite
from trio_cogment.servers.datastore._sqlite_reader import Readers, StoredPart
from trio_cogment.servers.datastore._sqlite_writer import SqliteWriter
from trio_cogment.servers.datastore.chunks import decode
from trio_cogment.servers.datastore.storage import (
    DamagedSamplesError,
    EndWrite,
    StoredSample,
    TrialEnd,
    TrialStore,
    Write,
    WriteKind,
)
from trio_cogment.testing.conformance.trial_store import ALL, MUCH, get, late, new_trial, read, sample


def positions_of(part: StoredPart) -> list[int]:
    if isinstance(part, list):
        return [sample.position for sample in part]
    chunk, after = part
    return [sample.position for sample in decode(chunk, "a", after=after)]


def test_parts_are_each_sample_once_whatever_is_merged_meanwhile(tmp_path: Path) -> None:
    database = Database(tmp_path / "trials.db")
    database.write(new_trial("a"))
    for tick in range(0, 40, 4):
        database.write(*(sample("a", tick + number) for number in range(4)))
    database.write(late("a", 7, 1.0))  # takes a chunk apart: its samples are rows
    everything = database.readers.read(_sqlite_reader.samples, 1, 0, 100, MUCH)
    for step in range(1, 12):
        found: list[int] = []
        more = True
        while more:
            after = found[-1] if found else 0
            ((parts, more),) = database.readers.read(_sqlite_reader.parts, [1], after, step * 20)
            found += [position for part in parts for position in positions_of(part)]
            if step % 2:
                database.merge()
                database.write(EndWrite("a", TrialEnd.ENDED))
        assert found == [stored.position for stored in everything]
    database.writer.delete(["a"])
    with pytest.raises(NotFoundError):
        database.readers.read(_sqlite_reader.parts, [1], 0, MUCH)


class Database:
    """A writer and readers, without tasks: what is merged is decided here."""

    def __init__(self, path: Path) -> None:
        self.path = path
        FORMAT.prepare(str(path))
        self.writer = SqliteWriter(str(path), full=False, max_bytes=0, clock=lambda: 0.0)
        self.readers = Readers(str(path))

    def write(self, *writes: Write) -> None:
        refused, _ = self.writer.write(writes)
        assert not refused

    def merge(self, least: int = 2) -> int:
        """Merge all that is to be merged; return how many steps it took."""
        steps = 0
        while self.writer.merge(least):
            steps += 1
        return steps

    def samples(self, trial_id: str = "a", after: int = 0, limit: int = ALL) -> list[StoredSample]:
        (trial,) = self.readers.read(_sqlite_reader.trial, trial_id)
        return self.readers.read(_sqlite_reader.samples, trial.number, after, limit, MUCH)

    def counts(self) -> tuple[int, int]:
        """Return how many chunks and how many rows there are."""
        with closing(sqlite3.connect(self.path)) as connection:
            counts = "SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM samples)"
            chunks, rows = connection.execute(counts).fetchone()
        return chunks, rows

    def close(self) -> None:
        self.readers.close()
        self.writer.close()
        stored.check_file(self.path.parent)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = Database(tmp_path / "a.db")
    yield opened
    opened.close()


END = EndWrite("a", TrialEnd.ENDED)


def test_samples_of_a_commit_are_one_row(database: Database) -> None:
    database.write(new_trial("a"), *(sample("a", tick) for tick in range(100)))
    assert database.counts() == (1, 0)
    assert [one.tick_id for one in database.samples()] == list(range(100))


def test_a_trial_that_has_ended_is_merged_whole(database: Database) -> None:
    database.write(new_trial("a"))
    for tick in range(20):
        database.write(sample("a", tick))
    before = database.samples()
    assert database.counts() == (20, 0)
    database.merge(100)
    assert database.counts() == (20, 0)
    database.write(END)
    assert database.merge(100) == 2
    assert database.counts() == (1, 0)
    assert database.samples() == before
    assert database.merge(100) == 0


def test_a_trial_that_goes_on_is_merged_by_generations(database: Database) -> None:
    """A sample is written again as often as the logarithm of how many there are says, not each time."""
    database.write(new_trial("a"))
    steps = 0
    for tick in range(256):
        database.write(sample("a", tick))
        steps += database.merge(4)
    chunks, rows = database.counts()
    assert (chunks, rows) == (1, 0)
    with closing(sqlite3.connect(database.path)) as connection:
        assert connection.execute("SELECT generation FROM chunks").fetchall() == [(4,)]
    assert [one.tick_id for one in database.samples()] == list(range(256))
    assert steps < 256


def test_chunks_have_a_size(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sqlite_chunks, "CHUNK_SAMPLES", 10)
    database.write(new_trial("a"), *(sample("a", tick) for tick in range(25)))
    assert database.counts() == (3, 0)
    for tick in range(25, 40):
        database.write(sample("a", tick))
    database.write(END)
    database.merge()
    assert database.counts()[0] <= 5
    assert [one.tick_id for one in database.samples()] == list(range(40))


def test_chunks_have_a_number_of_bytes(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sqlite_chunks, "CHUNK_BYTES", 5000)
    for tick in range(20):
        database.write(*[new_trial("a")][tick:], sample("a", tick, payload=bytes(900)))
    database.write(sample("a", 20, payload=bytes(20_000)), END)
    database.merge()
    assert database.counts() == (5, 0)
    assert [one.tick_id for one in database.samples()] == list(range(21))


def test_what_is_written_into_a_chunk_takes_it_apart(database: Database) -> None:
    database.write(new_trial("a"), *(sample("a", tick) for tick in range(10)))
    database.write(*(sample("a", tick) for tick in range(10, 20)))
    before = database.samples()
    database.write(late("a", 3, 0.5))
    assert database.counts() == (1, 10)
    after = database.samples()
    assert [one.position for one in after] == [one.position for one in before]
    assert [one for one in after if one.tick_id != 3] == [one for one in before if one.tick_id != 3]
    assert after[3].data != before[3].data
    database.write(END)
    database.merge()
    assert database.counts() == (1, 0)
    assert database.samples() == after


def test_a_sample_that_comes_again_changes_nothing(database: Database) -> None:
    database.write(new_trial("a"), *(sample("a", tick) for tick in range(10)))
    database.write(*(sample("a", tick) for tick in range(10)))
    assert database.counts() == (1, 0)


def test_a_new_run_shortens_a_chunk(database: Database) -> None:
    database.write(new_trial("a"), *(sample("a", tick) for tick in range(10)))
    database.write(*(sample("a", tick) for tick in range(10, 20)))
    before = database.samples()
    database.write(sample("a", 5, run=1))
    found = database.samples()
    assert found[:5] == before[:5]
    assert [one.tick_id for one in found] == list(range(6))
    assert found[-1].position > before[-1].position
    assert database.counts() == (2, 0)


def test_what_is_out_of_order_stays_a_row(database: Database) -> None:
    stored_ = [sample("a", tick, kind=WriteKind.STORED) for tick in (5, 3, 8, 4)]
    database.write(new_trial("a"), *stored_, late("a", 20, 1.0), END)
    before = database.samples()
    database.merge()
    assert [one.tick_id for one in database.samples()] == [5, 3, 8, 4, 20]
    assert database.samples() == before
    assert database.merge() == 0


def test_pages_end_anywhere(database: Database) -> None:
    database.write(new_trial("a"))
    for first in range(0, 30, 10):
        database.write(*(sample("a", tick, payload=bytes(tick)) for tick in range(first, first + 10)))
        database.write(late("a", first + 4, 0.5))
        database.write(sample("a", first + 1, kind=WriteKind.STORED))
    whole = database.samples()
    for limit in range(1, 34):
        found: list[StoredSample] = []
        while page := database.samples(after=found[-1].position if found else 0, limit=limit):
            found += page
        assert found == whole
    (trial,) = database.readers.read(_sqlite_reader.trial, "a")
    for start, one in enumerate(whole):
        for size in (1, 50, 200, 1000):
            page = database.readers.read(_sqlite_reader.samples, trial.number, one.position, ALL, size)
            total, expected = 0, []
            for other in whole[start + 1 :]:
                if total >= size:
                    break
                expected.append(other)
                total += len(other.data)
            assert page == expected


ticks = st.integers(0, 12)
writes = st.one_of(
    st.builds(lambda tick, run: sample("a", tick, run=run), ticks, st.integers(0, 1)),
    st.builds(lambda tick: sample("a", tick, kind=WriteKind.STORED), ticks),
    st.builds(lambda tick, value: late("a", tick, value), ticks, st.sampled_from([0.5, 1.0])),
    st.sampled_from([END, EndWrite("a", TrialEnd.OPEN)]),
    st.builds(lambda first: [sample("a", tick) for tick in range(first, first + 5)], ticks),
)
batches = st.lists(st.one_of(st.lists(writes, min_size=1, max_size=6), st.integers(1, 3)), max_size=20)


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)
@given(batches, st.booleans())
def test_whatever_is_written_and_merged_in_between(script: list[Any], older: bool) -> None:
    """As a store in memory has it, and each sample keeps its position through every merge."""
    with TemporaryDirectory() as folder:
        database, account = Database(Path(folder) / "a.db"), MemoryStore(1 << 30)
        try:
            for step in [[new_trial("a")], *script]:
                if isinstance(step, int):
                    before = database.samples()
                    for _ in range(step):
                        database.writer.merge(2)
                        assert database.samples() == before
                    continue
                flat: list[Write] = [one for write in step for one in (write if isinstance(write, list) else [write])]
                database.write(*flat)
                trio.run(account.apply, flat)
                wanted = trio.run(read, account, "a")
                assert [one[1:] for one in database.samples()] == [one[1:] for one in wanted]
            if older:
                database.close()
                make_older(database.path, 5)
                database = Database(database.path)
            before = database.samples()
            database.merge()
            assert database.samples() == before
        finally:
            database.close()


# Databases of older versions


@pytest.mark.parametrize("version", [1, 4, 5])
def test_rows_of_older_versions_become_chunks(version: int, tmp_path: Path) -> None:
    older = Database(tmp_path / "a.db")
    names = [f"{number}" for number in range(5)]
    for name in names:
        older.write(new_trial(name), *(sample(name, tick, payload=b"some words " * 20) for tick in range(50)))
    older.write(*(EndWrite(name, TrialEnd.ENDED) for name in names[:-1]))
    before = [older.samples(name) for name in names]
    older.close()
    make_older(older.path, version)
    database = Database(older.path)
    assert database.counts() == (0, 250)
    assert [database.samples(name) for name in names] == before
    database.merge()
    assert [database.samples(name) for name in names] == before
    assert database.counts() == (4, 50)  # the one that has not ended waits
    database.write(EndWrite(names[-1], TrialEnd.ENDED), sample(names[-1], 50, state=TrialState.ENDED))
    database.merge()
    assert database.counts() == (5, 0)
    database.close()


async def test_rows_of_older_versions_become_chunks_in_the_background(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_sqlite(str(path)) as store:
        await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(100)), END])
        before = await read(store, "a")
    make_older(path, 5)
    async with opened(path, threads=False) as store:
        assert await read(store, "a") == before
        await wait_for_merges(path, (1, 0))
        assert await read(store, "a") == before


@asynccontextmanager
async def opened(path: Path, *, threads: bool = True) -> AsyncIterator[SqliteStore]:
    async with open_sqlite(str(path), full=False, host=None if threads else Host(runner=inline_runner)) as store:
        yield store


async def wait_for_merges(path: Path, counts: tuple[int, int]) -> None:
    with trio.fail_after(20):
        while True:
            with closing(sqlite3.connect(path)) as connection:
                found = connection.execute("SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM samples)")
                if found.fetchone() == counts:
                    return
            await trio.sleep(0.01)


# Merging beside others


async def test_a_trials_chunks_are_merged_when_it_ends(tmp_path: Path) -> None:
    async with opened(tmp_path / "a.db") as store:
        await store.apply([new_trial("a")])
        for tick in range(5):
            await store.apply([sample("a", tick)])
        await store.apply([END])
        await wait_for_merges(tmp_path / "a.db", (1, 0))


async def test_readers_during_merges_see_each_sample_once_and_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sqlite, "MERGE_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(_sqlite, "MERGED_WHEN_BUSY", 2)
    monkeypatch.setattr(_sqlite, "MERGED_WHEN_IDLE", 2)
    total = 200
    async with opened(tmp_path / "a.db") as store, trio.open_nursery() as nursery:
        await store.apply([new_trial("a")])
        number = (await get(store, "a")).number

        async def look(page: int) -> None:
            found: list[int] = []
            after = 0
            while len(found) < total:
                samples = await store.samples(number, after=after, limit=page, max_bytes=MUCH)
                found += [one.tick_id for one in samples]
                after = samples[-1].position if samples else after
                await trio.lowlevel.checkpoint()
            assert found == list(range(total))

        for page in (1, 7, 1000):
            nursery.start_soon(look, page)
        for tick in range(total):
            await store.apply([sample("a", tick)])


async def test_a_merge_that_finds_no_room_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path / "a.db")
    database.write(new_trial("a"))
    for tick in range(10):
        database.write(sample("a", tick, payload=bytes([tick]) * 3000))
    database.write(END)
    before = database.samples()
    asked: list[int] = []

    def full(self: Any, connection: sqlite3.Connection, size: int, **_: Any) -> None:
        asked.append(size)
        raise ResourceExhaustedError("no room")

    with monkeypatch.context() as patched:
        patched.setattr("trio_cogment.servers.datastore._sqlite_disk_reserve.DiskReserve.check", full)
        with pytest.raises(ResourceExhaustedError):
            database.merge()
    assert asked[0] >= sum(len(one.data) for one in before)
    assert database.samples() == before
    assert database.counts() == (10, 0)
    database.merge()
    assert database.samples() == before
    assert database.counts() == (1, 0)
    database.close()


def test_a_disk_that_is_full_at_any_step_of_a_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each statement of it fails once, the commit too: what was there is there, and the next try succeeds."""
    left = [0]

    class Full(sqlite3.Connection):
        def execute(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor:
            if statement.split()[0] in ("DELETE", "INSERT", "UPDATE", "COMMIT") and "recoveries" not in statement:
                left[0] -= 1
                if left[0] == 0:
                    if statement == "COMMIT":
                        super().execute("ROLLBACK")
                    error = sqlite3.OperationalError("database or disk is full")
                    error.sqlite_errorcode = sqlite3.SQLITE_FULL
                    raise error
            return super().execute(statement, parameters)

    real = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **options: real(*args, factory=Full, **options))
    database = Database(tmp_path / "a.db")
    database.write(new_trial("a"), *(sample("a", tick, kind=WriteKind.STORED) for tick in (3, 2, 1, 0)))
    for tick in range(4, 14):
        database.write(sample("a", tick))
    database.write(late("a", 6, 1.0), END)
    before, failed = database.samples(), 0
    for step in range(1, 100):
        left[0] = step
        try:
            database.merge()
        except ResourceExhaustedError:
            failed += 1
            left[0] = 0
            assert database.samples() == before
            stored.check_file(tmp_path)
        else:
            break
        left[0] = 0
    assert failed >= 3
    left[0] = 0
    database.merge()
    assert database.samples() == before
    database.close()


# Damage


def damage(path: Path, position: int) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (data,) = connection.execute("SELECT data FROM chunks WHERE position = ?", (position,)).fetchone()
        data = data[:-9] + bytes([data[-9] ^ 1]) + data[-8:]
        connection.execute("UPDATE chunks SET data = ? WHERE position = ?", (data, position))
        connection.commit()


async def three_chunks(store: TrialStore, trial_id: str = "a") -> None:
    await store.apply([new_trial(trial_id)])
    for first in (0, 10, 20):
        await store.apply([sample(trial_id, tick) for tick in range(first, first + 10)])


async def test_a_damaged_chunk_is_data_loss_and_the_rest_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path) as store, Datastore(store) as datastore:
        await three_chunks(store)
        damage(path, 20)
        number = (await get(store, "a")).number
        with pytest.raises(DamagedSamplesError, match="trial 'a': the samples of ticks 10 to 19 are damaged") as found:
            await store.samples(number, after=0, limit=ALL, max_bytes=MUCH)
        assert [one.tick_id for one in found.value.before] == list(range(10))
        assert len(await store.samples(number, after=0, limit=10, max_bytes=MUCH)) == 10
        rest = await store.samples(number, after=found.value.last_position, limit=ALL, max_bytes=MUCH)
        assert [one.tick_id for one in rest] == list(range(20, 30))
        await store.apply([END])
        ticks_: list[int] = []

        async def read_all() -> None:
            async with datastore.reading(RetrieveSamplesRequest(trial_ids=["a"])) as pages:
                async for page in pages:
                    ticks_.extend(one.tick_id for one in page)

        with pytest.raises(DataLossError, match="ticks 10 to 19"):
            await read_all()
        assert ticks_ == [*range(10), *range(20, 30)]


async def test_writes_into_a_damaged_chunk_are_refused_and_others_go_on(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with opened(path) as store:
        await three_chunks(store)
        await three_chunks(store, "b")
        damage(path, 20)
        batch = [late("a", 12, 1.0), sample("a", 13, run=1), sample("a", 30), sample("b", 30), late("a", 3, 1.0)]
        refused = await store.apply(batch)
        assert sorted(refused) == [0, 1]
        assert all("ticks 10 to 19 are damaged" in text for text in refused.values())
        assert (await get(store, "a")).samples_count == 31


def test_a_damaged_chunk_is_not_merged(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    database.write(new_trial("a"))
    for first in range(0, 50, 10):
        database.write(*(sample("a", tick) for tick in range(first, first + 10)))
    database.write(END)
    damage(database.path, 30)
    database.merge()
    assert database.counts() == (3, 0)
    with pytest.raises(DamagedSamplesError) as found:
        database.samples()
    assert [one.tick_id for one in found.value.before] == list(range(20))
    assert len(database.samples(after=found.value.last_position)) == 20
    assert database.merge() == 0
    database.close()


def test_bytes_that_are_counted_are_those_that_are_stored(tmp_path: Path) -> None:
    database = Database(tmp_path / "a.db")
    noise: Sequence[bytes] = [random.Random(tick).randbytes(100) for tick in range(3)]
    database.write(new_trial("a", owner="x"), *(sample("a", tick, payload=one) for tick, one in enumerate(noise)))
    (trial,) = database.readers.read(_sqlite_reader.trial, "a")
    few = database.readers.read(_sqlite_reader.stored_bytes, "x")
    assert trial.stored_bytes == few
    for tick in range(3, 500):
        database.write(sample("a", tick, payload=bytes(1000)))
    many = database.readers.read(_sqlite_reader.stored_bytes, "x")
    database.write(END)
    database.merge()
    (trial,) = database.readers.read(_sqlite_reader.trial, "a")
    assert trial.raw_bytes > 497_000
    assert trial.stored_bytes == database.readers.read(_sqlite_reader.stored_bytes, "x") < 20_000 < many
    database.close()
