"""Random batches against a storage and against a few lines with dicts that do the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.servers.datastore.stores import Make, in_memory, in_sqlite_inline
from tests.servers.datastore.test_conformance import name
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.servers.datastore._chunk_layouts import joined
from trio_cogment.servers.datastore._merging import begin_waiting, merge_late
from trio_cogment.servers.datastore.storage import (
    EndWrite,
    OutcomeWrite,
    SampleWrite,
    TrialEnd,
    TrialStore,
    TrialWrite,
    Write,
    WriteKind,
)
from trio_cogment.testing.conformance.trial_store import ALL, MUCH, check_stored_bytes, late, new_trial, sample

TRIALS = ("a", "b")
#: Values of a property of trials; empty: it has none.
PROPERTIES = ("", "red", "blue")


@dataclass
class Model:
    """A trial: its samples in the order of arrival, as (tick, timestamp, waiting, state, data)."""

    write: TrialWrite
    owner: str = ""
    rows: list[tuple[int, int, bool, int, bytes]] = field(default_factory=list)
    end: TrialEnd = TrialEnd.OPEN
    outcome: bytes = b""
    attempt: int = 0

    def add(self, write: SampleWrite) -> None:
        old = next((row for row in self.rows if row[0] == write.tick_id), None)
        whole = [row[0] for row in self.rows if not row[2]]
        if write.kind == WriteKind.LATE:
            if old is None:
                self.rows.append((write.tick_id, 0, True, write.state, begin_waiting(joined(write.data))))
            else:
                self.rows[self.rows.index(old)] = (*old[:4], merge_late(old[4], joined(write.data)))
            return
        data = joined(write.data)
        known = write.kind == WriteKind.LOGGED and old is not None and not old[2] and old[1] == write.timestamp
        if not known:
            if write.kind == WriteKind.LOGGED and old is not None:
                if old[2]:
                    data = merge_late(data, old[4])
                    self.rows.remove(old)
                else:
                    self.rows = [row for row in self.rows if row[0] < write.tick_id]
                    whole = []
            elif old is not None:
                self.rows.remove(old)
            self.rows.append((write.tick_id, write.timestamp, False, write.state, data))
            if all(write.tick_id >= tick for tick in whole) and write.state != TrialState.ENDED:
                self.end = TrialEnd.OPEN
        if write.state == TrialState.ENDED:
            self.end = TrialEnd.ENDED

    def finish(self, end: TrialEnd) -> None:
        if TrialEnd.OPEN in (end, self.end):
            self.end = end

    def last_state(self) -> int:
        if self.end != TrialEnd.OPEN:
            return TrialState.ENDED
        return max(((row[0], row[3]) for row in self.rows if not row[2]), default=(0, TrialState.UNKNOWN))[1]


names = st.sampled_from(TRIALS)
owners = st.sampled_from(["", "x", "y"])
attempts = st.sampled_from([0, 0, 1, 1, 2, 3])
few_ticks = st.integers(0, 6)
states = st.sampled_from([TrialState.RUNNING, TrialState.RUNNING, TrialState.TERMINATING, TrialState.ENDED])
kinds = st.sampled_from([WriteKind.LOGGED, WriteKind.LOGGED, WriteKind.STORED])
write_lists: st.SearchStrategy[list[Write]] = st.lists(
    st.one_of(
        st.builds(
            new_trial,
            names,
            user_id=st.sampled_from(["ann", "bob"]),
            logged=st.booleans(),
            owner=owners,
            properties=st.sampled_from([{"p": value} if value else {} for value in PROPERTIES]),
            attempt=attempts,
            takes_over=st.booleans(),
        ),
        st.builds(sample, names, few_ticks, run=st.integers(0, 1), state=states, kind=kinds),
        st.builds(sample, names, few_ticks, run=st.integers(0, 1), state=states, kind=kinds),
        st.builds(late, names, few_ticks, st.sampled_from([0.5, 1.0, 2.0])),
        st.builds(sample, names, few_ticks, state=states, attempt=attempts),
        st.builds(EndWrite, names, st.sampled_from(TrialEnd), attempts),
        st.builds(OutcomeWrite, names, st.sampled_from([b"", b"one", b"two"]), attempts),
    ),
    max_size=12,
)
#: A batch, or the name of a trial to delete.
steps = st.lists(write_lists | write_lists | names, max_size=8)


async def run(make: Make, script: Sequence[list[Write] | str | None]) -> None:
    """Play a script: batches, names of trials to delete, and None where the storage is closed and opened again."""
    model: dict[str, Model] = {}
    numbers: dict[str, int] = {}
    opened = make()
    async with AsyncExitStack() as stack:

        async def open_it() -> TrialStore:
            store = await stack.enter_async_context(opened())
            # What is watched may be kept at hand.
            await stack.enter_async_context(store.watch(TRIALS[0]))
            return store

        store = await open_it()
        for step in script:
            if step is None:
                await stack.aclose()
                store = await open_it()
            elif isinstance(step, str):
                assert await store.delete([step]) == ([step] if model.pop(step, None) else [])
                numbers.pop(step, None)
            else:
                refused = await store.apply(step)
                assert list(refused) == play(model, step)
            await check(store, model, numbers)


async def check(store: TrialStore, model: dict[str, Model], numbers: dict[str, int]) -> None:
    """Compare all that can be asked of a storage with the model; it gets to know the trials' numbers."""
    trials = await store.trials(after=0, limit=ALL)
    assert [trial.trial_id for trial in trials] == list(model)
    for trial in trials:
        expected = model[trial.trial_id]
        assert numbers.setdefault(trial.trial_id, trial.number) == trial.number
        assert (trial.user_id, trial.logged) == (expected.write.user_id, expected.write.logged)
        assert (trial.params, trial.owner) == (expected.write.params, expected.owner)
        assert (trial.samples_count, trial.end) == (len(expected.rows), expected.end)
        assert (trial.outcome, trial.attempt) == (expected.outcome, expected.attempt)
        assert trial.last_state == expected.last_state()
        found = await store.samples(trial.number, after=0, limit=ALL, max_bytes=MUCH)
        assert [(one.tick_id, one.data) for one in found] == [(row[0], row[4]) for row in expected.rows]
        for place, one in enumerate(found, 1):
            rest = await store.samples(trial.number, after=one.position, limit=ALL, max_bytes=MUCH)
            assert rest == found[place:]
        first = found[0].data if found else b""
        assert await store.samples(trial.number, after=0, limit=2, max_bytes=MUCH) == found[:2]
        assert await store.samples(trial.number, after=0, limit=ALL, max_bytes=len(first) or 1) == found[:1]
        for _ in range(2):
            assert await store.trial(trial.trial_id) == trial
    for number, trial in enumerate(trials):
        assert await store.trials(after=trial.number, limit=1) == trials[number + 1 :][:1]
    last = [trial for trial in trials if trial.trial_id == TRIALS[-1]]
    assert await store.trials(after=0, limit=ALL, ids=[TRIALS[-1], "nobody"]) == last
    for value in PROPERTIES:
        having = [trial for trial in trials if trial.params.properties.get("p", "") == value]
        if value:
            assert await store.trials(after=0, limit=ALL, properties={"p": value}) == having
    watched = {key for key, one in model.items() if one.write.logged and one.end == TrialEnd.OPEN}
    assert set(await store.open_logged()) == watched
    for owner in ("x", "y"):
        await check_stored_bytes(store, owner)


