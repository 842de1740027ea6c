"""A conformance kit for storages of trials: whatever a datastore runs on, these are its promises.

`check_trial_store` runs every case against a storage that was made for it. A case is a coroutine function taking a
`TrialStore`; it asserts, and says nothing when all is well. Storages that keep what was written when they are closed
are held to `KEEPING_CASES` as well, and those that several may have open at once to `SHARED_CASES`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

import trio
import trio.testing

from trio_cogment.api.common_pb2 import TrialParams, TrialState
from trio_cogment.api.trial_datastore_pb2 import (
    StoredTrialActorSample,
    StoredTrialActorSampleReward,
    StoredTrialSample,
)
from trio_cogment.base.errors import CogmentError, NotFoundError
from trio_cogment.servers.datastore.storage import (
    ROW_BYTES,
    EndWrite,
    OutcomeWrite,
    ReplacedAttempt,
    SampleWrite,
    StoredSample,
    StoredTrial,
    TrialEnd,
    TrialStore,
    TrialWrite,
    Write,
    WriteKind,
    trial_bytes,
)

T = TypeVar("T")

OpenStore = Callable[[], AbstractAsyncContextManager[TrialStore]]
"""Opens a storage for the duration of the block."""

#: Enough to be read at once by any case.
ALL = 1 << 20
MUCH = 1 << 40
_PATIENCE_SECONDS = 60.0
_ENDED, _RUNNING, _UNKNOWN = TrialState.ENDED, TrialState.RUNNING, TrialState.UNKNOWN


# --- what the cases have in common: writes, and what was stored ---


def new_trial(
    trial_id: str,
    *,
    user_id: str = "ann",
    logged: bool = True,
    properties: Mapping[str, str] | None = None,
    owner: str = "",
    endpoint: str = "",
    attempt: int = 0,
    takes_over: bool = False,
) -> TrialWrite:
    """Return what creates a trial, or takes it over."""
    params = TrialParams(properties=properties or {}, max_steps=7)
    return TrialWrite(trial_id, user_id, params, logged, owner, endpoint, attempt, takes_over)


def sample(
    trial_id: str,
    tick_id: int,
    *,
    run: int = 0,
    state: int = TrialState.RUNNING,
    kind: WriteKind = WriteKind.LOGGED,
    payload: bytes = b"",
    attempt: int = 0,
) -> SampleWrite:
    """Return what adds a sample; another `run` gives it another timestamp."""
    timestamp = 1_000_000 * run + tick_id
    message = StoredTrialSample(trial_id=trial_id, tick_id=tick_id, timestamp=timestamp, payloads=[payload])
    return SampleWrite(trial_id, tick_id, timestamp, state, message.SerializeToString(), kind, attempt)


def late(trial_id: str, tick_id: int, reward: float) -> SampleWrite:
    """Return what adds an out-of-sync sample with one reward for the first actor."""
    source = StoredTrialActorSampleReward(sender=-1, reward=reward, confidence=1)
    actor = StoredTrialActorSample(actor=0, reward=reward, received_rewards=[source])
    message = StoredTrialSample(trial_id=trial_id, tick_id=tick_id, actor_samples=[actor])
    timestamp = 5_000_000 + round(reward * 1000)
    return SampleWrite(trial_id, tick_id, timestamp, TrialState.UNKNOWN, message.SerializeToString(), WriteKind.LATE)


def late_rewards(stored: StoredSample) -> list[float]:
    """Return the rewards that were merged into a sample, or wait."""
    message = StoredTrialSample.FromString(stored.data)
    return [reward.reward for actor in message.actor_samples for reward in actor.received_rewards]


async def get(store: TrialStore, trial_id: str) -> StoredTrial:
    """Return a trial that is there."""
    trial = await store.trial(trial_id)
    assert trial is not None, f"trial {trial_id!r} is not there"
    return trial


async def read(store: TrialStore, trial_id: str, *, page: int = ALL) -> list[StoredSample]:
    """Return all samples of a trial, and see that their positions go up."""
    number = (await get(store, trial_id)).number
    found: list[StoredSample] = []
    after = 0
    while more := await store.samples(number, after=after, limit=page, max_bytes=MUCH):
        assert len(more) <= page
        for one in more:
            assert one.position > after, "positions go up"
            after = one.position
        found += more
    return found


async def ticks(store: TrialStore, trial_id: str) -> list[int]:
    """Return the ticks that a trial has samples of, in the order of their arrival."""
    return [one.tick_id for one in await read(store, trial_id)]


async def check_stored_bytes(store: TrialStore, owner: str) -> None:
    """Check what an account has stored by what can be read: a storage may need less for samples, and never more."""
    least = most = 0
    for trial in await store.trials(after=0, limit=ALL):
        samples = await read(store, trial.trial_id)
        raw_bytes = sum(len(one.data) for one in samples)
        assert trial.raw_bytes in (0, raw_bytes)  # 0: the storage does not say
        if trial.owner == owner:
            own = trial_bytes(trial.trial_id, trial.user_id, trial.params.ByteSize(), len(trial.outcome))
            least += own + (ROW_BYTES if samples else 0)
            most += own + raw_bytes + ROW_BYTES * len(samples)
    assert least <= await store.stored_bytes(owner) <= most


async def ids(store: TrialStore) -> list[str]:
    """Return the ids of all trials."""
    return [trial.trial_id for trial in await store.trials(after=0, limit=ALL)]


async def expect(error: type[CogmentError], call: Coroutine[Any, Any, T]) -> None:
    """See that a call raises what it should."""
    try:
        await call
    except error:
        return
    raise AssertionError(f"expected {error.__name__}")


# --- trials and samples ---


async def nothing_there(store: TrialStore) -> None:
    """An empty storage says so."""
    assert await store.trial("a") is None
    assert await ids(store) == []
    assert await store.open_logged() == []
    assert await store.delete(["a"]) == []
    assert await store.apply([]) == {}
    await expect(NotFoundError, store.samples(1, after=0, limit=1, max_bytes=MUCH))


async def a_trial(store: TrialStore) -> None:
    """A trial is as it was written; written again, it keeps its number, its samples and its end."""
    await store.apply([new_trial("a", user_id="ann", properties={"x": "1", "": "ä"}), new_trial("b", logged=False)])
    trial = await get(store, "a")
    assert (trial.trial_id, trial.user_id, trial.logged) == ("a", "ann", True)
    assert dict(trial.params.properties) == {"x": "1", "": "ä"}
    assert trial.params.max_steps == 7
    assert (trial.samples_count, trial.last_state, trial.end) == (0, _UNKNOWN, TrialEnd.OPEN)
    assert trial.number > 0
    assert not trial.evicted
    await store.apply([sample("a", 0, state=_ENDED), new_trial("a", user_id="bob", logged=False)])
    again = await get(store, "a")
    assert (again.number, again.user_id, again.logged) == (trial.number, "bob", False)
    assert (again.samples_count, again.end) == (1, TrialEnd.ENDED)
    assert dict(again.params.properties) == {}
    assert await store.trials(after=0, limit=ALL, properties={"x": "1"}) == []
    assert await ids(store) == ["a", "b"]


async def samples_in_order(store: TrialStore) -> None:
    """Samples come back as they were, in the order in which they came; gaps are nobody's business."""
    writes = [sample("a", tick, payload=bytes([tick]) * tick) for tick in (0, 1, 2, 5, 9)]
    await store.apply([new_trial("a"), *writes[:2]])
    await store.apply(writes[2:])
    found = await read(store, "a")
    assert [(one.tick_id, one.data) for one in found] == [(write.tick_id, write.data) for write in writes]
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state, trial.end) == (5, _RUNNING, TrialEnd.OPEN)
    assert await store.samples(trial.number, after=found[-1].position, limit=1, max_bytes=MUCH) == []


