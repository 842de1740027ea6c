"""Trials in a real PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection

import pytest
import trio

from tests.stores.postgresql_server import PostgresqlServer, pgbouncer
from trio_cogment.base.errors import (
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    UnavailableError,
)
from trio_cogment.base.postgresql import connect
from trio_cogment.servers.datastore import TrialStore, _postgresql, open_store
from trio_cogment.servers.datastore._postgresql_statements import LOCK_TABLES, VERSION, Begun, WritingSession
from trio_cogment.servers.datastore.storage import DamagedSamplesError, EndWrite, TrialEnd
from trio_cogment.testing.conformance.trial_store import (
    CASES,
    KEEPING_CASES,
    SHARED_CASES,
    OpenStore,
    check_case,
    get,
    late,
    late_rewards,
    new_trial,
    read,
    sample,
)

pytestmark = [pytest.mark.stores, pytest.mark.postgresql]


def name(item: Callable[..., object]) -> str:
    return item.__name__


@pytest.mark.parametrize("case", CASES, ids=name)
async def test_conformance(case: Callable[[TrialStore], Awaitable[None]], database: str) -> None:
    await check_case(lambda: open_store(database), case)


@pytest.mark.parametrize("case", KEEPING_CASES, ids=name)
async def test_what_is_kept(case: Callable[[OpenStore], Awaitable[None]], database: str) -> None:
    with trio.fail_after(60):
        await case(lambda: open_store(database))


@pytest.mark.parametrize("case", SHARED_CASES, ids=name)
async def test_shared(case: Callable[[TrialStore, TrialStore], Awaitable[None]], database: str) -> None:
    with trio.fail_after(60):
        async with open_store(database) as first, open_store(database) as second:
            await case(first, second)


async def test_what_another_process_writes_is_noticed(
    postgresql: PostgresqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A datastore that writes alone asks for nothing; when another one has written it asks, and nothing is lost."""
    asked: list[int] = []
    begin = WritingSession.begin

    def asks(session: WritingSession, writer: int, keys: Collection[str], *, creates: bool) -> Begun:
        asked.append(writer)
        return begin(session, writer, keys, creates=creates)

    monkeypatch.setattr(WritingSession, "begin", asks)
    with trio.fail_after(60):
        async with _postgresql.open_postgresql(database) as first, _postgresql.open_postgresql(database) as second:
            await first.apply([new_trial("a"), new_trial("b")])
            for tick in range(10):
                await first.apply([sample("a", tick), sample("b", tick)])
            assert asked == [first.presence.number]
            for tick in range(10, 30):
                await (first, second)[tick % 2].apply([sample("a", tick), sample("b", tick)])
            assert set(asked) == {first.presence.number, second.presence.number}
            assert first.figures()["retries"] == second.figures()["retries"] == 0
            for trial_id in "ab":
                found = await read(first, trial_id)
                assert [one.tick_id for one in found] == list(range(30))
                assert [one.position for one in found] == list(range(1, 31))


async def refused(address: str, error: type[CogmentError], text: str) -> None:
    with trio.fail_after(60), pytest.raises(error, match=text) as caught:
        async with open_store(address):
            pass
    assert "secret" not in str(caught.value)


async def test_what_cannot_be_used(postgresql: PostgresqlServer, database: str) -> None:
    where = f"postgresql://cogment:secret@127.0.0.1:{postgresql.port}"
    await refused(f"{where}/nowhere", FailedPreconditionError, 'database "nowhere" does not exist')
    await refused(where.replace("cogment", "nobody"), FailedPreconditionError, 'role "nobody" does not exist')
    latin = postgresql.database(encoding="LATIN1").rpartition("/")[2]
    await refused(f"{where}/{latin}", FailedPreconditionError, r"cogment:\*\*\*@.* LATIN1; texts need")
    await refused(f"{where}/{latin}?nonsense=1", InvalidArgumentError, "with parameters that libpq knows")
    await refused("postgresql://cogment:secret@127.0.0.1:1/x", UnavailableError, "cannot connect")
    async with open_store(database):
        pass
    name = database.rpartition("/")[2]
    postgresql.query(name, "UPDATE trio_cogment.datastore_format SET version = 77")
    await refused(database, FailedPreconditionError, "another version .*version is 77, this one knows 1 to 2")


async def older(postgresql: PostgresqlServer, database: str) -> str:
    """Store a trial, and make the tables those of version 1; return the database's name."""
    async with open_store(database) as store:
        await store.apply([new_trial("a"), sample("a", 0), sample("a", 1)])
    name = database.rpartition("/")[2]
    postgresql.query(name, "ALTER TABLE trio_cogment.trials DROP COLUMN attempt")
    postgresql.query(name, "UPDATE trio_cogment.datastore_format SET version = 1")
    return name


async def test_the_tables_of_an_older_version_are_changed(postgresql: PostgresqlServer, database: str) -> None:
    name = await older(postgresql, database)

    async def start() -> None:
        async with open_store(database) as store:
            assert (await get(store, "a")).attempt == 0
            assert [one.tick_id for one in await read(store, "a")] == [0, 1]

    async with trio.open_nursery() as nursery:  # one of them changes them
        nursery.start_soon(start)
        nursery.start_soon(start)
    assert postgresql.query(name, "SELECT version FROM trio_cogment.datastore_format") == f"{VERSION}"
    async with open_store(database) as store:
        await store.apply([sample("a", 2), EndWrite("a", TrialEnd.ENDED)])
        assert [one.tick_id for one in await read(store, "a")] == [0, 1, 2]


