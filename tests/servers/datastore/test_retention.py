"""Retention: which trials are kept where there is a limit."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.servers.datastore.harness import ENDED, Harness, open_harness, params_with, sample_of, send_log, whole
from tests.servers.datastore.stores import in_sqlite_inline
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.datalog_pb2 import RunTrialDatalogInput
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import UnavailableError
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore._retention import Retention
from trio_cogment.servers.datastore.storage import EndWrite, SampleWrite, StoredTrial, TrialEnd, TrialWrite, WriteKind
from trio_cogment.testing.conformance.trial_store import new_trial, sample


async def kept(harness: Harness) -> list[str]:
    """Return the ids of the trials that are left when all has been looked at, in the order of their creation."""
    await trio.sleep(3)
    return [info.trial_id for info in (await harness.trials()).trial_infos]


async def test_those_that_ended_last(autojump_clock: MockClock) -> None:
    async with open_harness(keep_trials=3) as harness, harness.data_log("long") as call:
        await send_log(call, whole(5)[:2])
        for number in range(6):
            await harness.log(f"t{number}", whole(2))
            await trio.sleep(2)
        assert await kept(harness) == ["long", "t3", "t4", "t5"]
        for sample in whole(5)[2:]:
            await call.send(RunTrialDatalogInput(sample=sample))
        await call.done_sending()
        assert await kept(harness) == ["long", "t4", "t5"]
        for number in (6, 7):
            await harness.log(f"t{number}", whole(2))
        assert await kept(harness) == ["long", "t6", "t7"]


async def test_all_that_end_at_once(autojump_clock: MockClock) -> None:
    async with open_harness(keep_trials=2) as harness:
        for number in range(1200):
            await harness.log(f"t{number}", whole(1))
        assert await kept(harness) == ["t1198", "t1199"]


async def test_all_trials_without_a_limit(autojump_clock: MockClock) -> None:
    async with open_harness() as harness:
        for number in range(3):
            await harness.log(f"t{number}", whole(1))
        assert len(await kept(harness)) == 3


async def test_those_that_were_there_before_are_the_oldest(tmp_path: Path, autojump_clock: MockClock) -> None:
    open_store = in_sqlite_inline(tmp_path)()
    async with open_store() as store, open_harness(store) as harness:
        for number in range(5):
            await harness.log(f"t{number}", whole(1))
    async with open_store() as store, open_harness(store, keep_trials=3) as harness:
        assert await kept(harness) == ["t2", "t3", "t4"]
        await harness.log("t5", whole(1))
        assert await kept(harness) == ["t3", "t4", "t5"]


async def test_what_is_deleted_by_hand_does_not_count(autojump_clock: MockClock) -> None:
    async with open_harness(keep_trials=3) as harness:
        for number in range(3):
            await harness.log(f"t{number}", whole(1))
        assert await kept(harness) == ["t0", "t1", "t2"]
        await harness.delete("t1")
        await harness.log("t3", whole(1))
        assert await kept(harness) == ["t0", "t2", "t3"]
        await harness.delete("t0")
        await harness.log("t0", whole(1))  # a new one of that id
        assert await kept(harness) == ["t2", "t3", "t0"]
        await harness.log("t4", whole(1))
        assert await kept(harness) == ["t3", "t0", "t4"]


def ended(trial_id: str, tick: int = 0) -> list[Any]:
    """Return the writes of a trial that has ended."""
    sample = SampleWrite(trial_id, tick, 1000 + tick, ENDED, sample_of(tick).SerializeToString(), WriteKind.LOGGED)
    return [TrialWrite(trial_id, "", params_with("ann"), True), sample, EndWrite(trial_id, TrialEnd.ENDED)]


async def test_a_trial_that_is_run_again_under_its_id_stays() -> None:
    store = MemoryStore(1 << 20)
    retention = Retention(store, 1)
    await store.apply(ended("a"))
    await retention.look()
    again = sample_of(0)
    data = again.SerializeToString()
    await store.apply([EndWrite("a", TrialEnd.OPEN), SampleWrite("a", 0, 7, 2, data, WriteKind.LOGGED), *ended("b")])
    await store.apply(ended("c"))
    await retention.look()
    assert {trial.trial_id for trial in await store.trials(after=0, limit=9)} == {"a", "c"}


async def test_a_trial_that_is_run_again_does_not_count_until_it_ends() -> None:
    store = MemoryStore(1 << 20)
    retention = Retention(store, keep=2)

    async def write(trial_id: str, tick_id: int, state: int) -> list[str]:
        await store.apply([new_trial(trial_id), sample(trial_id, tick_id, state=state)])
        await retention.look()
        return [trial.trial_id for trial in await store.trials(after=0, limit=10)]

    for trial_id in ("old", "again"):
        await write(trial_id, 1, ENDED)
    await write("again", 2, TrialState.RUNNING)
    assert await write("new", 1, ENDED) == ["old", "again", "new"]
    assert await write("again", 3, ENDED) == ["again", "new"]
    assert await write("newest", 1, ENDED) == ["again", "newest"]


async def test_a_trial_that_has_ended_again_is_one_of_the_last() -> None:
    """Also where there were not too many while it ran again."""
    store = MemoryStore(1 << 20)
    retention = Retention(store, keep=2)
    for trial_id, tick_id, state in (
        ("again", 1, ENDED),
        ("other", 1, ENDED),
        ("again", 2, TrialState.RUNNING),
        ("again", 3, ENDED),
        ("last", 1, ENDED),
    ):
        await store.apply([new_trial(trial_id), sample(trial_id, tick_id, state=state)])
        await retention.look()
    assert {trial.trial_id for trial in await store.trials(after=0, limit=10)} == {"again", "last"}


async def test_what_somebody_else_has_deleted_and_made_again_is_another_trial() -> None:
    store = MemoryStore(1 << 20)
    retention = Retention(store, 2)
    await store.apply([*ended("a"), *ended("b")])
    await retention.look()
    await store.delete(["a"])
    await store.apply([*ended("c"), *ended("a")])
    await retention.look()
    assert [trial.trial_id for trial in await store.trials(after=0, limit=9)] == ["c", "a"]


@pytest.mark.parametrize("failure", [UnavailableError("the disk is away"), RuntimeError("the disk is away")])
async def test_a_storage_that_fails_is_tried_again(
    failure: Exception, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delete, failures = MemoryStore.delete, [failure]

    async def failing(self: MemoryStore, trial_ids: Collection[str], **only: Any) -> list[str]:
        if failures:
            raise failures.pop()
        return await delete(self, trial_ids, **only)

    monkeypatch.setattr(MemoryStore, "delete", failing)
    async with open_harness(keep_trials=1) as harness:
        for number in range(3):
            await harness.log(f"t{number}", whole(1))
        await trio.sleep(10)
        assert await kept(harness) == ["t2"]
    assert "old trials cannot be deleted, which is tried again" in caplog.text
    assert f"{'' if isinstance(failure, UnavailableError) else 'RuntimeError'}: the disk is away" in caplog.text


async def test_any_of_many_open_trials_is_seen_to_end() -> None:
    store = MemoryStore(1 << 30)
    retention = Retention(store, 1)
    await store.apply([new_trial(f"t{number}") for number in range(1200)])
    await retention.look()
    for number in (1, 600, 1199):
        await store.apply([EndWrite(f"t{number}", TrialEnd.ENDED)])
        await retention.look()
    left = {trial.trial_id for trial in await store.trials(after=0, limit=2000)}
    assert {f"t{number}" for number in range(1200)} - left == {"t1", "t600"}


@pytest.mark.parametrize("meanwhile", [[EndWrite("t0", TrialEnd.OPEN)], ["t0", new_trial("t0")]])
async def test_one_that_is_taken_up_while_it_is_looked_at_stays(meanwhile: list[Any]) -> None:
    class Changing(MemoryStore):
        async def trials(self, **options: Any) -> list[StoredTrial]:
            found = await super().trials(**options)
            if options.get("ids") == ["t0"]:
                while meanwhile:
                    one = meanwhile.pop(0)
                    await (self.delete([one]) if isinstance(one, str) else self.apply([one]))
            return found

    store = Changing(1 << 30)
    for number in range(2):
        await store.apply(ended(f"t{number}"))
    await Retention(store, 1).look()
    assert meanwhile == []
    assert [trial.trial_id for trial in await store.trials(after=0, limit=9)] in (["t0", "t1"], ["t1", "t0"])


class AskedStore(MemoryStore):
    """Notes when it was asked, and how many trials it was told to delete at a time."""

    def __init__(self) -> None:
        super().__init__(1 << 30)
        self.asked: list[float] = []
        self.deleted: list[int] = []

    async def open_logged(self) -> list[str]:
        """See `TrialStore.open_logged`: each look at the trials asks for them once."""
        self.asked.append(trio.current_time())
        return await super().open_logged()

    async def delete(self, trial_ids: Collection[str], **only: Any) -> list[str]:
        """See `TrialStore.delete`."""
        self.deleted.append(len(trial_ids))
        return await super().delete(trial_ids, **only)


async def test_so_many_are_deleted_at_a_time_and_the_log_says_how_many(caplog: pytest.LogCaptureFixture) -> None:
    store = AskedStore()
    await store.apply([write for number in range(1202) for write in ended(f"t{number}")])
    with caplog.at_level("INFO"):
        await Retention(store, 2).look()
    assert store.deleted == [500, 500, 200]
    assert [trial.trial_id for trial in await store.trials(after=0, limit=9)] == ["t1200", "t1201"]
    said = [record.message for record in caplog.records]
    assert said == [f"keep_trials is 2: deleted {count} trials that ended before" for count in store.deleted]


async def test_what_somebody_else_has_deleted_is_not_said_to_be_deleted(caplog: pytest.LogCaptureFixture) -> None:
    store = AskedStore()
    retention = Retention(store, 2)
    await store.apply([*ended("a"), *ended("b")])
    await retention.look()
    await store.delete(["a", "b"])
    await store.apply([*ended("c"), *ended("d")])
    with caplog.at_level("INFO"):
        await retention.look()
    assert store.deleted == [2]
    assert caplog.records == []


async def test_trials_that_end_are_counted_together_after_a_second(autojump_clock: MockClock) -> None:
    """And while none begins or ends nobody looks."""
    store = AskedStore()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Retention(store, 1).run)
        await trio.sleep(1000)
        assert len(store.asked) == 1
        began = trio.current_time()
        for number in range(3):
            await store.apply(ended(f"t{number}"))
            await trio.sleep(0.3)
        assert len(store.asked) == 1
        await trio.sleep(1000)
        assert [at - began for at in store.asked[1:3]] == [1.0, 2.0]
        assert len(store.asked) <= 4  # its own deletion is a change, too
        assert store.deleted == [2]
        nursery.cancel_scope.cancel()


async def test_a_storage_that_is_away_is_asked_every_five_seconds(autojump_clock: MockClock) -> None:
    class Away(AskedStore):
        async def trials(self, **options: Any) -> list[StoredTrial]:
            self.asked.append(trio.current_time())
            raise UnavailableError("away")

    store = Away()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(Retention(store, 1).run)
        began = trio.current_time()
        await trio.sleep(12)
        assert [at - began for at in store.asked] == [0, 5, 10]
        nursery.cancel_scope.cancel()


def test_the_number_of_trials_has_a_range() -> None:
    with pytest.raises(ValueError, match="keep_trials: expected 0 to 2147483647, got -1"):
        DatastoreConfig(keep_trials=-1)
