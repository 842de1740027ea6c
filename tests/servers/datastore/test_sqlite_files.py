"""Database files: whose they are, where they are, what was written by whom, and how they are read."""

from __future__ import annotations

import os
import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio

from tests.servers.datastore.older_files import make_older
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base import sqlite_file
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError, UnavailableError
from trio_cogment.base.host import Host, inline_runner, run_inline
from trio_cogment.base.sqlite_file import connect
from trio_cogment.servers.datastore import _sqlite, _sqlite_reader, _sqlite_writer
from trio_cogment.servers.datastore._sqlite import FORMAT, open_sqlite
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.servers.datastore.storage import OutcomeWrite, TrialEnd, WriteKind
from trio_cogment.testing.conformance.trial_store import ALL, MUCH, get, late, new_trial, read, sample, ticks

NOBODY = 65534


def files_in(folder: Path) -> set[str]:
    return {one.name for one in folder.iterdir()}


async def refused(path: Path | str, match: str) -> None:
    with pytest.raises(FailedPreconditionError, match=match):
        async with open_store(f"sqlite:{path}"):
            raise AssertionError("opened")


async def test_a_second_datastore_is_refused(tmp_path: Path) -> None:
    path, link = tmp_path / "a.db", tmp_path / "link.db"
    link.symlink_to(path)
    async with open_store(f"sqlite:{path}") as store:
        await refused(path, r"a\.db is in use by another datastore in this process")
        await refused(link, r"a\.db is in use by another datastore")
        await store.apply([new_trial("a")])
    async with open_store(f"sqlite:{link}") as store:
        assert (await get(store, "a")).trial_id == "a"
    assert files_in(tmp_path) == {"a.db", "a.db.lock", "link.db"}


