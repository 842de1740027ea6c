"""A database whose files are taken away while a server uses it, and servers whose lock files are."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
import trio

from tests.servers.datastore.test_sqlite_failures import check_file, note, spawn
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, UnavailableError
from trio_cogment.base.sqlite_file import LOG, WritingConnection
from trio_cogment.base.sqlite_hold import DatabaseHold
from trio_cogment.servers.datastore._sqlite import FORMAT
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.testing.conformance.trial_store import ids, new_trial, sample
from trio_cogment.trainer.opening import open_trainer

TakeAway = Callable[[Path], object]


def put_another_there(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    os.replace(other, path)


def move_aside(path: Path) -> None:
    os.rename(path, path.with_name("aside"))


TAKEN: dict[str, TakeAway] = {"removed": os.remove, "replaced": put_another_there, "moved": move_aside}


@pytest.mark.parametrize("take", TAKEN.values(), ids=TAKEN)
async def test_a_log_that_is_taken_away_loses_nothing_that_is_acknowledged(take: TakeAway, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("before")])
        take(Path(f"{path}{LOG}"))
        acknowledged = ["before"]
        for number in range(3):
            with suppress(UnavailableError):
                await store.apply([new_trial(f"{number}")])
                acknowledged.append(f"{number}")
        with pytest.raises(UnavailableError, match=f"{path}{LOG} was removed or replaced"):
            await store.apply([new_trial("later")])
        assert len(acknowledged) <= 2
        assert set(await ids(store)) >= set(acknowledged)  # it can be read still
        # What a server that starts after a crash finds:
        with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as connection:
            found = [row[0] for row in connection.execute("SELECT trial_id FROM trials")]
        assert found == acknowledged


@pytest.mark.parametrize("take", TAKEN.values(), ids=TAKEN)
async def test_nothing_is_acknowledged_once_the_database_is_taken_away(take: TakeAway, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a")])
        take(path)
        for tick in range(3):
            with pytest.raises(UnavailableError, match=f"{path} was removed or replaced"):
                await store.apply([sample("a", tick)])
        if take is put_another_there:
            with closing(sqlite3.connect(path)) as connection:
                assert not connection.execute("SELECT count(*) FROM samples").fetchone()[0]


async def test_a_database_that_is_put_back_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a")])
        move_aside(path)
        with pytest.raises(UnavailableError):
            await store.apply([new_trial("b")])
        os.rename(tmp_path / "aside", path)
        await store.apply([new_trial("c")])
    async with open_store(f"sqlite:{path}") as store:
        assert {"a", "c"} <= set(await ids(store))


async def test_the_trainer_s_database_is_looked_at_too(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with open_trainer(f"sqlite:{path}"):
        os.remove(f"{path}.lock")
        with pytest.raises(FailedPreconditionError, match="in use"):
            async with open_trainer(f"sqlite:{path}"):
                pass


async def test_without_its_lock_file_a_database_is_still_locked(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a")])
        os.remove(f"{path}.lock")
        with pytest.raises(FailedPreconditionError, match=f"{path} is in use by another datastore"):
            async with open_store(f"sqlite:{path}"):
                pass
        await store.apply([new_trial("b")])
    async with open_store(f"sqlite:{path}") as store:
        assert await ids(store) == ["a", "b"]


def test_a_child_whose_log_is_removed_loses_nothing_when_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    acknowledged: dict[str, int] = {}
    with spawn(path, "x", 100_000, once=True) as child:
        assert child.stdout is not None
        for number, line in enumerate(child.stdout, 1):
            if line.startswith("refused"):
                child.kill()
                break
            note(line, acknowledged)
            if number == 10:
                os.remove(f"{path}{LOG}")
    assert acknowledged
    check_file(path, acknowledged)


def test_a_connection_writes_nothing_into_a_database_that_has_taken_the_place(tmp_path: Path) -> None:
    path = str(tmp_path / "a.db")
    hold = DatabaseHold(FORMAT, path)
    hold.open()
    writing = WritingConnection(path, full=True, missing=hold.missing)
    put_another_there(Path(path))
    with pytest.raises(CogmentError), writing.transaction() as connection:
        connection.execute("UPDATE recoveries SET count = 7")
    writing.close()
    hold.close()
    hold.close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count FROM recoveries").fetchone() == (0,)


async def test_a_log_that_cannot_be_saved_acknowledges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    monkeypatch.setattr("trio_cogment.base.sqlite_file._BUSY_SECONDS", 0.0)
    async with open_store(f"sqlite:{path}") as store:
        await store.apply([new_trial("a")])
        with closing(sqlite3.connect(path, isolation_level=None)) as reading:
            reading.execute("BEGIN")
            reading.execute("SELECT * FROM trials").fetchall()  # keeps its snapshot, so not all can be copied
            os.remove(f"{path}{LOG}")
            with pytest.raises(UnavailableError):
                await store.apply([new_trial("b")])
        await trio.lowlevel.checkpoint()


async def test_nobody_else_can_read_a_database(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with open_store(f"sqlite:{tmp_path}/a.db") as store:
            await store.apply([new_trial("a")])
            modes = {name: stat.S_IMODE(os.stat(tmp_path / name).st_mode) for name in os.listdir(tmp_path)}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["a.db", "a.db-wal", "a.db-shm", "a.db.lock"], 0o600)
