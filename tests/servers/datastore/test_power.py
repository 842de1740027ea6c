"""The power goes while trials are written: what was acknowledged is there, and nothing is there by halves."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.servers.datastore.older_files import make_older
from tests.sim.power.disk import Record
from tests.sim.power.history import History
from tests.sim.power.recorded_sqlite import Edit, recorded
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.host import Host, inline_runner
from trio_cogment.base.sqlite_file import LOG
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore._sqlite_writer import SqliteWriter
from trio_cogment.servers.datastore.opening import open_store
from trio_cogment.servers.datastore.storage import OutcomeWrite, SampleWrite, TrialStore, Write, WriteKind
from trio_cogment.testing.conformance.trial_store import ALL, MUCH, check_stored_bytes, late, new_trial
from trio_cogment.testing.sim.schedule import seeded_schedule

#: Of each recorded run this many losses are tried; one recording costs as much as ten losses.
LOSSES_OF_A_RUN = 20
TRANSACTIONS = 40
_NAMES = ("a", "b", "c", "d", "e")
_OWNERS = ("", "x")
_PROPERTIES: tuple[Mapping[str, str], ...] = ({}, {"p": "1"}, {"p": "2"})
_FILE = "trials.db"
#: Writes, or a trial that is deleted.
Transaction = Sequence[Write] | str


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is copied into the database every few transactions."""
    monkeypatch.setattr("trio_cogment.base.sqlite_file._CHECKPOINT_PAGES", 25)