async def delivered_twice(store: TrialStore) -> None:
    """A logged sample that is there already changes nothing."""
    writes = [sample("a", tick, state=_ENDED if tick == 4 else _RUNNING) for tick in range(5)]
    await store.apply([new_trial("a"), *writes])
    found, trial = await read(store, "a"), await get(store, "a")
    assert await store.apply([*writes, *writes[2:]]) == {}
    assert await read(store, "a") == found
    assert await get(store, "a") == trial


async def run_anew(store: TrialStore) -> None:
    """A logged sample of another run takes the place of the old one and of all later ones."""
    await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(5)), late("a", 9, 1)])
    before = await read(store, "a")
    await store.apply([sample("a", 2, run=1)])
    found = await read(store, "a")
    assert [one.tick_id for one in found] == [0, 1, 2]
    assert found[2].position > before[-1].position
    assert (await get(store, "a")).samples_count == 3
    await store.apply([sample("a", tick, run=2, state=_ENDED if tick == 3 else _RUNNING) for tick in range(4)])
    assert await ticks(store, "a") == [0, 1, 2, 3]
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state, trial.end) == (4, _ENDED, TrialEnd.ENDED)
    await store.apply([sample("a", 0, run=3)])
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state, trial.end) == (1, _RUNNING, TrialEnd.OPEN)


async def stored_by_hand(store: TrialStore) -> None:
    """A sample stored by hand takes the place of the old one, at a position of its own, and of no other."""
    await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(4))])
    before = await read(store, "a")
    for run in (1, 1, 0):
        await store.apply([sample("a", 1, run=run, kind=WriteKind.STORED, payload=b"new")])
        found = await read(store, "a")
        assert [one.tick_id for one in found] == [0, 2, 3, 1]
        assert found[-1].position > before[-1].position
        assert found[:-1] == [before[0], *before[2:4]]
        before = [found[0], found[-1], *found[1:-1], found[-1]]
    assert (await get(store, "a")).samples_count == 4
    await store.apply([late("a", 7, 1.0), sample("a", 7, kind=WriteKind.STORED)])
    assert late_rewards((await read(store, "a"))[-1]) == []


