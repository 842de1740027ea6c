"""Killed processes, full disks and failing ones: nothing acknowledged is lost, nothing is there by half."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest
import trio

from tests.servers.datastore import killed_writer
from tests.servers.datastore.killed_writer import BATCH, TRIALS, payload
from tests.servers.datastore.test_sqlite_disk_reserve import big
from trio_cogment.api.trial_datastore_pb2 import StoredTrialSample
from trio_cogment.base.errors import ResourceExhaustedError, UnavailableError
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.base.sqlite_file import connect
from trio_cogment.servers.datastore._sqlite import SqliteStore, open_sqlite
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.servers.datastore.storage import TrialStore
from trio_cogment.testing.conformance.trial_store import (
    get,
    ids,
    late_rewards,
    new_trial,
    read,
    sample,
    ticks,
)

Acknowledged = dict[str, int]


def spawn(path: Path, name: str, batches: int, *before: str, once: bool = False) -> subprocess.Popen[str]:
    command = [*before, sys.executable, killed_writer.__file__, str(path), name, str(batches), *["once"] * once]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def note(line: str, acknowledged: Acknowledged) -> None:
    trial_id, _, batch = line.strip().rpartition(" ")
    if trial_id:
        acknowledged[trial_id] = int(batch) + 1


def kill_after(path: Path, name: str, lines: int) -> Acknowledged:
    """Let a child write, kill it when it has acknowledged this many batches, and return how many of each trial."""
    acknowledged: Acknowledged = defaultdict(int)
    with spawn(path, name, 100_000) as child:
        assert child.stdout is not None
        for number, line in enumerate(child.stdout, 1):
            note(line, acknowledged)
            if number == lines:
                child.kill()  # what it writes until it dies is read too
    return acknowledged


async def check(store: TrialStore, acknowledged: Acknowledged) -> None:
    """See that all acknowledged batches are there, and nothing by half."""
    for trial_id, batches in acknowledged.items():
        found = await read(store, trial_id)
        assert len(found) >= BATCH * batches, f"{trial_id}: acknowledged and lost"
        assert [one.tick_id for one in found] == list(range(len(found)))
        assert len(found) % BATCH == 0, f"{trial_id}: half of a batch"
        assert (await get(store, trial_id)).samples_count == len(found)
        for one in found:
            assert StoredTrialSample.FromString(one.data).payloads == [payload(one.tick_id)]
            assert late_rewards(one) == ([1.0] if one.tick_id % BATCH == 0 else [])


def check_file(path: Path, acknowledged: Acknowledged) -> None:
    async def main() -> None:
        async with open_store(f"sqlite:{path}") as store:
            await check(store, acknowledged)

    trio.run(main)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def kill_often(path: Path, times: int, seed: int, *, check_each: bool = False) -> None:
    rng = random.Random(seed)
    acknowledged: Acknowledged = {}
    for number in range(times):
        more = kill_after(path, f"{number}", rng.randint(1, 60))
        assert more
        acknowledged |= more
        if check_each:
            check_file(path, more)
    check_file(path, acknowledged)


def test_killed_while_writing(tmp_path: Path) -> None:
    kill_often(tmp_path / "a.db", 10, 1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_killed_while_writing_often(tmp_path: Path) -> None:
    kill_often(tmp_path / "a.db", 200, 2, check_each=True)


async def test_one_that_is_too_large_does_not_harm_those_beside_it(tmp_path: Path) -> None:
    refused: list[str] = []

    async def write(trial_id: str, size: int) -> None:
        try:
            await store.apply([new_trial(trial_id), *(big(trial_id, tick) for tick in range(size))])
        except ResourceExhaustedError:
            refused.append(trial_id)

    async with open_store(f"sqlite:{tmp_path}/a.db", file_bytes=1_000_000) as store:
        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(write, f"{number}", 200 if number % 3 == 2 else 2)
        assert sorted(refused) == ["2", "5", "8"]
        assert sorted(await ids(store)) == ["0", "1", "3", "4", "6", "7", "9"]


class FailingConnection(sqlite3.Connection):
    """Fails at the statements that begin with a text, as a disk would."""

    fail_at: str | None = None
    error = sqlite3.SQLITE_IOERR

    def execute(self, sql: str, *args: object) -> sqlite3.Cursor:
        self.check(sql)
        return super().execute(sql, *args)  # type: ignore[arg-type]  # just handed on

    def executemany(self, sql: str, *args: object) -> sqlite3.Cursor:
        self.check(sql)
        return super().executemany(sql, *args)  # type: ignore[arg-type]  # as above

    def check(self, sql: str) -> None:
        if FailingConnection.fail_at is not None and sql.startswith(FailingConnection.fail_at):
            FailingConnection.fail_at = None
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = FailingConnection.error
            error.sqlite_errorname = "SQLITE_IOERR"
            raise error


@contextmanager
def failing_connections(monkeypatch: pytest.MonkeyPatch, opened: list[sqlite3.Connection]) -> Iterator[None]:
    real = sqlite3.connect

    def connect_failing(*args: object, **kwargs: object) -> sqlite3.Connection:
        connection = real(*args, factory=FailingConnection, **kwargs)  # type: ignore[call-overload]  # handed on
        opened.append(connection)
        assert isinstance(connection, FailingConnection)
        return connection

    monkeypatch.setattr(sqlite3, "connect", connect_failing)
    try:
        yield
    finally:
        FailingConnection.fail_at = None
        monkeypatch.undo()


@asynccontextmanager
async def quiet_store(folder: Path) -> AsyncIterator[TrialStore]:
    """Open a store that does nothing of its own accord any more: it has seen that there is nothing to sweep."""
    async with open_store(f"sqlite:{folder}/a.db", host=Host(runner=inline_runner)) as store:
        await trio.testing.wait_all_tasks_blocked()
        yield store


@pytest.mark.parametrize(
    "statement", ["BEGIN", "PRAGMA data_version", "\nINSERT INTO chunks", "UPDATE trials", "COMMIT"]
)
async def test_a_failing_disk(statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the batch is there, the connection is given up, and the next write goes well."""
    opened: list[sqlite3.Connection] = []
    with failing_connections(monkeypatch, opened):
        async with quiet_store(tmp_path) as store:
            await store.apply([new_trial("a"), sample("a", 0)])
            before = len(opened)
            FailingConnection.fail_at = statement
            with pytest.raises(UnavailableError, match="disk I/O error"):
                await store.apply([sample("a", 1), sample("a", 2)])
            assert await ticks(store, "a") == [0]
            await store.apply([sample("a", 2)])
            assert await ticks(store, "a") == [0, 2]
            assert (await get(store, "a")).samples_count == 2
            assert len(opened) > before
    assert recoveries(tmp_path / "a.db") == 1


