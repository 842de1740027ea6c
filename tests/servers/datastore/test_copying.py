"""Copies of trials between storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.errors import UnavailableError
from trio_cogment.servers.datastore import TrialStore, open_store
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore.copying import Copied, copy_trials
from trio_cogment.servers.datastore.storage import EndWrite, OutcomeWrite, TrialEnd, Write, WriteKind
from trio_cogment.testing.conformance.trial_store import ALL, get, late, new_trial, read, sample

COPIED = ("user_id", "params", "samples_count", "last_state", "end", "logged", "outcome", "owner", "endpoint")


def no_progress(_done: Copied) -> None:
    pass


async def fill(store: TrialStore) -> None:
    """Write trials that have ended in all ways, and one that goes on."""
    ended = sample("a", 1200, state=TrialState.ENDED)
    await store.apply([new_trial("a", owner="ann", properties={"x": "1"}, endpoint="grpc://h:1")])
    samples = [sample("a", tick, payload=bytes(tick % 50)) for tick in range(1200)]
    await store.apply([*samples, late("a", 3, 0.5), ended])
    await store.apply([sample("a", 7, kind=WriteKind.STORED), OutcomeWrite("a", b"over"), late("a", 5000, 1)])
    await store.apply([new_trial("b"), sample("b", 0), EndWrite("b", TrialEnd.ABNORMAL)])
    await store.apply([new_trial("c", logged=False), EndWrite("c", TrialEnd.ENDED)])
    await store.apply([new_trial("goes on"), sample("goes on", 0)])


async def check(source: TrialStore, target: TrialStore) -> None:
    """See that the trials that have ended are the same in both."""
    for trial_id in "abc":
        one, other = await get(source, trial_id), await get(target, trial_id)
        for name in COPIED:
            assert getattr(one, name) == getattr(other, name), name
        assert [row[1:] for row in await read(source, trial_id)] == [row[1:] for row in await read(target, trial_id)]


async def test_everything_but_what_goes_on(tmp_path: Path) -> None:
    async with open_store(f"sqlite:{tmp_path}/t.db") as source, open_store("memory:") as target:
        await fill(source)
        told: list[int] = []
        done = await copy_trials(source, target, lambda done: told.append(done.samples))
        assert (done.trials, done.open, done.others, done.lost, done.there) == (3, ["goes on"], [], {}, [])
        assert (done.samples, told[-1], told) == (done.total_samples, done.total_samples, sorted(told))
        await check(source, target)
        assert [trial.trial_id for trial in await target.trials(after=0, limit=ALL)] == ["a", "b", "c"]
        again = await copy_trials(source, target, no_progress)
        assert (again.trials, again.there, again.samples) == (0, ["a", "b", "c"], done.samples)
        await source.apply([EndWrite("goes on", TrialEnd.ENDED)])
        assert (await copy_trials(source, target, no_progress)).trials == 1


class FailingStore(MemoryStore):
    """Fails at a batch, after it was written or before."""

    def __init__(self, batches: int, *, after: bool) -> None:
        super().__init__(1 << 30)
        self._batches = batches
        self._after = after

    async def apply(self, writes: Sequence[Write]) -> Mapping[int, str]:
        self._batches -= 1
        if self._batches == 0 and not self._after:
            raise UnavailableError("before")
        refused = await super().apply(writes)
        if self._batches == 0:
            raise UnavailableError("after")
        return refused


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("batches", range(1, 8))
async def test_goes_on_where_it_was_interrupted(batches: int, after: bool) -> None:
    target = FailingStore(batches, after=after)
    async with open_store("memory:") as source:
        await fill(source)
        try:
            await copy_trials(source, target, no_progress)
        except UnavailableError:
            assert await target.open_logged() == []  # nobody's lease ends a part of a trial
            done = await copy_trials(source, target, no_progress)
            assert not done.others
        await check(source, target)


async def test_another_trial_of_the_same_id_stays() -> None:
    async with open_store("memory:") as source, open_store("memory:") as target:
        await fill(source)
        await target.apply([new_trial("a", user_id="bob"), sample("a", 0), EndWrite("a", TrialEnd.ENDED)])
        await target.apply([new_trial("b"), sample("b", 0), sample("b", 1), EndWrite("b", TrialEnd.ABNORMAL)])
        done = await copy_trials(source, target, no_progress)
        assert (done.trials, done.others) == (1, ["a", "b"])
        assert (await get(target, "a")).user_id == "bob"


async def test_what_was_evicted_is_said_to_be_lost() -> None:
    source = MemoryStore(60_000)
    await source.apply([new_trial("old"), *(sample("old", tick, payload=bytes(1000)) for tick in range(30))])
    await source.apply([EndWrite("old", TrialEnd.ENDED), new_trial("new")])
    await source.apply([sample("new", tick, payload=bytes(1000)) for tick in range(30)])
    await source.apply([EndWrite("new", TrialEnd.ENDED)])
    async with open_store("memory:") as target:
        done = await copy_trials(source, target, no_progress)
        assert done.trials == 1
        assert "evicted" in done.lost["old"]
        assert await target.trial("old") is None