async def late_rewards_merged(store: TrialStore) -> None:
    """An out-of-sync sample goes into its tick once, however often it comes; position and others stay."""
    await store.apply([new_trial("a"), *(sample("a", tick, payload=b"p") for tick in range(3))])
    before = await read(store, "a")
    await store.apply([late("a", 1, 0.5)])
    await store.apply([late("a", 1, 0.25), late("a", 1, 0.5), sample("a", 1)])
    found = await read(store, "a")
    assert [one.position for one in found] == [one.position for one in before]
    assert [late_rewards(one) for one in found] == [[], [0.5, 0.25], []]
    assert (found[0], found[2]) == (before[0], before[2])
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state) == (3, _RUNNING)


async def late_rewards_wait(store: TrialStore) -> None:
    """An out-of-sync sample before its tick waits, and is merged into it when it comes, behind all others."""
    await store.apply([new_trial("a"), sample("a", 0), late("a", 5, 0.5)])
    waiting = await read(store, "a")
    assert [one.tick_id for one in waiting] == [0, 5]
    trial = await get(store, "a")
    assert (trial.samples_count, trial.last_state, trial.end) == (2, _RUNNING, TrialEnd.OPEN)
    await store.apply([late("a", 5, 0.25), late("a", 5, 0.5), sample("a", 3)])
    await store.apply([sample("a", 5)])
    found = await read(store, "a")
    assert [one.tick_id for one in found] == [0, 3, 5]
    assert late_rewards(found[-1]) == [0.5, 0.25]
    assert found[-1].position > waiting[-1].position
    assert await store.apply([sample("a", 5), late("a", 5, 0.25)]) == {}
    assert await read(store, "a") == found
    assert (await get(store, "a")).samples_count == 3


async def late_never_reopens(store: TrialStore) -> None:
    """An out-of-sync sample changes neither state nor end, whatever its own state says."""
    await store.apply([new_trial("a"), sample("a", 0), late("a", 4, 1.0)._replace(state=_ENDED)])
    assert (await get(store, "a")).end == TrialEnd.OPEN
    await store.apply([sample("a", 1, state=_ENDED), late("a", 0, 1.0), late("a", 7, 1.0)])
    trial = await get(store, "a")
    assert (trial.last_state, trial.end) == (_ENDED, TrialEnd.ENDED)


async def outcomes(store: TrialStore) -> None:
    """How a trial ended is kept as it is, whatever becomes of the trial's samples; the last word counts."""
    await store.apply([new_trial("a"), new_trial("b"), sample("a", 0)])
    assert (await get(store, "a")).outcome == b""
    writes = (sample("a", 1, state=_ENDED), OutcomeWrite("a", b"one"), OutcomeWrite("nobody", b"x"))
    assert list(await store.apply(writes)) == [2]
    trial = await get(store, "a")
    assert (trial.outcome, trial.end, trial.samples_count) == (b"one", TrialEnd.ENDED, 2)
    assert await store.apply([OutcomeWrite("a", b"two")]) == {}
    assert await store.apply([sample("a", 2), new_trial("a", user_id="bob")]) == {}
    trial = await get(store, "a")
    assert (trial.outcome, trial.end, trial.samples_count) == (b"two", TrialEnd.OPEN, 3)
    assert (await get(store, "b")).outcome == b""


async def ends(store: TrialStore) -> None:
    """How trials end and open again."""
    await store.apply([new_trial("a"), sample("a", 0)])

    async def after(*writes: Any) -> tuple[int, TrialEnd]:
        assert await store.apply(writes) == {}
        trial = await get(store, "a")
        return trial.last_state, trial.end

    assert await after(EndWrite("a", TrialEnd.ABNORMAL)) == (_ENDED, TrialEnd.ABNORMAL)
    assert await after(EndWrite("a", TrialEnd.ENDED)) == (_ENDED, TrialEnd.ABNORMAL)
    assert await after(sample("a", 0)) == (_ENDED, TrialEnd.ABNORMAL)
    assert await after(EndWrite("a", TrialEnd.OPEN)) == (_RUNNING, TrialEnd.OPEN)
    assert await after(sample("a", 5, state=_ENDED)) == (_ENDED, TrialEnd.ENDED)
    assert await after(EndWrite("a", TrialEnd.ABNORMAL)) == (_ENDED, TrialEnd.ENDED)
    assert await after(sample("a", 3, kind=WriteKind.STORED)) == (_ENDED, TrialEnd.ENDED)
    assert await after(sample("a", 4)) == (_ENDED, TrialEnd.ENDED)
    assert await after(sample("a", 6, kind=WriteKind.STORED)) == (_RUNNING, TrialEnd.OPEN)
    assert await after(EndWrite("a", TrialEnd.ABNORMAL)) == (_ENDED, TrialEnd.ABNORMAL)
    assert await after(sample("a", 6, state=_ENDED)) == (_ENDED, TrialEnd.ENDED)
    assert await after(sample("a", 7), EndWrite("a", TrialEnd.ENDED)) == (_ENDED, TrialEnd.ENDED)
    assert await after(EndWrite("a", TrialEnd.OPEN)) == (_RUNNING, TrialEnd.OPEN)