@pytest.mark.parametrize("content", [b"COGMENTTRIALS001", b"x" * 5000, b"SQLite format 3\0"])
async def test_a_file_that_is_no_database(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(content)
    await refused(path, r"a\.db is not an SQLite database; it was not touched")
    assert path.read_bytes() == content
    assert files_in(tmp_path) == {"a.db", "a.db.lock"}


async def test_a_database_of_the_reference(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    content = bytes(16) + bytes([0xED, 0xDA, 0x0C, 0xED]) + bytes(4076)
    path.write_bytes(content)
    await refused(path, r"a\.db is a database of the reference .*trial_datastore export.*trial_datastore import")
    assert path.read_bytes() == content


async def test_a_database_of_somebody_else(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.commit()
    before = path.read_bytes()
    await refused(path, r"a\.db is a database of another program; it was not touched")
    assert path.read_bytes() == before


@pytest.mark.parametrize("version", [0, FORMAT.version + 1])
async def test_a_database_of_another_version(version: int, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a")])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    await refused(path, rf"a\.db was written by another version .* schema is {version}")
    assert path.read_bytes() == before


async def test_a_database_of_the_first_version_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a"), sample("a", 0)])
    make_older(path, 1)
    for _ in range(2):
        async with open_store(f"sqlite:{path}") as store:
            trial = await store.trial("a")
            assert trial is not None
            assert (trial.samples_count, trial.outcome) == (1, b"")
    async with open_store(f"sqlite:{path}") as store:
        assert await store.apply([OutcomeWrite("a", b"over")]) == {}
        trial = await store.trial("a")
        assert trial is not None
        assert trial.outcome == b"over"


async def test_a_newer_version_that_is_in_the_log_only(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}"):
        pass
    with closing(sqlite3.connect(path)) as connection, closing(sqlite3.connect(path)) as other:
        other.execute("SELECT * FROM trials").fetchall()
        connection.execute(f"PRAGMA user_version = {FORMAT.version + 1}")
        connection.commit()
        assert (path.parent / "a.db-wal").stat().st_size
        await refused(path, "was written by another version")


async def test_folders_that_cannot_be_used(tmp_path: Path) -> None:
    await refused(tmp_path / "nowhere" / "a.db", "nowhere/a.db: the folder .*nowhere does not exist")
    (tmp_path / "file").touch()
    await refused(tmp_path / "file" / "a.db", "Not a directory")
    await refused("/proc/a.db", "cannot lock /proc/a.db")
    await refused(tmp_path, "Is a directory")


@contextmanager
def without_privileges() -> Iterator[None]:
    """For root every file can be written to."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


async def test_a_file_that_cannot_be_written_to() -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.db"
        async with open_store(f"sqlite:{path}"):
            pass
        os.chmod(folder, 0o777)
        os.chmod(f"{path}.lock", 0o666)
        os.chmod(path, 0o444)
        with without_privileges():
            await refused(path, r"cannot open .*a\.db: .*Permission denied")


async def test_what_a_killed_creation_leaves_behind(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.touch()
    (tmp_path / "a.db.tmp").write_bytes(b"half a database")
    (tmp_path / "a.db.tmp-wal").write_bytes(b"half a log")
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a")])
    assert files_in(tmp_path) == {"a.db", "a.db.lock"}


async def test_names_with_signs_that_addresses_know(tmp_path: Path) -> None:
    path = tmp_path / "a b?mode=ro#%41:ä.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a")])
    assert path.exists()


async def test_a_stranger_writes_into_the_open_database(tmp_path: Path) -> None:
    """A person with a shell: what is kept in mind is read again."""
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a"), sample("a", 0), new_trial("b")])
        number = (await get(store, "a")).number
        with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
            stranger.execute("INSERT INTO samples VALUES (1000, ?, 5, 5, 0, x'')", (number,))
            stranger.execute("UPDATE trials SET samples_count = 2, high_tick = 5 WHERE number = ?", (number,))
            stranger.execute("DELETE FROM trials WHERE trial_id = 'b'")
        refusals = await store.apply([sample("a", 5), sample("a", 6), sample("b", 0)])
        assert list(refusals) == [2]
        found = await read(store, "a")
        assert [one.tick_id for one in found] == [0, 5, 6]
        assert found[-1].position > 1000
        assert (await get(store, "a")).samples_count == 3


async def test_what_a_stranger_changes_is_read_again_by_those_who_follow(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a"), sample("a", 0)])
        async with store.watch("a"):
            await store.apply([sample("a", 1), sample("a", 2)])
            first, *_ = await read(store, "a")
            number = (await get(store, "a")).number
            with closing(sqlite3.connect(path, isolation_level=None)) as stranger:
                stranger.execute("DELETE FROM chunks WHERE last_tick = 2")
            await store.apply([sample("a", 3)])
            found = await store.samples(number, after=first.position, limit=ALL, max_bytes=MUCH)
            assert [one.tick_id for one in found] == [3]


@pytest.mark.parametrize("durability", ["full", "batch"])
async def test_whether_a_commit_waits_for_the_disk_is_as_was_asked(
    durability: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[bool] = []
    parts = _sqlite._Parts

    def noting(path: str, full: bool, *more: Any) -> Any:
        opened.append(full)
        return parts(path, full, *more)

    monkeypatch.setattr(_sqlite, "_Parts", noting)
    async with open_store(f"sqlite:{tmp_path}/a.db", durability=durability):
        assert opened == [durability == "full"]


@pytest.mark.parametrize("address", ["memory:", "sqlite:{}/a.db"])
async def test_a_durability_that_there_is_not_is_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"durability: expected one of .*full.*, got 'maybe'"):
        async with open_store(address.format(tmp_path), durability="maybe"):
            raise AssertionError("opened")
    assert files_in(tmp_path) == set()


async def test_a_file_is_closed_when_its_user_is_cancelled(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    for name in ("a", "b"):
        with trio.CancelScope() as scope:
            async with open_store(f"sqlite:{path}") as store:
                await store.apply([new_trial(name)])
                scope.cancel()
                await trio.lowlevel.checkpoint()
    async with open_store(f"sqlite:{path}") as store:
        assert [trial.trial_id for trial in await store.trials(after=0, limit=9)] == ["a", "b"]


def test_no_more_samples_are_fetched_than_there_is_room_for() -> None:
    """If they are as large as those before."""
    asked: list[int] = []

    class Noting(sqlite3.Cursor):
        def fetchmany(self, size: int | None = 1) -> list[Any]:
            asked.append(size or 1)
            return super().fetchmany(size)

    class Connection(sqlite3.Connection):
        def execute(self, statement: str, parameters: Any = (), /) -> sqlite3.Cursor:
            return self.cursor(Noting).execute(statement, parameters)

    with closing(sqlite3.connect(":memory:", factory=Connection, isolation_level=None)) as connection:
        connection.executescript(_sqlite._SCHEMA)
        connection.execute("INSERT INTO trials (number, trial_id, user_id, params, logged) VALUES (1, 'a', '', x'', 0)")
        for tick in range(100):
            size = 10 if tick < 50 else 20
            connection.execute("INSERT INTO samples VALUES (?, 1, ?, 0, 0, ?)", (tick + 1, tick, bytes(size)))
        found = _sqlite_reader.samples(connection, 1, 0, 100, 105)
        assert [one.tick_id for one in found] == list(range(11))
        assert asked == [1, 9, 1]
        asked.clear()
        found = _sqlite_reader.samples(connection, 1, 45, 100, 150)
        assert [one.tick_id for one in found] == list(range(45, 55))
        assert asked == [1, 14]


async def test_more_trials_than_are_kept_in_mind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sqlite_writer, "_MAX_KNOWN", 3)
    async with open_store(f"sqlite:{tmp_path}/a.db", durability="batch") as store:
        for tick in range(3):
            for trial in range(10):
                await store.apply([new_trial(f"{trial}"), sample(f"{trial}", tick), late(f"{trial}", 7, 1.0)])
        for trial in range(10):
            assert await ticks(store, f"{trial}") == [0, 7, 1, 2]


async def test_of_so_many_trials_the_state_is_kept_in_mind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """4096: those are not asked for again before a sample is added."""
    looked_up: list[str] = []

    def traced(path: str, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.set_trace_callback(lambda text: looked_up.append(text) if "max(tick)" in text else None)
        return connection

    monkeypatch.setattr(sqlite_file, "connect", traced)
    names = [f"{number}" for number in range(4096)]
    async with open_sqlite(f"{tmp_path}/a.db", full=False, host=Host(runner=inline_runner)) as store:
        await store.apply([new_trial(name) for name in names])
        looked_up.clear()
        await store.apply([sample(name, 0) for name in names])
        assert looked_up == []
        await store.apply([new_trial("one more")])
        looked_up.clear()
        await store.apply([sample(names[-1], 1)])  # before that, the one that came first is forgotten
        assert looked_up == []
        await store.apply([sample(names[0], 1)])
        assert len(looked_up) == 1


async def test_deleted_trials_go_by_so_many_rows_and_bytes(tmp_path: Path) -> None:
    """500 rows or 50 chunks, or 4 MiB: writes wait no longer for that."""
    path = f"{tmp_path}/a.db"
    large = random.Random(1).randbytes(2 << 20)
    left: list[int] = []

    async def run_and_count(function: Any, *args: Any) -> Any:
        result = await run_inline(function, *args)
        if function.__name__ == "sweep":
            with closing(sqlite3.connect(path)) as connection:
                for table in ("samples", "chunks"):
                    left.extend(connection.execute(f"SELECT count(*) FROM {table}").fetchone())
        return result

    async with open_sqlite(path, full=False, host=Host(runner=lambda threads: run_and_count)) as store:
        await store.apply([new_trial("a"), *(sample("a", tick) for tick in reversed(range(1002)))])
        await store.apply([new_trial("b"), *(sample("b", 4 - tick, payload=large) for tick in range(5))])
        await store.apply([new_trial("c"), *(sample("c", tick, payload=large) for tick in range(5))])
        await store.apply([new_trial("d")])
        for tick in range(51):
            await store.apply([sample("d", tick)])
        await trio.testing.wait_all_tasks_blocked()
        for name, expected in (
            ("a", [(505, 58), (5, 58), (4, 58), (4, 57), (4, 57), (4, 57)]),
            ("b", [(2, 57), (0, 57), (0, 56), (0, 56), (0, 56)]),
            ("c", [(0, 54), (0, 52), (0, 51), (0, 51), (0, 51)]),
            ("d", [(0, 1), (0, 0), (0, 0), (0, 0)]),
        ):
            left.clear()
            await store.delete([name])
            await trio.testing.wait_all_tasks_blocked()
            assert list(zip(left[::2], left[1::2], strict=True)) == expected, name


async def test_many_are_asked_for_by_500(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite limits how many values a statement may have; and this many are read at a time."""
    statements: list[str] = []
    threads: list[int] = []

    def traced(path: str, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.set_trace_callback(statements.append)
        return connection

    def runner(count: int) -> Any:
        threads.append(count)
        return run_inline

    monkeypatch.setattr(_sqlite_reader, "connect", traced)
    async with open_sqlite(f"{tmp_path}/a.db", full=False, host=Host(runner=runner)) as store:
        await store.apply([new_trial(f"{number}") for number in range(1001)])
        found = await store.trials(after=0, limit=ALL, ids=[f"{number}" for number in range(1001)])
        assert len(found) == 1001
    assert [statement.count("'") // 2 for statement in statements if "trial_id IN" in statement] == [500, 500, 1]
    assert threads == [1, 4]


async def test_a_database_that_hangs_is_waited_for_half_a_minute(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async def run(function: Any, *args: Any) -> Any:
        if function.__name__ == "close":
            closing_it.append(function)
            await trio.sleep_forever()
        return await run_inline(function, *args)

    closing_it: list[Any] = []
    async with open_sqlite(f"{tmp_path}/a.db", full=False, host=Host(runner=lambda threads: run)) as store:
        await store.apply([new_trial("a")])
        began = trio.current_time()
    assert trio.current_time() - began == 30
    closing_it[0]()


async def test_nothing_is_scanned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked or written, an index answers: a million samples cost what ten do."""
    statements: set[str] = set()

    def traced(path: str, *, full: bool = True, query_only: bool = False) -> sqlite3.Connection:
        connection = connect(path, full=full, query_only=query_only)
        connection.set_trace_callback(statements.add)
        return connection

    monkeypatch.setattr(_sqlite_reader, "connect", traced)
    monkeypatch.setattr(sqlite_file, "connect", traced)
    path = f"{tmp_path}/a.db"
    for turn in range(2):
        async with open_store(f"sqlite:{path}") as store:
            await store.apply([new_trial("a", properties={"x": "1"}), sample("a", turn), late("a", 8, 1.0)])
            await store.apply([sample("a", 8), sample("a", 0, run=turn), sample("a", 0, kind=WriteKind.STORED)])
            await store.trials(after=0, limit=9, ids=["a", "b"], properties={"x": "1"})
            await store.trials(after=0, limit=9, properties={"x": "1"})
            await store.trials(after=0, limit=9)
            await store.open_logged()
            await read(store, "a")
            await store.delete(["a"])
    plans: list[str] = []
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            if statement.split()[0] in ("SELECT", "UPDATE", "DELETE"):
                plans += [f"{row[3]}: {statement}" for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert len(plans) > 15
    few = ("SCAN trials USING INDEX trials_open", "SCAN deleted", "SCAN recoveries")
    assert [plan for plan in plans if "SCAN" in plan and not plan.startswith(few)] == []


async def test_a_new_run_is_as_fast_as_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples above all others are not looked up one by one, nor are those of a trial that is run again."""
    statements: list[str] = []

    def traced(path: str, *, full: bool = True, query_only: bool = False) -> sqlite3.Connection:
        connection = connect(path, full=full, query_only=query_only)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite_file, "connect", traced)
    async with open_store(f"sqlite:{tmp_path}/a.db", durability="batch") as store:
        await store.apply([new_trial("a")])
        for run in range(3):
            statements.clear()
            await store.apply([sample("a", tick, run=run) for tick in range(100)])
            assert sum(statement.startswith("SELECT") for statement in statements) <= 6
    assert sum(statement.startswith("INSERT") for statement in statements) <= 4


async def test_deleted_trials_are_cleaned_up_in_pieces(tmp_path: Path) -> None:
    """Others write while a large trial goes; what is left when the datastore stops goes the next time."""
    path = f"{tmp_path}/a.db"
    turns: list[str] = []

    async def run_and_note(function: object, *args: object) -> object:
        turns.append(getattr(function, "__name__", ""))
        return await run_inline(function, *args)  # type: ignore[arg-type]  # whatever the store gives

    host = Host(runner=lambda threads: run_and_note)  # type: ignore[arg-type,return-value]  # as above
    async with open_sqlite(path, full=False, host=host) as store:
        await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(5000))])
        await trio.testing.wait_all_tasks_blocked()
        turns.clear()
        await store.delete(["a"])
        for number in range(5):
            await store.apply([new_trial(f"{number}")])
    assert turns[0] == "delete"
    assert "sweep" in turns[: len(turns) - 1 - turns[::-1].index("write")], "beside the writes"
    assert turns.count("sweep") < 10, "there was no time for all"
    async with open_sqlite(path, full=False, host=Host(runner=inline_runner)) as store:
        await trio.testing.wait_all_tasks_blocked()
        assert len(await store.trials(after=0, limit=ALL)) == 5
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM samples").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM deleted").fetchone() == (0,)


async def test_large_samples_come_in_small_pages(tmp_path: Path) -> None:
    async with open_store(f"sqlite:{tmp_path}/a.db", durability="batch") as store:
        sizes = [10, 200_000, 0, 300_000, 10, 10, 100_000]
        writes = [sample("a", tick, payload=bytes(size)) for tick, size in enumerate(sizes)]
        await store.apply([new_trial("a"), *writes])
        number, pages, after = (await get(store, "a")).number, [], 0
        while page := await store.samples(number, after=after, limit=4, max_bytes=150_000):
            pages.append([one.tick_id for one in page])
            after = page[-1].position
        assert pages == [[0, 1], [2, 3], [4, 5, 6]]
        assert len(await store.samples(number, after=0, limit=1 << 40, max_bytes=MUCH)) == 7
        assert (await get(store, "a")).last_state == TrialState.RUNNING


async def test_batches_of_any_size_go_in_in_order(tmp_path: Path) -> None:
    # Some statements add hundreds, some one; nothing falls between them.
    async with open_store(f"sqlite:{tmp_path / 'a.db'}") as store:
        next_tick = 0
        await store.apply([new_trial("a"), new_trial("b")])
        for size in (1, 49, 50, 51, 499, 500, 501, 1103):
            batch = [sample("ab"[tick % 2], tick, payload=b"%d" % tick) for tick in range(next_tick, next_tick + size)]
            next_tick += size
            assert await store.apply(batch) == {}
        for first, trial_id in enumerate("ab"):
            found = await read(store, trial_id)
            assert [one.tick_id for one in found] == list(range(first, next_tick, 2))
            assert all(StoredTrialSample.FromString(one.data).payloads == [b"%d" % one.tick_id] for one in found)


def test_the_numbers_that_files_hold_mean_what_they_meant() -> None:
    assert {end.name: end.value for end in TrialEnd} == {"OPEN": 0, "ENDED": 1, "ABNORMAL": 2}
    assert {kind.name: kind.value for kind in WriteKind} == {"LOGGED": 0, "STORED": 1, "LATE": 2}


async def test_of_deleted_trials_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a", properties={"p": "1", "q": "2"}), new_trial("b", properties={"p": "1"})])
        await store.apply([sample("a", tick_id) for tick_id in range(5)])
        assert await store.delete(["a"]) == ["a"]
        await store.apply([sample("b", 0)])
    async with open_store(f"sqlite:{path}") as store:
        assert await store.delete(["nobody"]) == []
    with closing(sqlite3.connect(path)) as connection:
        (number,) = connection.execute("SELECT number FROM trials").fetchone()
        assert connection.execute("SELECT * FROM properties").fetchall() == [("p", "1", number)]


async def test_who_reads_cannot_write(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a")])
        readers = _sqlite_reader.Readers(path)
        with pytest.raises(UnavailableError):
            readers.read(lambda connection: connection.execute("DELETE FROM trials"))
        readers.close()
        assert (await get(store, "a")).trial_id == "a"


async def test_a_reader_that_is_busy_when_all_are_closed_is_closed_afterwards(tmp_path: Path) -> None:
    async with open_store(f"sqlite:{tmp_path}/a.db") as store:
        await store.apply([new_trial("a")])
        readers = _sqlite_reader.Readers(f"{tmp_path}/a.db")
        used: list[sqlite3.Connection] = []

        def busy(connection: sqlite3.Connection) -> int:
            used.append(connection)
            if len(used) == 2:
                readers.close()
            (count,) = connection.execute("SELECT count(*) FROM trials").fetchone()
            return int(count)

        assert [readers.read(busy), readers.read(busy)] == [1, 1]
        assert used[0] is used[1]
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            used[0].execute("SELECT 1")


async def test_what_was_written_in_a_large_batch_is_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From a mebibyte on: it would take the room of what is written to again."""
    statements: list[str] = []

    def traced(path: str, **options: Any) -> sqlite3.Connection:
        connection = connect(path, **options)
        connection.set_trace_callback(statements.append)
        return connection

    monkeypatch.setattr(sqlite_file, "connect", traced)
    shrunk = []
    async with open_store(f"sqlite:{tmp_path}/a.db", durability="batch") as store:
        await store.apply([new_trial("a")])
        overhead = len(sample("a", 9, payload=bytes(1_000_000)).data) - 1_000_000
        for tick, size in enumerate((100_000, 2**20 - 1, 2**20), 1):
            statements.clear()
            await store.apply([sample("a", tick, payload=bytes(size - overhead))])
            shrunk.append("PRAGMA shrink_memory" in statements)
        statements.clear()
        await store.delete(["a"])
        assert "PRAGMA shrink_memory" not in statements
    assert shrunk == [False, False, True]


async def test_an_address_that_means_nothing_is_answered_with_those_that_do() -> None:
    for address in ("", "memory:x", "sqlite:", "trials.db"):
        with pytest.raises(InvalidArgumentError, match=r"storage: expected 'memory:', 'sqlite:PATH'.*, got "):
            async with open_store(address):
                raise AssertionError("opened")


@pytest.mark.parametrize(
    ("address", "hint"),
    [("trials.db", "'sqlite:trials.db'"), ("a/b", "'sqlite:a/b'"), ("memory", ""), ("sqlite", ""), ("", "")],
)
async def test_a_path_alone_is_told_what_it_lacks(address: str, hint: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        async with open_store(address):
            raise AssertionError("opened")
    assert str(caught.value).rpartition("did you mean ")[2].rstrip("?") == (hint or str(caught.value))
