"""The power goes while runs and their telemetry are written: what was acknowledged is there, and nothing by halves."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sim.power.disk import Record
from tests.sim.power.history import History
from tests.sim.power.recorded_sqlite import Edit, recorded
from tests.trainer.test_runs import a_run
from trio_cogment.trainer._sqlite import SqliteDatabase
from trio_cogment.trainer.storage import Batch, Kind, Row, RunWrite, TelemetryRows

LOSSES_OF_A_RUN = 20
_ALL = 1 << 40


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is copied into the database every few transactions."""
    monkeypatch.setattr("trio_cogment.sqlite_file._CHECKPOINT_PAGES", 25)


def content(database: SqliteDatabase) -> str:
    runs = database.runs()
    rows = [database.rows(kind, run.number, after=0, limit=_ALL, max_bytes=_ALL) for run in runs for kind in Kind]
    configs = [database.config(run.number) for run in runs]
    return repr((runs, rows, configs, database.events(after=0, limit=_ALL), database.event_range()))


class Life:
    """A database that is written to for a while, and what it held when each transaction was acknowledged."""

    def __init__(self, folder: Path, rng: random.Random, edit: Edit) -> None:
        self.history = History(Record(folder))
        with recorded(self.history.record, edit):
            database = SqliteDatabase(str(folder / "runs.db"))
            database.open()
            self.history.note(content(database))
            last: dict[tuple[Kind, int], int] = {}
            for event in range(1, 41):
                number = rng.randrange(4)
                if rng.random() < 0.1:
                    database.forget_events(event - 10)
                else:
                    database.write(_batch(number, event, last, rng))
                self.history.note(content(database))
            database.close()

    def lose(self, rng: random.Random, folder: Path) -> str:
        """Let the power go once, and return what is wrong with what is left; empty: nothing."""
        before = rng.randint(self.history.acknowledged[0], len(self.history.record.operations))
        self.history.record.lose_power(before, rng, folder)
        database = SqliteDatabase(str(folder / "runs.db"))
        try:
            database.open()
            found = content(database)
        except Exception as error:  # noqa: BLE001  damaged files may lead to anything
            return repr(error)
        finally:
            database.close()
        return self.history.check(found, before)


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


def faults_found(tmp_path: Path, losses: int, edit: Edit = lambda statement: statement) -> list[str]:
    found = []
    for seed in range(losses // LOSSES_OF_A_RUN):
        rng = random.Random(seed)
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        database = SqliteDatabase(str(folder / "runs.db"))
        database.open()
        database.close()
        life = Life(folder, rng, edit)
        for loss in range(LOSSES_OF_A_RUN):
            left = tmp_path / f"{seed}-{loss}"
            left.mkdir()
            if fault := life.lose(rng, left):
                found.append(f"run {seed}, loss {loss}: {fault}")
    return found


@pytest.mark.parametrize("losses", [40, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
def test_what_is_acknowledged_survives_and_nothing_is_torn(losses: int, tmp_path: Path) -> None:
    assert faults_found(tmp_path, losses) == []


def test_it_is_found_when_nothing_is_synced(tmp_path: Path) -> None:
    def unsynced(statement: str) -> str:
        return "PRAGMA synchronous = OFF" if statement.startswith("PRAGMA synchronous") else statement

    assert faults_found(tmp_path, 20, unsynced)