async def refused(store: TrialStore) -> None:
    """What cannot be is refused with a reason; the rest of the batch is done."""
    reasons = await store.apply(
        [
            sample("a", 0),
            EndWrite("a", TrialEnd.ENDED),
            new_trial("a"),
            sample("a", 1),
            sample("b", 0),
            sample("a", 2)._replace(tick_id=1 << 63),
            sample("a", 2)._replace(timestamp=1 << 63),
            late("a", 1, 1.0)._replace(data=b"\xff"),
            late("a", 6, 1.0)._replace(data=b"\xff"),
            sample("a", 3),
        ]
    )
    assert list(reasons) == [0, 1, 4, 5, 6, 7, 8]
    assert all(reasons.values())
    assert "'b'" in reasons[4]
    assert await ids(store) == ["a"]
    assert await ticks(store, "a") == [1, 3]
    assert (await get(store, "a")).samples_count == 2
    assert (await get(store, "a")).end == TrialEnd.OPEN


async def large_numbers(store: TrialStore) -> None:
    """Ticks and timestamps of 63 bits, a large batch, a large sample, names of any kind."""
    top = (1 << 63) - 1
    name = "ä'\"%_\\ \n" * 20
    await store.apply([new_trial(name, properties={name: name}), new_trial("")])
    await store.apply([sample(name, top)._replace(timestamp=top), sample("", 0, payload=bytes(3 << 20))])
    await store.apply([sample("", tick) for tick in range(1, 3000)])
    assert await ticks(store, name) == [top]
    assert await ticks(store, "") == list(range(3000))
    assert len((await read(store, ""))[0].data) > 3 << 20
    found = await store.trials(after=0, limit=ALL, ids=[name], properties={name: name})
    assert [trial.trial_id for trial in found] == [name]


async def logged_and_open(store: TrialStore) -> None:
    """Which trials somebody has to watch: those that a data log writes and that are open."""
    await store.apply([new_trial("a"), new_trial("b", logged=False), new_trial("c"), new_trial("d")])
    await store.apply([sample("c", 0, state=_ENDED), EndWrite("d", TrialEnd.ABNORMAL)])
    assert await store.open_logged() == ["a"]
    await store.apply([new_trial("b"), new_trial("a", logged=False), EndWrite("d", TrialEnd.OPEN)])
    assert sorted(await store.open_logged()) == ["b", "d"]


async def ids_that_are_taken(store: TrialStore) -> None:
    """An open trial's id is its orchestrator's, which others learn the endpoint of; when it has ended, it is free."""
    here, there = new_trial("a", endpoint="grpc://here:9000"), new_trial("a", endpoint="grpc://there:9000")
    assert await store.apply([here, sample("a", 0), here]) == {}
    assert (await get(store, "a")).endpoint == "grpc://here:9000"
    reasons = await store.apply([there._replace(user_id="bob"), sample("a", 1)])
    assert list(reasons) == [0]
    assert "grpc://here:9000" in reasons[0]
    trial = await get(store, "a")
    assert (trial.user_id, trial.endpoint, trial.samples_count) == ("ann", "grpc://here:9000", 2)
    assert await store.apply([EndWrite("a", TrialEnd.ABNORMAL), there, EndWrite("a", TrialEnd.OPEN)]) == {}
    assert list(await store.apply([here])) == [0]
    assert (await get(store, "a")).endpoint == "grpc://there:9000"
    assert await store.apply([new_trial("a"), here]) == {}
    assert (await get(store, "a")).endpoint == "grpc://here:9000"
    reasons = await store.apply([new_trial("b", endpoint="grpc://one:1"), new_trial("b", endpoint="grpc://two:2")])
    assert list(reasons) == [1]


async def replaced_attempts(store: TrialStore) -> None:
    """A trial is taken over once; what its attempts before write is refused, and changes and ends nothing."""
    first = new_trial("a", endpoint="grpc://here:9000", attempt=1)
    assert await store.apply([first, sample("a", 0, attempt=1), sample("a", 1, attempt=1)]) == {}
    assert (await get(store, "a")).attempt == 1
    over = new_trial("a", user_id="bob", endpoint="grpc://there:9000", attempt=2, takes_over=True)
    await expect_replaced(store, over._replace(attempt=1), over._replace(attempt=3), over._replace(attempt=0))
    assert await store.apply([EndWrite("a", TrialEnd.ABNORMAL, 1), over]) == {}
    trial = await get(store, "a")
    assert (trial.user_id, trial.endpoint, trial.attempt) == ("bob", "grpc://there:9000", 2)
    assert (trial.end, trial.samples_count) == (TrialEnd.OPEN, 2)
    await expect_replaced(
        store,
        over,
        first,
        sample("a", 2, attempt=1),
        sample("a", 1, run=1, attempt=1),
        late("a", 1, 0.5)._replace(attempt=1),
        EndWrite("a", TrialEnd.ENDED, 1),
        EndWrite("a", TrialEnd.ABNORMAL, 1),
        OutcomeWrite("a", b"over", 1),
        sample("a", 5, attempt=3),
    )
    assert await get(store, "a") == trial
    assert await ticks(store, "a") == [0, 1]
    assert await store.apply([sample("a", 1, run=1, attempt=2), sample("a", 2, state=_ENDED, attempt=2)]) == {}
    assert await ticks(store, "a") == [0, 1, 2]
    await expect_replaced(store, new_trial("a", attempt=3, takes_over=True), first)
    assert await store.apply([new_trial("a", attempt=3), sample("a", 0, run=2, attempt=3)]) == {}
    assert (await get(store, "a")).samples_count == 1
    # Nobody takes over what is not there, also when it was deleted meanwhile.
    await expect_replaced(store, new_trial("b", attempt=1, takes_over=True))
    await store.delete(["a"])
    await expect_replaced(store, new_trial("a", attempt=4, takes_over=True))
    assert await ids(store) == []