@pytest.fixture(autouse=True)
def many_merges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are merged between the transactions."""
    monkeypatch.setattr("trio_cogment.servers.datastore._sqlite.MERGE_PAUSE_SECONDS", 0)
    monkeypatch.setattr("trio_cogment.servers.datastore._sqlite.MERGED_WHEN_IDLE", 2)
    monkeypatch.setattr("trio_cogment.servers.datastore._sqlite.MERGED_WHEN_BUSY", 2)


@dataclass
class Life:
    """What was done with a store, and what must be in it: what a store in memory has after the same transactions."""

    history: History
    transactions: list[Transaction] = field(default_factory=list)
    account: TrialStore = field(default_factory=lambda: MemoryStore(1 << 40))

    async def do(self, transaction: Transaction, store: TrialStore | None = None) -> None:
        """Do a transaction in the account, after the store has acknowledged it."""
        if store is not None:
            await carry_out(store, transaction)
        acknowledged = len(self.history.record.operations) if store is not None else 0
        await carry_out(self.account, transaction)
        self.transactions.append(transaction)
        self.history.note(await digest(self.account), acknowledged)


async def carry_out(store: TrialStore, transaction: Transaction) -> None:
    if isinstance(transaction, str):
        await store.delete([transaction])
    else:
        await store.apply(transaction)


async def digest(store: TrialStore) -> str:
    """Return a short text for everything in a store, however it is asked for."""
    summary = hashlib.sha256()
    for trial in await store.trials(after=0, limit=ALL):
        samples = await store.samples(trial.number, after=0, limit=ALL, max_bytes=MUCH)
        # Numbers and positions tell an order only.
        summary.update(
            repr((replace(trial, number=0, stored_bytes=0), [(one.tick_id, one.data) for one in samples])).encode()
        )
    found = [[one.trial_id for one in await store.trials(after=0, limit=ALL, properties=some)] for some in _PROPERTIES]
    for owner in _OWNERS[1:]:
        await check_stored_bytes(store, owner)
    summary.update(repr((found, await store.open_logged())).encode())
    return summary.hexdigest()


def draw(rng: random.Random) -> Transaction:
    """Draw a transaction."""
    trial_id = rng.choice(_NAMES)
    if rng.random() < 0.1:
        return trial_id
    user, logged = rng.choice(("ann", "bob")), rng.random() < 0.5
    owner, properties = rng.choice(_OWNERS), rng.choice(_PROPERTIES)
    writes: list[Write] = [new_trial(trial_id, user_id=user, logged=logged, owner=owner, properties=properties)]
    for _ in range(rng.choice((1, 3, 20))):
        kind = rng.choice((WriteKind.LOGGED, WriteKind.LOGGED, WriteKind.STORED))
        data = rng.randbytes(rng.choice((30, 500, 9000)))
        state = TrialState.ENDED if rng.random() < 0.05 else TrialState.RUNNING
        writes.append(SampleWrite(trial_id, rng.randrange(200), rng.randrange(1 << 40), state, data, kind))
    if rng.random() < 0.3:
        writes.append(late(f"{trial_id}-late", rng.randrange(200), 1.0))
        writes.append(OutcomeWrite(trial_id, rng.randbytes(40)))
    return writes


async def live(folder: Path, before: Sequence[Transaction], rng: random.Random, durability: str, edit: Edit) -> Life:
    """Open a store and write to it for a while.

    Args:
        folder: durable as it is.
        before: the transactions of which it has what was done.
        rng: for the next transactions.
        durability: of the store.
        edit: see `recorded`.
    """
    life = Life(History(Record(folder)))
    for transaction in before:
        await life.do(transaction)
    if not before:
        life.history.note(await digest(life.account), 0)
    else:
        del life.history.states[:-1], life.history.acknowledged[:-1]
    with recorded(life.history.record, edit):
        async with opened(folder, durability) as store:
            for _ in range(TRANSACTIONS):
                await life.do(draw(rng), store)
                await trio.lowlevel.checkpoint()  # samples of deleted trials are swept, chunks are merged
    return life


def opened(folder: Path, durability: str = "full") -> AbstractAsyncContextManager[TrialStore]:
    return open_store(f"sqlite:{folder / _FILE}", durability=durability, host=Host(runner=inline_runner))


async def lose(life: Life, rng: random.Random, folder: Path, durability: str) -> tuple[str, str]:
    """Let the power go once, and open what is left.

    Args:
        life: in which it goes.
        rng: decides when, and what is left.
        folder: where to.
        durability: of the store.

    Returns:
        What is there, as its digest, and what is wrong with it; empty: nothing.
    """
    history = life.history
    before = rng.randint(0, len(history.record.operations))
    history.record.lose_power(before, rng, folder)
    left = folder.with_name(f"{folder.name} opened")
    shutil.copytree(folder, left)
    try:
        async with opened(left) as store:
            found = await digest(store)
        with closing(sqlite3.connect(left / _FILE)) as connection:
            damage = connection.execute("PRAGMA integrity_check").fetchall()
    except Exception as error:  # noqa: BLE001  damaged files may lead to anything
        return "", f"before operation {before}: {error!r}"
    finally:
        shutil.rmtree(left)
    if damage != [("ok",)]:
        return found, f"before operation {before}: {damage}"
    first = None if durability == "full" else history.synced(before, _FILE + LOG)
    return found, history.check(found, before, first=first)


async def faults_of_a_run(memory_path: Path, seed: int, durability: str, edit: Edit) -> list[str]:
    """Lose power `LOSSES_OF_A_RUN` times in one run, and return what went wrong.

    In the first half the store is new, and the power may go while it comes into being. In the second half it is opened
    as a loss has left it.
    """
    rng = random.Random(f"{durability} {seed}")
    folder = memory_path / f"{seed}"
    folder.mkdir()
    before: Sequence[Transaction] = ()
    faults: list[str] = []
    for generation in range(2):
        life = await live(folder, before, rng, durability, edit)
        for loss in range(LOSSES_OF_A_RUN // 2):
            folder = memory_path / f"{seed}-{generation}-{loss}"
            folder.mkdir()
            found, fault = await lose(life, rng, folder, durability)
            if fault:
                faults.append(f"run {seed}, generation {generation}, loss {loss}, {fault}")
        if faults:
            break
        before = life.transactions[: life.history.place_of(found)]
        if seed % 2 and (folder / _FILE).exists():
            # The power goes while it is taken over from an older version, and its rows become chunks, too.
            async with opened(folder):
                pass
            make_older(folder / _FILE, 5)
    return faults


def faults_found(
    memory_path: Path, number: int, durability: str, edit: Edit = lambda statement: statement
) -> list[str]:
    """Lose power so often, and return what went wrong in the first run in which something did."""
    for seed in range(-(-number // LOSSES_OF_A_RUN)):
        with seeded_schedule(seed):  # or a run could not be repeated: samples are swept while others are written
            faults = trio.run(faults_of_a_run, memory_path, seed, durability, edit)
        if faults:
            return faults
    return []


@pytest.mark.parametrize("losses", [40, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("durability", ["full", "batch"])
def test_what_is_acknowledged_survives_and_nothing_is_torn(durability: str, losses: int, memory_path: Path) -> None:
    assert faults_found(memory_path, losses, durability) == []


@pytest.mark.parametrize("durability", ["full", "batch"])
def test_it_is_found_when_nothing_is_synced(durability: str, memory_path: Path) -> None:
    def unsynced(statement: str) -> str:
        return "PRAGMA synchronous = OFF" if statement.startswith("PRAGMA synchronous") else statement

    assert faults_found(memory_path, 20, durability, unsynced) != []


def test_it_is_found_when_commits_are_not_synced(memory_path: Path) -> None:
    assert faults_found(memory_path, 20, "full", lambda statement: statement.replace("= FULL", "= NORMAL")) != []


@pytest.mark.parametrize("durability", ["full", "batch"])
def test_it_is_found_when_a_write_is_acknowledged_before_it_is_done(
    durability: str, memory_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done with the next one."""
    write, waiting = SqliteWriter.write, list[Sequence[Write]]()

    def write_the_one_before(self: SqliteWriter, writes: Sequence[Write], watched: Any = ()) -> Any:
        waiting.append(writes)
        return write(self, waiting.pop(0) if len(waiting) > 1 else [], watched)

    monkeypatch.setattr(SqliteWriter, "write", write_the_one_before)
    assert faults_found(memory_path, 20, durability) != []
