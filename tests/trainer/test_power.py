"""The power goes while runs and their telemetry are written: what was acknowledged is there, and nothing by halves."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.power.disk import Record
from tests.sim.power.history import History
from tests.sim.power.recorded_sqlite import Edit, recorded
from tests.trainer.test_runs import a_run
from trio_cogment.trainer._sqlite import SqliteDatabase
from trio_cogment.trainer.storage import Batch, Database, Kind, MemoryDatabase, Row, RunWrite, TelemetryRows

LOSSES_OF_A_RUN = 20
_ALL = 1 << 40


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is copied into the database every few transactions."""
    monkeypatch.setattr("trio_cogment.base.sqlite_file._CHECKPOINT_PAGES", 25)


def content(database: Database) -> str:
    runs = database.runs()
    rows = [database.rows(kind, run.number, after=0, limit=_ALL, max_bytes=_ALL) for run in runs for kind in Kind]
    configs = [database.config(run.number) for run in runs]
    return repr((runs, rows, configs, database.events(after=0, limit=_ALL), database.event_range()))


class Life:
    """A database that is written to for a while, and what must be in it: what one in memory has after the same."""

    def __init__(self, folder: Path, rng: random.Random, edit: Edit) -> None:
        self.history = History(Record(folder))
        account = MemoryDatabase()
        self.history.note(content(account), 0)
        with recorded(self.history.record, edit):
            database = SqliteDatabase(str(folder / "runs.db"))
            database.open()
            last: dict[tuple[Kind, int], int] = {}
            for event in range(1, 41):
                number = rng.randrange(4)
                if rng.random() < 0.1:
                    database.forget_events(event - 10)
                    acknowledged = len(self.history.record.operations)
                    account.forget_events(event - 10)
                else:
                    batch = _batch(number, event, last, rng)
                    database.write(batch)
                    acknowledged = len(self.history.record.operations)
                    account.write(batch)
                self.history.note(content(account), acknowledged)
            database.close()

    def lose(self, rng: random.Random, folder: Path) -> str:
        """Let the power go once, and return what is wrong with what is left; empty: nothing."""
        before = rng.randint(0, len(self.history.record.operations))
        self.history.record.lose_power(before, rng, folder)
        database = SqliteDatabase(str(folder / "runs.db"))
        try:
            database.open()
            found = content(database)
        except Exception as error:  # noqa: BLE001  damaged files may lead to anything
            return repr(error)
        finally:
            database.close()
        with closing(sqlite3.connect(folder / "runs.db")) as connection:
            damage = connection.execute("PRAGMA integrity_check").fetchall()
        return f"before operation {before}: {damage}" if damage != [("ok",)] else self.history.check(found, before)


def _batch(number: int, event: int, last: dict[tuple[Kind, int], int], rng: random.Random) -> Batch:
    kind = rng.choice(list(Kind))
    first = last.get((kind, number), 0) + 1
    data = [rng.randbytes(rng.choice((20, 900))) for _ in range(rng.choice((1, 5, 60)))]
    last[kind, number] = first + len(data) - 1
    run = replace(a_run(), run_id=f"r{number}", updated_ns=event)
    return Batch(
        runs=[RunWrite(number, run, Row(event, rng.randbytes(50)), config=f"{{}} {event}")],
        telemetry=[TelemetryRows(kind, number, first, data, ["w"] * len(data), {"w": last[kind, number]})],
    )


def faults_found(memory_path: Path, losses: int, edit: Edit = lambda statement: statement) -> list[str]:
    """Lose power so often, also while the database comes into being, and return what went wrong."""
    found = []
    for seed in range(losses // LOSSES_OF_A_RUN):
        rng = random.Random(seed)
        folder = memory_path / f"{seed}"
        folder.mkdir()
        life = Life(folder, rng, edit)
        for loss in range(LOSSES_OF_A_RUN):
            left = memory_path / f"{seed}-{loss}"
            left.mkdir()
            if fault := life.lose(rng, left):
                found.append(f"run {seed}, loss {loss}: {fault}")
    return found


@pytest.mark.parametrize("losses", [40, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_what_is_acknowledged_survives_and_nothing_is_torn(losses: int, memory_path: Path) -> None:
    assert faults_found(memory_path, losses) == []


def test_it_is_found_when_nothing_is_synced(memory_path: Path) -> None:
    def unsynced(statement: str) -> str:
        return "PRAGMA synchronous = OFF" if statement.startswith("PRAGMA synchronous") else statement

    assert faults_found(memory_path, 20, unsynced)


def test_it_is_found_when_a_write_is_acknowledged_before_it_is_done(
    memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done with the next one."""
    write, waiting = SqliteDatabase.write, list[Batch]()

    def write_the_one_before(self: SqliteDatabase, batch: Batch) -> None:
        waiting.append(batch)
        if len(waiting) > 1:
            write(self, waiting.pop(0))

    monkeypatch.setattr(SqliteDatabase, "write", write_the_one_before)
    assert faults_found(memory_path, LOSSES_OF_A_RUN) != []