async def expect_replaced(store: TrialStore, *writes: Write) -> None:
    """Check that each of these is refused because its attempt does not have the trial."""
    reasons = await store.apply(writes)
    assert list(reasons) == list(range(len(writes)))
    assert all(isinstance(reason, ReplacedAttempt) for reason in reasons.values())


async def deleted_unless_changed(store: TrialStore) -> None:
    """What was found of a trial may not hold any more when it is deleted: then it stays."""
    await store.apply([new_trial(name) for name in "abc"])
    await store.apply([EndWrite("a", TrialEnd.ENDED), EndWrite("b", TrialEnd.ABNORMAL)])
    numbers = {name: (await get(store, name)).number for name in "abc"}
    await expect_deleted(store, "a", numbers=[], expected=False)
    await expect_deleted(store, "a", numbers=[numbers["b"], numbers["c"]], expected=False)
    await expect_deleted(store, "c", ended=True, expected=False)
    assert await ids(store) == ["a", "b", "c"]
    await expect_deleted(store, "a", numbers=numbers.values(), ended=True, expected=True)
    await expect_deleted(store, "b", ended=True, expected=True)
    await expect_deleted(store, "c", numbers=[numbers["c"]], expected=True)
    await store.apply([new_trial("c")])
    await expect_deleted(store, "c", numbers=[numbers["c"]], expected=False)
    assert await ids(store) == ["c"]


async def expect_deleted(store: TrialStore, trial_id: str, *, expected: bool, **only: Any) -> None:
    """Delete a trial under these conditions, and check whether it was deleted."""
    assert await store.delete([trial_id], **only) == ([trial_id] if expected else [])


async def deleted(store: TrialStore) -> None:
    """A deleted trial is gone; its id may be used for another, which is a trial of its own."""
    await store.apply([new_trial(name, properties={"x": "1"}) for name in "abc"])
    await store.apply([sample(name, tick) for name in "abc" for tick in range(3)])
    old = await get(store, "b")
    assert sorted(await store.delete(["b", "nobody", "b", "a"])) == ["a", "b"]
    assert await ids(store) == ["c"]
    assert await store.delete(["a", "b"]) == []
    assert list(await store.apply([sample("b", 3), EndWrite("b", TrialEnd.ENDED)])) == [0, 1]
    await expect(NotFoundError, store.samples(old.number, after=0, limit=1, max_bytes=MUCH))
    await store.apply([new_trial("b"), sample("b", 1)])
    new = await get(store, "b")
    assert new.number > old.number
    assert (new.samples_count, await ticks(store, "b"), await ids(store)) == (1, [1], ["c", "b"])
    assert [trial.trial_id for trial in await store.trials(after=0, limit=9, properties={"x": "1"})] == ["c"]
    await expect(NotFoundError, store.samples(old.number, after=0, limit=1, max_bytes=MUCH))
    assert await ticks(store, "c") == [0, 1, 2]


async def what_owners_have(store: TrialStore) -> None:
    """What counts against an owner's quota is what there is of its trials, whatever has become of the writes."""
    steps: list[list[Write]] = [
        [new_trial("ä", user_id="ö", owner="x"), new_trial("b", owner="y"), new_trial("c")],
        [sample("ä", tick, payload=bytes(100 * tick)) for tick in range(5)],
        [sample("b", 0), sample("c", 0), late("ä", 2, 0.5), late("ä", 9, 0.5)],
        [sample("ä", 4, payload=bytes(400)), sample("ä", 9)],
        [sample("ä", 3, run=1, payload=b"again")],
        [sample("ä", 1, kind=WriteKind.STORED, payload=bytes(1000))],
        [OutcomeWrite("ä", b"over"), OutcomeWrite("ä", b"really over"), EndWrite("b", TrialEnd.ENDED)],
        # It stays its first owner's.
        [new_trial("ä", user_id="somebody", properties={"long": "x" * 100}, owner="y")],
        [OutcomeWrite("ä", b""), new_trial("ä", user_id="", owner="x")],
    ]
    for step in steps:
        await store.apply(step)
        for owner in ("x", "y", "nobody"):
            await check_stored_bytes(store, owner)
    assert await store.stored_bytes("") == 0
    assert await store.stored_bytes("nobody") == 0
    await store.delete(["ä"])
    assert await store.stored_bytes("x") == 0
    await check_stored_bytes(store, "y")
    assert await store.stored_bytes("y") > 0


# --- pages ---