def may_write(write: TrialWrite, trial: Model | None) -> bool:
    if trial is None:
        return not write.takes_over
    if write.takes_over:
        return write.attempt == trial.attempt + 1 and trial.end != TrialEnd.ENDED
    return write.attempt in (0, trial.attempt, trial.attempt + 1)


def play(model: dict[str, Model], writes: list[Write]) -> list[int]:
    refused = []
    for index, write in enumerate(writes):
        trial = model.get(write.trial_id)
        if isinstance(write, TrialWrite):
            if not may_write(write, trial):
                refused.append(index)
            elif trial is None:
                model[write.trial_id] = Model(write, owner=write.owner, attempt=write.attempt)
            else:
                trial.write = write
                trial.attempt = write.attempt or trial.attempt
                if write.takes_over:
                    trial.end = TrialEnd.OPEN
        elif trial is None or write.attempt not in (0, trial.attempt):
            refused.append(index)
        elif isinstance(write, EndWrite):
            trial.finish(write.end)
        elif isinstance(write, OutcomeWrite):
            trial.outcome = write.outcome
        else:
            trial.add(write)
    return refused


@pytest.mark.parametrize("backend", [in_memory, in_sqlite_inline], ids=name)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(script=steps)
def test_like_the_model(backend: Callable[[Path], Make], script: list[list[Write] | str]) -> None:
    with TemporaryDirectory() as folder:
        trio.run(run, backend(Path(folder)), script)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", [in_memory, in_sqlite_inline], ids=name)
@settings(max_examples=5000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(script=steps)
def test_like_the_model_for_long(backend: Callable[[Path], Make], script: list[list[Write] | str]) -> None:
    with TemporaryDirectory() as folder:
        trio.run(run, backend(Path(folder)), script)