async def test_tables_are_not_changed_while_an_older_version_uses_them(
    postgresql: PostgresqlServer, database: str
) -> None:
    name = await older(postgresql, database)
    with connect(database, purpose="an older datastore") as connection:
        connection.execute("SELECT pg_advisory_lock_shared(%s, 0)", (LOCK_TABLES,))
        said = "the tables in .* have to be changed for this version .* while other datastores use them; stop those"
        await refused(database, FailedPreconditionError, said)
        assert postgresql.query(name, "SELECT version FROM trio_cogment.datastore_format") == "1"
    async with open_store(database) as store:
        assert (await get(store, "a")).samples_count == 2


async def test_several_start_at_once_in_an_empty_database(database: str) -> None:
    async def start(number: int) -> None:
        async with open_store(database) as store:
            await store.apply([new_trial(f"{number}")])

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(start, number)
    async with open_store(database) as store:
        assert len(await store.trials(after=0, limit=10)) == 4


async def test_ids_of_any_kind(database: str) -> None:
    names = ["a\0b", "a\\0b", "\\", "x" * 5000, "x" * 4999, "ä" * 400]
    async with open_store(database) as store:
        properties = {"\0": "\\", "long": "y" * 5000}
        await store.apply([*(new_trial(name, user_id="\0", properties=properties) for name in names)])
        await store.apply([sample(name, 0) for name in names])
        assert [trial.trial_id for trial in await store.trials(after=0, limit=10, properties=properties)] == names
        assert {trial.user_id for trial in await store.trials(after=0, limit=10, ids=names)} == {"\0"}
        async with open_store(database) as other:
            for name in names:
                async with other.watch(name) as watch:
                    await store.apply([sample(name, 1)])
                    with trio.fail_after(10):
                        await watch.changed()
        assert sorted(await store.open_logged()) == sorted(names)
        assert await store.delete(names[::-1]) == names[::-1]


async def test_large_samples_are_in_chunks_of_a_page(postgresql: PostgresqlServer, database: str) -> None:
    async with open_store(database) as store:
        await store.apply(
            [new_trial("a"), *(sample("a", tick, payload=random.randbytes(100_000)) for tick in range(10))]
        )
        assert [one.tick_id for one in await read(store, "a", page=3)] == list(range(10))
    counts = postgresql.query(database.rpartition("/")[2], "SELECT samples_count FROM trio_cogment.chunks")
    assert counts.split() == ["2"] * 5


async def test_a_damaged_chunk_is_said_to_be(postgresql: PostgresqlServer, database: str) -> None:
    async with open_store(database) as store:
        await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(5))])
        postgresql.query(database.rpartition("/")[2], "UPDATE trio_cogment.chunks SET checksum = checksum + 1")
        await store.apply([*(sample("a", tick) for tick in range(5, 8))])
        with pytest.raises(DamagedSamplesError, match="ticks 0 to 4 are damaged") as damaged:
            await read(store, "a")
        assert (damaged.value.before, damaged.value.last_position) == ([], 5)
        number = (await get(store, "a")).number
        found = await store.samples(number, after=5, limit=10, max_bytes=1 << 20)
        assert [one.tick_id for one in found] == [5, 6, 7]


async def test_behind_pgbouncer(postgresql: PostgresqlServer, database: str) -> None:
    for mode in ("session", "transaction"):
        with pgbouncer(postgresql, mode) as port:
            behind = database.replace(str(postgresql.port), str(port))
            if mode == "session":
                async with open_store(behind) as store:
                    await store.apply([new_trial("a"), sample("a", 0)])
            else:
                await refused(behind, FailedPreconditionError, r"PgBouncer's pool_mode = transaction\)")


async def test_small_chunks_are_merged_when_a_trial_has_ended(
    postgresql: PostgresqlServer, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgresql, "MERGE_SECONDS", 0.0)
    name = database.rpartition("/")[2]

    def counts() -> list[str]:
        query = "SELECT samples_count FROM trio_cogment.chunks ORDER BY first_position"
        return postgresql.query(name, query).split()

    async with open_store(database) as store:
        await store.apply([new_trial("a", owner="ann")])
        for tick in range(120):
            await store.apply([sample("a", tick)])
        await store.apply([late("a", 500, 0.5), sample("a", 120), sample("a", 121)])
        before, size = await read(store, "a"), await store.stored_bytes("ann")
        assert len(counts()) == 122
        number = (await get(store, "a")).number
        await store.apply([EndWrite("a", TrialEnd.ENDED)])
        found, after = [], 0
        while len(counts()) > 3:  # a reader meanwhile
            page = await store.samples(number, after=after, limit=5, max_bytes=1 << 20)
            found += page
            after = page[-1].position if page else after
        while page := await store.samples(number, after=after, limit=5, max_bytes=1 << 20):
            found += page
            after = page[-1].position
        assert found == before == await read(store, "a")
        assert counts() == ["120", "1", "2"]
        assert await store.stored_bytes("ann") < size
        assert await store.apply([late("a", 3, 0.25), sample("a", 500), sample("a", 121)]) == {}
        assert late_rewards((await read(store, "a"))[3]) == [0.25]
        assert [one.tick_id for one in await read(store, "a")] == [*range(122), 500]
