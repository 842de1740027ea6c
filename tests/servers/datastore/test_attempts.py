"""Attempts of a trial: who may write it, by a table, in a batch, and through the datastore's streams."""

from __future__ import annotations

import itertools

import pytest

from tests.servers.datastore.harness import params_with
from trio_cogment.api.common_pb2 import EndOfTrial, TrialState
from trio_cogment.api.datalog_pb2 import DatalogSample, SampleInfo
from trio_cogment.base.errors import AlreadyExistsError, FailedPreconditionError
from trio_cogment.servers.datastore import Datastore
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore._write_rules import ATTEMPTS, Fate, Standing, replaced, taken
from trio_cogment.servers.datastore.storage import (
    ELSEWHERE,
    RELEASED,
    EndWrite,
    OutcomeWrite,
    ReplacedAttempt,
    TrialEnd,
    TrialWrite,
    Write,
)
from trio_cogment.testing.conformance.trial_store import get, new_trial, sample

PARAMS = params_with("ann", "bob")
_HERE, _THERE = "grpc://here:9000", "grpc://there:9000"


@pytest.mark.parametrize(("standing", "end", "takes_over"), list(itertools.product(Standing, TrialEnd, (False, True))))
def test_every_attempt_has_its_fate(standing: Standing, end: TrialEnd, takes_over: bool) -> None:
    """Taking over needs the very next number and a trial that has not ended; else a lower or unknown one is refused."""
    if takes_over:
        expected = Fate.REPLACED if standing is not Standing.NEXT else Fate.TAKE_OVER
        if expected is Fate.TAKE_OVER and end is TrialEnd.ENDED:
            expected = Fate.ENDED
    else:
        expected = Fate.REPLACED if standing in (Standing.BEFORE, Standing.BEYOND) else Fate.BEGIN
    assert ATTEMPTS[standing, end, takes_over] is expected


@pytest.mark.parametrize(
    ("said", "has", "standing"),
    [
        (0, 0, Standing.NONE),
        (0, 3, Standing.NONE),
        (1, 0, Standing.NEXT),
        (1, 1, Standing.SAME),
        (1, 2, Standing.BEFORE),
        (3, 2, Standing.NEXT),
        (3, 1, Standing.BEYOND),
    ],
)
def test_standings(said: int, has: int, standing: Standing) -> None:
    assert Standing.of(said, has) is standing


@pytest.mark.parametrize(("end", "takes_over"), list(itertools.product(TrialEnd, (False, True))))
def test_only_who_takes_over_has_somebody_elses_id(end: TrialEnd, takes_over: bool) -> None:
    write = new_trial("a", endpoint=_HERE, attempt=3, takes_over=takes_over)
    reason = taken(write, end, _THERE, 2)
    if takes_over:
        assert isinstance(reason, ReplacedAttempt) is (end is TrialEnd.ENDED)
    else:
        assert (reason is not None) is (end is TrialEnd.OPEN)
        assert not isinstance(reason, ReplacedAttempt)


def test_what_names_no_attempt_is_never_replaced() -> None:
    writes: list[Write] = [sample("a", 0), EndWrite("a", TrialEnd.ENDED), OutcomeWrite("a", b""), new_trial("a")]
    assert [replaced(write, 7) for write in writes] == [None] * 4
    assert "attempt 6 may not write it, it is at attempt 7" in str(replaced(sample("a", 0, attempt=6), 7))


def _sample(tick_id: int, state: TrialState = TrialState.RUNNING) -> DatalogSample:
    return DatalogSample(info=SampleInfo(tick_id=tick_id, timestamp=10 + tick_id, state=state))


async def test_the_streams_of_an_attempt_that_was_replaced_are_refused() -> None:
    """Neither the stream that is open nor the next one changes or ends what the successor writes."""
    store = MemoryStore(1 << 30)
    async with Datastore(store) as datastore:
        first = datastore.sink().counted(0)

        async def write_while_replaced() -> None:
            async with first.open("a", "ann", PARAMS) as stream:
                await stream.write(_sample(0))
                await stream.flush()
                over = TrialWrite("a", "ann", PARAMS, True, attempt=2, takes_over=True)
                await datastore.writer.write(over)
                await stream.write(_sample(1, TrialState.ENDED))
                await stream.flush()

        with pytest.raises(FailedPreconditionError, match="attempt 1 may not write it, it is at attempt 2"):
            await write_while_replaced()
        with pytest.raises(FailedPreconditionError, match="attempt 1 may not write it"):
            await first.open("a", "ann", PARAMS).__aenter__()
        trial = await get(store, "a")
        assert (trial.end, trial.samples_count, trial.attempt) == (TrialEnd.OPEN, 1, 2)
        async with datastore.sink().counted(2).open("a", "ann", PARAMS) as stream:
            await stream.write(_sample(1, TrialState.ENDED))
            await stream.complete()
        trial = await get(store, "a")
        assert (trial.end, trial.samples_count) == (TrialEnd.ENDED, 2)