async def pages_of_samples(store: TrialStore) -> None:
    """A page has as many samples as were asked for, or as many bytes; the first sample comes whatever its size."""
    await store.apply([new_trial("a"), *(sample("a", tick, payload=bytes(1000)) for tick in range(1, 26))])
    number = (await get(store, "a")).number
    for page in (1, 7, 25, 26):
        assert [one.tick_id for one in await read(store, "a", page=page)] == list(range(1, 26))
    size = len((await store.samples(number, after=0, limit=1, max_bytes=MUCH))[0].data)
    for max_bytes, expected in ((1, 1), (size, 1), (size + 1, 2), (10 * size, 10), (10 * size + 1, 11)):
        page_of_bytes = await store.samples(number, after=0, limit=ALL, max_bytes=max_bytes)
        assert len(page_of_bytes) == expected, f"{max_bytes} bytes"


async def pages_while_writing(store: TrialStore) -> None:
    """Paging by position misses no sample that is added, replaced or completed meanwhile."""
    await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(0, 20, 2))])
    number = (await get(store, "a")).number
    seen: dict[int, bytes] = {}
    after = 0
    for turn in range(100):
        more = await store.samples(number, after=after, limit=3, max_bytes=MUCH)
        seen.update((one.tick_id, one.data) for one in more)
        after = more[-1].position if more else after
        if turn < 10:
            await store.apply(
                [
                    sample("a", 2 * turn + 1, kind=WriteKind.STORED),
                    sample("a", 2 * turn, run=1, kind=WriteKind.STORED, payload=b"new"),
                    late("a", 100 + turn, 1),
                    sample("a", 100 + turn),
                ]
            )
        elif not more:
            break
    assert seen == {one.tick_id: one.data for one in await read(store, "a")}


async def pages_of_trials(store: TrialStore) -> None:
    """Trials come in the order of their creation, whatever the order of the ids asked for; pages follow numbers."""
    names = [f"trial {number}" for number in range(12)]
    for name in names:
        await store.apply([new_trial(name, properties={"parity": str(int(name[6:]) % 2), "kind": "x"})])
    await store.apply([new_trial("trial 3", properties={"parity": "odd"})])
    found, after = [], 0
    while page := await store.trials(after=after, limit=5):
        assert len(page) <= 5
        found += [trial.trial_id for trial in page]
        after = page[-1].number
    assert found == names
    chosen = await store.trials(after=0, limit=ALL, ids=["trial 7", "nobody", "trial 2", "trial 7"])
    assert [trial.trial_id for trial in chosen] == ["trial 2", "trial 7"]
    behind = await store.trials(after=chosen[0].number, limit=ALL, ids=["trial 7", "trial 2"])
    assert [trial.trial_id for trial in behind] == ["trial 7"]
    assert [trial.trial_id for trial in await store.trials(after=0, limit=1, ids=names[::-1])] == ["trial 0"]
    assert await store.trials(after=0, limit=ALL, ids=[]) == []
    even = await store.trials(after=0, limit=2, properties={"parity": "0", "kind": "x"}, ids=names[1:])
    assert [trial.trial_id for trial in even] == ["trial 2", "trial 4"]
    assert [trial.trial_id for trial in await store.trials(after=0, limit=9, properties={"parity": "odd"})] == [
        names[3]
    ]
    assert await store.trials(after=0, limit=ALL, properties={"parity": "1", "kind": "y"}) == []
    assert len(await store.trials(after=0, limit=ALL, properties={})) == 12


async def many_ids(store: TrialStore) -> None:
    """Ids may be asked for by the thousand, most of them unknown."""
    await store.apply([new_trial(f"{number}") for number in range(50)])
    wanted = [f"{number}" for number in range(3000, -1, -1)]
    found = await store.trials(after=0, limit=40, ids=wanted)
    assert [trial.trial_id for trial in found] == [f"{number}" for number in range(40)]


async def pages_after_deletion(store: TrialStore) -> None:
    """A page's handle stays valid when the trials before it are deleted, and numbers are never used again."""
    await store.apply([new_trial(f"{number}") for number in range(6)])
    first = await store.trials(after=0, limit=3)
    await store.delete([trial.trial_id for trial in first] + ["5"])
    await store.apply([new_trial("5"), new_trial("6")])
    rest = await store.trials(after=first[-1].number, limit=ALL)
    assert [trial.trial_id for trial in rest] == ["3", "4", "5", "6"]
    assert len({trial.number for trial in (*first, *rest)}) == 7


# --- watches ---


async def watch_a_trial(store: TrialStore) -> None:
    """Its samples, its end and its deletion wake a watch; what came before one waits is not missed."""
    await store.apply([new_trial("a"), new_trial("b")])
    async with store.watch("a") as watch:
        for write in (sample("a", 0), late("a", 0, 1.0), EndWrite("a", TrialEnd.ABNORMAL), new_trial("a")):
            await store.apply([write])
            await watch.changed()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch.changed)
            await trio.testing.wait_all_tasks_blocked()
            await store.apply([sample("b", 0), sample("a", 1)])
        await store.delete(["a"])
        await watch.changed()


async def watch_all_trials(store: TrialStore) -> None:
    """Creation, ends, and openings wake a watch of all trials; several may watch."""
    async with store.watch() as first, store.watch() as second:
        for write in (
            new_trial("a"),
            sample("a", 0, state=TrialState.ENDED),
            EndWrite("a", TrialEnd.OPEN),
            EndWrite("a", TrialEnd.ABNORMAL),
        ):
            await store.apply([write])
            await first.changed()
            await second.changed()
    async with store.watch() as third:
        await store.delete(["a"])
        await third.changed()


