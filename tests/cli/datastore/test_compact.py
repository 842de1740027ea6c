"""`trio-cogment datastore compact`: what it does with a file, and how it can be stopped."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio
from click.testing import CliRunner, Result

from tests.servers.datastore.older_files import make_older
from trio_cogment.cli.datastore import datastore
from trio_cogment.servers.datastore import compacting, open_store
from trio_cogment.servers.datastore._sqlite_writer import SqliteWriter
from trio_cogment.servers.datastore.storage import EndWrite, TrialEnd
from trio_cogment.testing.conformance.trial_store import new_trial, read, sample

NAMES = ["a", "b", "c"]


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A file of an older version with two trials that have ended and one that has not."""
    path = tmp_path / "trials.db"

    async def write() -> None:
        async with open_store(f"sqlite:{path}") as store:
            for name in NAMES:
                await store.apply([new_trial(name)])
                await store.apply([sample(name, tick, payload=b"some words " * 50) for tick in range(300)])
            await store.apply([EndWrite(name, TrialEnd.ENDED) for name in NAMES[:-1]])

    trio.run(write)
    make_older(path, 5)
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(datastore, ["compact", *arguments], standalone_mode=True)


def counts(path: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT (SELECT count(*) FROM chunks), (SELECT count(*) FROM samples)"
        chunks, rows = connection.execute(query).fetchone()
    return chunks, rows


def samples(path: Path) -> list[Any]:
    async def ask() -> list[Any]:
        async with open_store(f"sqlite:{path}") as store:
            return [await read(store, name) for name in NAMES]

    return trio.run(ask)


def test_a_file_of_an_older_version(older: Path) -> None:
    before = older.stat().st_size
    done = run(str(older))
    assert done.exit_code == 0, done.output
    assert done.output.startswith(f"{older}: ")
    assert " before, " in done.output
    assert counts(older) == (2, 300)  # the one that has not ended waits
    assert older.stat().st_size < 0.6 * before
    assert [[one.tick_id for one in found] for found in samples(older)] == [list(range(300))] * 3
    again = run(str(older), "--json")
    assert again.exit_code == 0
    assert json.loads(again.output)["trials"] == 0


@pytest.mark.parametrize("at", range(6))
def test_it_can_be_interrupted_at_any_step(at: int, older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [0]

    def interrupted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            steps[0] += 1
            if steps[0] == at + 1:
                raise KeyboardInterrupt
            return real(*args)

        return call

    with monkeypatch.context() as patched:
        patched.setattr(SqliteWriter, "merge_next", interrupted(SqliteWriter.merge_next))
        patched.setattr(SqliteWriter, "give_back", interrupted(SqliteWriter.give_back))
        done = run(str(older))
    if at < 5:
        assert done.exit_code == 1
        assert "interrupted; what was done is kept, and the next call goes on" in done.output
    again = run(str(older))
    assert again.exit_code == 0, again.output
    assert counts(older) == (2, 300)
    assert [[one.tick_id for one in found] for found in samples(older)] == [list(range(300))] * 3


def test_how_far_it_is(older: Path) -> None:
    told: list[tuple[int, int]] = []
    done = compacting.compact(str(older), on_progress=lambda done, total: told.append((done, total)))
    assert told[0] == (0, 600)
    assert told[-1] == (600, 600)
    assert told == sorted(told)
    assert done.trials == 2
    assert done.bytes_after < done.bytes_before


def test_a_disk_without_room_keeps_the_file_as_large(older: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = SqliteWriter.give_back
    monkeypatch.setattr(SqliteWriter, "give_back", lambda self: bool(real(self)) and False)
    done = run(str(older))
    assert done.exit_code == 0
    assert "the disk has no room to make it smaller" in done.output


def test_files_that_cannot_be_compacted(tmp_path: Path) -> None:
    missing = run(str(tmp_path / "nothing.db"))
    assert missing.exit_code == 1
    assert "there is no file" in missing.output
    assert not list(tmp_path.iterdir())
    (tmp_path / "text.db").write_text("no database at all" * 100)
    assert "is not an SQLite database; it was not touched" in run(str(tmp_path / "text.db")).output


def test_a_datastore_that_runs_is_left_alone(older: Path) -> None:
    async def beside() -> Result:
        async with open_store(f"sqlite:{older}"):
            return await trio.to_thread.run_sync(run, str(older))

    done = trio.run(beside)
    assert done.exit_code == 1
    assert "in use" in done.output or "uses" in done.output


def test_a_level_that_there_is_not(older: Path) -> None:
    assert run(str(older), "--file_storage_compression=23").exit_code == 2