async def test_a_stream_that_broke_goes_on_and_a_new_trial_is_a_new_attempt() -> None:
    store = MemoryStore(1 << 30)
    async with Datastore(store) as datastore:
        first = datastore.sink().counted(0)
        for tick_id in range(2):
            async with first.open("a", "ann", PARAMS) as stream:
                await stream.write(_sample(tick_id, TrialState.ENDED if tick_id else TrialState.RUNNING))
                await stream.flush()
            assert (await get(store, "a")).attempt == 1
        async with datastore.sink().counted(0).open("a", "bob", PARAMS) as stream:
            await stream.write(_sample(0))
            await stream.flush()
        assert (await get(store, "a")).attempt == 2
        with pytest.raises(FailedPreconditionError):
            await first.open("a", "ann", PARAMS).__aenter__()


async def test_the_lease_of_a_replaced_attempt_ends_nothing() -> None:
    store = MemoryStore(1 << 30)
    await store.apply([new_trial("a", attempt=1), new_trial("a", attempt=2, takes_over=True)])
    assert list(await store.apply([EndWrite("a", TrialEnd.ABNORMAL, 1)])) == [0]
    assert (await get(store, "a")).end == TrialEnd.OPEN


async def test_an_id_that_is_taken_is_no_replaced_attempt() -> None:
    store = MemoryStore(1 << 30)
    await store.apply([new_trial("a", endpoint=_HERE, attempt=1)])
    async with Datastore(store) as datastore:
        with pytest.raises(AlreadyExistsError, match="its id is taken"):
            await datastore.sink(endpoint=_THERE).counted(0).open("a", "bob", PARAMS).__aenter__()


async def test_cleaning_up_twice_changes_nothing_and_harms_no_successor() -> None:
    """A trial that could not go on is given up, or released, once; another attempt has it then, or nobody."""
    store = MemoryStore(1 << 30)
    await store.apply([new_trial("a", attempt=1), sample("a", 0, attempt=1)])
    async with Datastore(store) as datastore:
        attempt = await datastore.take_over(await get(store, "a"), _HERE)
        assert attempt == 2
        for _ in range(2):
            await datastore.release("a", attempt)
            assert (await get(store, "a")).endpoint == RELEASED
        assert [trial.trial_id for trial in await datastore.left_open("")] == ["a"]
        stale = await get(store, "a")
        assert await datastore.take_over(stale, _THERE) == 3
        assert await datastore.take_over(stale, _HERE) is None
        with pytest.raises(FailedPreconditionError):
            await datastore.release("a", attempt)
        await datastore.give_up("a", attempt, EndOfTrial(reason="too late"))
        assert ((await get(store, "a")).end, (await get(store, "a")).outcome) == (TrialEnd.OPEN, b"")
        end = EndOfTrial(reason="nobody serves it")
        for _ in range(2):
            await datastore.give_up("a", 3, end)
            trial = await get(store, "a")
            assert (trial.end, trial.outcome) == (TrialEnd.ABNORMAL, end.SerializeToString())
        assert await datastore.left_open(_THERE) == []


@pytest.mark.parametrize(
    ("endpoint", "resumes", "refused"), [(_HERE, True, True), (ELSEWHERE + _HERE, False, True), (_HERE, False, False)]
)
async def test_an_interrupted_trial_is_begun_anew_only_where_it_does_not_go_on(
    endpoint: str, resumes: bool, refused: bool
) -> None:
    """Its own orchestrator is refused as any other: what is stored would be deleted. One that has ended is no such."""
    store = MemoryStore(1 << 30)
    await store.apply([new_trial("a", endpoint=endpoint, attempt=1), sample("a", 0, attempt=1)])
    async with Datastore(store) as datastore:
        sink = datastore.sink(endpoint=endpoint, resumes=resumes)
        if refused:
            with pytest.raises(AlreadyExistsError, match="an interrupted trial that goes on by itself"):
                await sink.counted(0).open("a", "bob", PARAMS).__aenter__()
            assert (await get(store, "a")).attempt == 1
            await store.apply([EndWrite("a", TrialEnd.ENDED, 1)])
        async with sink.counted(0).open("a", "bob", PARAMS):
            assert (await get(store, "a")).attempt == 2