async def watch_after_cancellation(store: TrialStore) -> None:
    """A cancelled `changed` takes no news away."""
    await store.apply([new_trial("a")])
    async with store.watch("a") as watch:
        with trio.CancelScope() as scope:
            scope.cancel()
            await watch.changed()
        await store.apply([sample("a", 0)])
        with trio.CancelScope() as scope:
            scope.cancel()
            await watch.changed()
        await watch.changed()


# --- many at once ---


async def many_writers(store: TrialStore) -> None:
    """Batches from many tasks do not mix: all of them are there, each trial's in order."""

    async def write(trial_id: str) -> None:
        await store.apply([new_trial(trial_id)])
        for batch in range(5):
            refused = await store.apply(
                [sample("nobody", 0), *(sample(trial_id, batch * 10 + tick) for tick in range(10))]
            )
            assert list(refused) == [0]

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(write, f"{number}")
    assert sorted(await ids(store)) == sorted(f"{number}" for number in range(20))
    for number in range(20):
        assert await ticks(store, f"{number}") == list(range(50))
        assert (await get(store, f"{number}")).samples_count == 50


async def batches_are_whole(store: TrialStore) -> None:
    """No reader sees half of a batch, and a cancelled writer leaves all of it or nothing."""
    await store.apply([new_trial("a")])
    number = (await get(store, "a")).number
    written = trio.Event()

    async def write() -> None:
        for batch in range(20):
            with trio.CancelScope() as scope:
                if batch % 3 == 1:
                    scope.cancel()
                await store.apply([sample("a", 10 * batch + tick) for tick in range(10)])
        written.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        while not written.is_set():
            assert (await get(store, "a")).samples_count % 10 == 0
            assert len(await store.samples(number, after=0, limit=ALL, max_bytes=MUCH)) % 10 == 0
    found = await ticks(store, "a")
    assert found == sorted(found)
    assert len(found) % 10 == 0
    assert {*range(10), *range(20, 40)} <= set(found)


async def cancelled_among_others(store: TrialStore) -> None:
    """A writer that is cancelled while it waits for its turn changes nothing for the others."""
    await store.apply([new_trial(f"{number}") for number in range(10)])

    async def write(number: int) -> None:
        with trio.CancelScope() as scope:
            if number % 2:
                nursery.start_soon(_cancel, scope)
            for tick in range(5):
                await store.apply([sample(f"{number}", tick)])

    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(write, number)
    for number in range(10):
        found = await ticks(store, f"{number}")
        assert found == list(range(5 if number % 2 == 0 else len(found)))


async def _cancel(scope: trio.CancelScope) -> None:
    scope.cancel()


CASES: tuple[Callable[[TrialStore], Awaitable[None]], ...] = (
    nothing_there,
    a_trial,
    samples_in_order,
    delivered_twice,
    run_anew,
    stored_by_hand,
    late_rewards_merged,
    late_rewards_wait,
    late_never_reopens,
    ends,
    outcomes,
    refused,
    large_numbers,
    logged_and_open,
    deleted,
    deleted_unless_changed,
    ids_that_are_taken,
    replaced_attempts,
    what_owners_have,
    pages_of_samples,
    pages_while_writing,
    pages_of_trials,
    many_ids,
    pages_after_deletion,
    watch_a_trial,
    watch_all_trials,
    watch_after_cancellation,
    many_writers,
    batches_are_whole,
    cancelled_among_others,
)


# --- for storages that keep ---


async def opened_again(open_store: OpenStore) -> None:
    """All is as it was: trials, samples, what waits, what was merged, and which numbers were used."""
    async with open_store() as store:
        trial_a = new_trial("a", properties={"x": "1"}, owner="ann")
        await store.apply([trial_a, new_trial("b", logged=False), new_trial("c", owner="ann")])
        await store.apply([sample("a", tick, payload=bytes([tick])) for tick in range(10)])
        await store.apply([late("a", 3, 0.5), late("a", 20, 1.5), sample("b", 0, state=TrialState.ENDED)])
        await store.delete(["c"])
        trials, samples = await store.trials(after=0, limit=ALL), await read(store, "a")
        last = max(trial.number for trial in trials) + 1
        size = await store.stored_bytes("ann")
        assert size > 0
    async with open_store() as store:
        assert await store.trials(after=0, limit=ALL) == trials
        assert await read(store, "a") == samples
        assert 0 < await store.stored_bytes("ann") <= size  # samples may have been put together meanwhile
        assert await store.open_logged() == ["a"]
        assert await store.trials(after=0, limit=ALL, properties={"x": "1"}) == trials[:1]
        await store.apply([new_trial("d"), sample("a", 5), late("a", 3, 0.5), sample("a", 20), sample("a", 21)])
        assert (await get(store, "d")).number > last
        found = await read(store, "a")
        assert [one.tick_id for one in found] == [*range(10), 20, 21]
        assert [one.position for one in found[:10]] == [one.position for one in samples[:10]]
        assert found[10].position > samples[-1].position
        assert late_rewards(found[3]) == [0.5]
        assert late_rewards(found[10]) == [1.5]
        assert (await get(store, "a")).samples_count == 12


