"""The power goes while trials are written: what was acknowledged is there, and nothing is there by halves."""

from __future__ import annotations

import hashlib
import random
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import trio

from tests.sim.power.disk import Record
from tests.sim.power.history import History
from tests.sim.power.recorded_sqlite import Edit, recorded
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.datastore.opening import open_store
from trio_cogment.datastore.storage import OutcomeWrite, SampleWrite, TrialStore, Write, WriteKind
from trio_cogment.host import Host, inline_runner
from trio_cogment.testing.conformance.trial_store import ALL, MUCH, late, new_trial
from trio_cogment.testing.sim.schedule import seeded_schedule

#: Of each recorded run so many losses are tried; one recording costs as much as ten losses.
LOSSES_OF_A_RUN = 20
TRANSACTIONS = 40
_NAMES = ("a", "b", "c", "d", "e")
_FILE = "trials.db"


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is copied into the database every few transactions."""
    monkeypatch.setattr("trio_cogment.sqlite_file._CHECKPOINT_PAGES", 25)


async def digest(store: TrialStore) -> str:
    """Return a short text for everything in a store."""
    summary = hashlib.sha256()
    for trial in await store.trials(after=0, limit=ALL):
        summary.update(repr(trial).encode())
        for one in await store.samples(trial.number, after=0, limit=ALL, max_bytes=MUCH):
            summary.update(repr(one).encode())
    return summary.hexdigest()


def some_writes(rng: random.Random) -> list[Write]:
    trial_id = rng.choice(_NAMES)
    writes: list[Write] = [new_trial(trial_id, user_id=rng.choice(("ann", "bob")), logged=rng.random() < 0.5)]
    for _ in range(rng.choice((1, 3, 20))):
        kind = rng.choice((WriteKind.LOGGED, WriteKind.LOGGED, WriteKind.STORED))
        data = rng.randbytes(rng.choice((30, 500, 9000)))
        state = TrialState.ENDED if rng.random() < 0.05 else TrialState.RUNNING
        writes.append(SampleWrite(trial_id, rng.randrange(200), rng.randrange(1 << 40), state, data, kind))
    if rng.random() < 0.3:
        writes.append(late(f"{trial_id}-late", rng.randrange(200), 1.0))
        writes.append(OutcomeWrite(trial_id, rng.randbytes(40)))
    return writes


async def live(folder: Path, rng: random.Random, durability: str, edit: Edit) -> History:
    """Write to a store for a while; its folder is durable as it is."""
    history = History(Record(folder))
    with recorded(history.record, edit):
        async with opened(folder, durability) as store:
            history.note(await digest(store))
            for _ in range(TRANSACTIONS):
                if rng.random() < 0.1:
                    await store.delete([rng.choice(_NAMES)])
                else:
                    await store.apply(some_writes(rng))
                acknowledged = len(history.record.operations)
                history.note(await digest(store), acknowledged)
                await trio.lowlevel.checkpoint()  # samples of deleted trials are swept
    return history


def opened(folder: Path, durability: str = "full") -> AbstractAsyncContextManager[TrialStore]:
    return open_store(f"sqlite:{folder / _FILE}", durability=durability, host=Host(runner=inline_runner))


async def lose(history: History, rng: random.Random, folder: Path, durability: str) -> str:
    """Let the power go once in a history, open what is left, and return what is wrong with it; empty: nothing."""
    before = rng.randint(history.acknowledged[0], len(history.record.operations))
    history.record.lose_power(before, rng, folder)
    try:
        async with opened(folder) as store:
            found = await digest(store)
    except Exception as error:  # noqa: BLE001  damaged files may lead to anything
        return f"before operation {before}: {error!r}"
    return history.check(found, before, all_of_it=durability == "full")


async def faults_of_a_run(tmp_path: Path, seed: int, durability: str, edit: Edit) -> list[str]:
    """Lose power `LOSSES_OF_A_RUN` times in one run, and return what went wrong."""
    rng = random.Random(f"{durability} {seed}")
    folder = tmp_path / f"{seed}"
    folder.mkdir()
    async with opened(folder):
        pass
    faults: list[str] = []
    for generation in range(2):  # in the second one what was left by a loss is lost once more
        history = await live(folder, rng, durability, edit)
        for loss in range(LOSSES_OF_A_RUN // 2):
            left = tmp_path / f"{seed}-{generation}-{loss}"
            left.mkdir()
            if fault := await lose(history, rng, left, durability):
                faults.append(f"run {seed}, generation {generation}, loss {loss}, {fault}")
        if faults:
            break
        folder = left
    return faults


def faults_found(tmp_path: Path, number: int, durability: str, edit: Edit = lambda statement: statement) -> list[str]:
    """Lose power so often, and return what went wrong in the first run in which something did."""
    for seed in range(-(-number // LOSSES_OF_A_RUN)):
        with seeded_schedule(seed):  # or a run could not be repeated: samples are swept while others are written
            faults = trio.run(faults_of_a_run, tmp_path, seed, durability, edit)
        if faults:
            return faults
    return []


@pytest.mark.parametrize("losses", [40, pytest.param(1000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
@pytest.mark.parametrize("durability", ["full", "batch"])
def test_what_is_acknowledged_survives_and_nothing_is_torn(durability: str, losses: int, tmp_path: Path) -> None:
    assert faults_found(tmp_path, losses, durability) == []


@pytest.mark.parametrize("durability", ["full", "batch"])
def test_it_is_found_when_nothing_is_synced(durability: str, tmp_path: Path) -> None:
    def unsynced(statement: str) -> str:
        return "PRAGMA synchronous = OFF" if statement.startswith("PRAGMA synchronous") else statement

    assert faults_found(tmp_path, 20, durability, unsynced) != []