async def test_a_failing_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with failing_connections(monkeypatch, []):
        async with quiet_store(tmp_path) as store:
            await store.apply([new_trial("a"), sample("a", 0)])
            FailingConnection.fail_at = "SELECT 1 FROM samples"
            with pytest.raises(UnavailableError, match="cannot read"):
                await ticks(store, "a")
            assert await ticks(store, "a") == [0]


async def test_a_failing_sweep_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.testing.MockClock
) -> None:
    def left() -> int:
        with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
            (count,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
            return int(count)

    with failing_connections(monkeypatch, []):
        async with quiet_store(tmp_path) as store:
            await store.apply([new_trial("a"), sample("a", 0)])
            FailingConnection.fail_at = "DELETE FROM chunks"
            await store.delete(["a"])
            await trio.sleep(9)
            assert left() == 1
            await trio.sleep(2)
            assert left() == 0
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("SELECT count(*) FROM chunks").fetchone() == (0,)


async def test_a_sweep_that_fails_unexpectedly_is_tried_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: trio.testing.MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def planted() -> bool:
        raise RuntimeError("planted")

    async with quiet_store(tmp_path) as store:
        assert isinstance(store, SqliteStore)
        await store.apply([new_trial("a"), sample("a", 0)])
        with monkeypatch.context() as patched:
            patched.setattr(store._writer, "sweep", planted)
            await store.delete(["a"])
            await trio.sleep(9)
        await trio.sleep(2)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        assert connection.execute("SELECT count(*) FROM chunks").fetchone() == (0,)
    assert "RuntimeError: planted" in caplog.text


async def test_a_bug_is_told_to_whoever_caused_it(tmp_path: Path) -> None:
    """What no write should be (a text that is not text) fails its batch and none of those that wait beside it."""
    results: dict[str, str] = {}

    async def write(store: SqliteStore, trial_id: str) -> None:
        name = "\udc80" if trial_id == "3" else "ann"
        try:
            await store.apply([new_trial(trial_id, user_id=name), sample(trial_id, 0)])
            results[trial_id] = "done"
        except UnicodeEncodeError:
            results[trial_id] = "bug"

    async with open_sqlite(str(tmp_path / "a.db")) as store:
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(write, store, f"{number}")
        assert results == {f"{number}": "bug" if number == 3 else "done" for number in range(6)}
        assert sorted(await ids(store)) == ["0", "1", "2", "4", "5"]


def recoveries(path: Path) -> int:
    with closing(connect(str(path))) as connection:
        (count,) = connection.execute("SELECT count FROM recoveries").fetchone()
        assert isinstance(count, int)
        return count


FIU = ("fiu-run", "-x", "-c", "enable_random name=posix/io/sync/*,probability=0.3")
needs_fiu = pytest.mark.skipif(shutil.which("fiu-run") is None, reason="fiu-run is missing (Debian: fiu-utils)")


@pytest.mark.soak
@needs_fiu
def test_failing_syncs(tmp_path: Path) -> None:
    """A third of all syncs fails: every batch is tried again until it is acknowledged, and then it is there."""
    path = tmp_path / "a.db"
    check_file(path, {})
    with spawn(path, "whole", 50, *FIU) as child:
        out, failures = child.communicate(timeout=300)
    assert child.returncode == 0, failures[-2000:]
    assert out.endswith("done\n")
    assert failures.count("disk I/O error") > 20
    check_file(path, {f"whole/{number}": 50 for number in range(TRIALS)})


@pytest.mark.soak
@needs_fiu
def test_what_a_failing_sync_has_refused_never_comes_back(tmp_path: Path) -> None:
    """A third of all syncs fails, and the process is killed: exactly what was acknowledged is there."""
    path = tmp_path / "a.db"
    check_file(path, {})
    rng = random.Random(3)
    seen: set[bool] = set()
    for run in range(20):
        fates: dict[str, dict[int, bool]] = defaultdict(dict)
        lines = rng.randint(20, 60)
        with spawn(path, f"{run}", 100_000, *FIU, once=True) as child:
            assert child.stdout is not None
            for number, line in enumerate(child.stdout, 1):
                *refused, trial_id, batch = line.split()
                fates[trial_id][int(batch)] = not refused
                if number == lines:
                    child.kill()
        seen |= {fate for of_trial in fates.values() for fate in of_trial.values()}
        trio.run(check_fates, path, fates)
    assert seen == {True, False}


async def check_fates(path: Path, fates: dict[str, dict[int, bool]]) -> None:
    async with open_store(f"sqlite:{path}") as store:
        for trial_id, of_trial in fates.items():
            there = {tick // BATCH for tick in await ticks(store, trial_id)}
            assert {batch for batch, fate in of_trial.items() if fate} <= there, "acknowledged and lost"
            assert not there & {batch for batch, fate in of_trial.items() if not fate}, "refused and there"