async def deleted_stays_deleted(open_store: OpenStore) -> None:
    """What was deleted does not come back, however soon the storage is closed."""
    async with open_store() as store:
        await store.apply([new_trial("a"), *(sample("a", tick) for tick in range(2000))])
        number = (await get(store, "a")).number
        assert await store.delete(["a"]) == ["a"]
    async with open_store() as store:
        assert await ids(store) == []
        try:
            await store.samples(number, after=0, limit=1, max_bytes=MUCH)
        except NotFoundError:
            pass
        else:
            raise AssertionError("samples of a deleted trial")
        await store.apply([new_trial("a"), sample("a", 0)])
        assert await ticks(store, "a") == [0]


KEEPING_CASES: tuple[Callable[[OpenStore], Awaitable[None]], ...] = (opened_again, deleted_stays_deleted)


# --- for storages that several may have open ---


async def seen_by_the_other(first: TrialStore, second: TrialStore) -> None:
    """What one handle has written, the other reads and is told of, and may go on with."""
    async with second.watch() as all_trials, second.watch("a") as one_trial:
        await first.apply([new_trial("a"), *(sample("a", tick) for tick in range(5))])
        await all_trials.changed()
        await one_trial.changed()
    assert await ticks(second, "a") == list(range(5))
    for tick in range(5, 10):
        await (second if tick % 2 else first).apply([sample("a", tick - 1), sample("a", tick)])
    assert await ticks(first, "a") == await ticks(second, "a") == list(range(10))
    assert await get(first, "a") == await get(second, "a")
    await second.delete(["a"])
    assert await first.trial("a") is None
    assert list(await first.apply([sample("a", 10)])) == [0]


async def written_by_both(first: TrialStore, second: TrialStore) -> None:
    """Two handles that write at once lose nothing of each other."""

    async def write(store: TrialStore, trial_id: str) -> None:
        await store.apply([new_trial(trial_id)])
        for tick in range(20):
            await store.apply([sample(trial_id, tick)])

    async with trio.open_nursery() as nursery:
        for number in range(4):
            nursery.start_soon(write, first if number % 2 else second, f"{number}")
    for number in range(4):
        assert await ticks(first, f"{number}") == await ticks(second, f"{number}") == list(range(20))


async def taken_over_once(first: TrialStore, second: TrialStore) -> None:
    """Of several who take a trial over at once one has it, and nobody else writes to it."""
    won: list[tuple[int, TrialStore]] = []

    async def take_over(store: TrialStore, attempt: int) -> None:
        if not await store.apply([new_trial("a", attempt=attempt, takes_over=True)]):
            won.append((attempt, store))

    await first.apply([new_trial("a", attempt=1), sample("a", 0, attempt=1)])
    for attempt in range(2, 8):
        async with trio.open_nursery() as nursery:
            for number in range(6):
                nursery.start_soon(take_over, first if number % 2 else second, attempt)
        assert [one for one, _ in won] == list(range(2, attempt + 1))
        assert await won[-1][1].apply([sample("a", attempt, attempt=attempt)]) == {}
        await expect_replaced(first, sample("a", attempt + 1, attempt=attempt - 1))
        await expect_replaced(second, sample("a", attempt + 1, attempt=attempt - 1))
    assert await ticks(first, "a") == [0, *range(2, 8)]


SHARED_CASES: tuple[Callable[[TrialStore, TrialStore], Awaitable[None]], ...] = (
    seen_by_the_other,
    written_by_both,
    taken_over_once,
)


# --- running the cases ---


@contextmanager
def _named(case: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"check_trial_store: case {case}")
        raise


async def check_case(
    open_store: OpenStore, case: Callable[[TrialStore], Awaitable[None]], *, patience: float = _PATIENCE_SECONDS
) -> None:
    """Run one of `CASES` against a storage that nobody has written to.

    Raises:
        AssertionError: the implementation does not conform.
        trio.TooSlowError: it did not finish within `patience` seconds.
    """
    with trio.fail_after(patience):
        async with open_store() as store:
            await case(store)


async def check_trial_store(make: Callable[[], OpenStore], *, keeps: bool = False, shared: bool = False) -> None:
    """Run every case, each against a storage of its own.

    Args:
        make: makes a new, empty storage and returns what opens it, as often as it is called.
        keeps: opened again, the storage has what was written before.
        shared: it may be opened while it is open.

    Raises:
        AssertionError: the implementation does not conform; a note names the case.
        trio.TooSlowError: a case did not finish.
    """
    for case in CASES:
        with _named(case.__name__):
            await check_case(make(), case)
    for keeping_case in KEEPING_CASES if keeps else ():
        with _named(keeping_case.__name__), trio.fail_after(_PATIENCE_SECONDS):
            await keeping_case(make())
    for shared_case in SHARED_CASES if shared else ():
        open_store = make()
        with _named(shared_case.__name__), trio.fail_after(_PATIENCE_SECONDS):
            async with open_store() as first, open_store() as second:
                await shared_case(first, second)
