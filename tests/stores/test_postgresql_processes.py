"""Several processes at one PostgreSQL: what they write at once, kills, and a server that goes and comes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio

from tests.servers.datastore.harness import params_with
from tests.stores import s3
from tests.stores.postgresql_server import PostgresqlServer, postgresql_server
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.api.trial_datastore_pb2 import RetrieveSamplesRequest
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import UnavailableError
from trio_cogment.servers.datastore import Datastore, TrialStore, _postgresql_presence, open_store
from trio_cogment.servers.datastore._postgresql import PostgresqlStore
from trio_cogment.servers.datastore.storage import ELSEWHERE, RELEASED, TrialEnd
from trio_cogment.testing.conformance.trial_store import get, late, late_rewards, new_trial, read, sample

pytestmark = [pytest.mark.stores, pytest.mark.postgresql]


@asynccontextmanager
async def writing(address: str, name: str, trials: int, seconds: float) -> AsyncIterator[trio.Process]:
    """Run a process that writes."""
    command = [sys.executable, "-m", "tests.stores.writing_process", address, name, str(trials), str(seconds)]
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(trio.run_process, command, stdout=subprocess.PIPE, check=False)
        )
        try:
            yield process
        finally:
            process.kill()


class Lines:
    """The lines that a process prints, in words."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._rest = b""
        self._lines: list[list[str]] = []

    async def next(self) -> list[str] | None:
        """Return the next one; None: there are no more."""
        assert self._process.stdout is not None
        while not self._lines:
            some = await self._process.stdout.receive_some()
            if not some:
                return None
            *whole, self._rest = (self._rest + some).split(b"\n")
            self._lines += [line.decode().split() for line in whole]
        return self._lines.pop(0)


async def written_by_each(process: trio.Process, trials: int) -> None:
    """Return when each trial of a process has a batch."""
    lines = Lines(process)
    for _ in range(trials):
        assert await lines.next() is not None


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has no session counts as gone soon, however long the server has been up."""
    monkeypatch.setattr(_postgresql_presence, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def server() -> Iterator[PostgresqlServer]:
    """A server of this test's own, which it may stop."""
    with postgresql_server() as server:
        yield server


async def follow(datastore: Datastore, trial_id: str, found: dict[str, list[int]]) -> None:
    """Read a trial from its beginning until it has ended; once it is there, nothing may come between."""
    while not await datastore.store.trials(after=0, limit=1, ids=[trial_id]):  # noqa: ASYNC110  others make it
        await trio.sleep(0.05)
    found[trial_id] = []
    async with datastore.reading(RetrieveSamplesRequest(trial_ids=[trial_id])) as pages:
        async for samples in pages:
            found[trial_id] += [one.tick_id for one in samples]


async def check_two_writers_and_a_reader(address: str, seconds: float) -> None:
    written: dict[str, int] = {}
    found: dict[str, list[int]] = {}

    async def note(process: trio.Process) -> None:
        lines = Lines(process)
        while (line := await lines.next()) is not None:
            what, trial_id, count = line
            assert what in ("written", "ended")
            written[trial_id] = int(count)

    names = [f"{name}-{number}" for name in ("one", "two") for number in range(4)]
    async with open_store(address) as store, Datastore(store) as datastore, trio.open_nursery() as nursery:
        for trial_id in names:
            nursery.start_soon(follow, datastore, trial_id, found)
        async with (
            writing(address, "one", 4, seconds) as one,
            writing(address, "two", 4, seconds) as two,
            trio.open_nursery() as noting,
        ):
            noting.start_soon(note, one)
            noting.start_soon(note, two)
        assert (one.returncode, two.returncode) == (0, 0)
    assert written.keys() == set(names)
    assert all(count > 20 for count in written.values()), written
    for trial_id in names:
        assert found[trial_id] == list(range(written[trial_id])), trial_id


async def test_two_write_and_one_reads(database: str) -> None:
    with trio.fail_after(90):
        await check_two_writers_and_a_reader(database, 2.0)


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_two_write_and_one_reads_for_a_minute(database: str) -> None:
    await check_two_writers_and_a_reader(database, 60.0)


async def wait_for_end(store: TrialStore, trial_id: str) -> TrialEnd:
    async with store.watch(trial_id) as watch:
        while (trial := await get(store, trial_id)).end == TrialEnd.OPEN:
            await watch.changed()
    return trial.end


async def check_killed(database: str) -> None:
    """Of two writers with fifty open trials each one is killed; this process, the third, ends its trials."""
    async with open_store(database) as store, writing(database, "living", 50, 0) as living:
        await written_by_each(living, 50)
        await store.apply([new_trial("own"), sample("own", 0)])
        async with writing(database, "killed", 50, 0) as process:
            await written_by_each(process, 50)
            process.kill()
            await process.wait()
        with trio.fail_after(10):
            for number in range(50):
                assert await wait_for_end(store, f"killed-{number}") == TrialEnd.ABNORMAL
        for number in range(50):
            assert [one.tick_id for one in await read(store, f"killed-{number}")] == list(range(20))
            assert (await get(store, f"living-{number}")).end == TrialEnd.OPEN
        assert await store.open_logged() == ["own"]


@pytest.mark.usefixtures("hasty")
async def test_the_trials_of_who_was_killed_are_ended_by_another(database: str) -> None:
    await check_killed(database)


@pytest.mark.soak
async def test_the_trials_of_who_was_killed_are_ended_with_all_times_as_they_are(server: PostgresqlServer) -> None:
    await trio.sleep(_postgresql_presence.PAUSE_SECONDS + 1)  # the server has just been started
    await check_killed(server.database())


@pytest.mark.usefixtures("hasty")
async def test_a_trial_whose_data_log_came_to_another_goes_on(database: str) -> None:
    async with open_store(database) as store:
        async with writing(database, "killed", 2, 0) as process:
            await written_by_each(process, 2)
            await store.apply([new_trial("killed-0"), sample("killed-0", 20)])
            process.kill()
            await process.wait()
        with trio.fail_after(20):
            assert await wait_for_end(store, "killed-1") == TrialEnd.ABNORMAL
        assert (await get(store, "killed-0")).end == TrialEnd.OPEN


@pytest.mark.usefixtures("hasty")
async def test_trials_of_orchestrators_elsewhere_outlive_their_datastore(database: str) -> None:
    """Another one tells their own orchestrator of them at once, and any other one when their lease is over."""
    own, other = "grpc://own:9000", "grpc://other:9000"
    config = DatastoreConfig(abandoned_after_seconds=4)
    async with open_store(database) as store, Datastore(store, config=config) as datastore:

        async def told(endpoint: str) -> float:
            while not await datastore.left_open(endpoint, elsewhere=True):  # noqa: ASYNC110  another process does it
                await trio.sleep(0.02)
            return trio.current_time()

        async with open_store(database) as gone:
            await gone.apply([new_trial("t", endpoint=ELSEWHERE + own, attempt=1), new_trial("here", attempt=1)])
        with trio.fail_after(40):
            begun = await told(own)
            assert (await get(store, "t")).endpoint == ELSEWHERE + own
            assert await told(other) >= begun + 3
        trial = await get(store, "t")
        assert (trial.end, trial.endpoint, trial.attempt) == (TrialEnd.OPEN, RELEASED, 1)
        async with open_store(database) as third:  # that one is told, too
            assert await third.open_logged() == ["t"]
        assert (await get(store, "here")).end is TrialEnd.ABNORMAL


@pytest.mark.usefixtures("hasty")
async def test_a_trial_that_another_datastore_has_by_now_is_not_released(database: str) -> None:
    config = DatastoreConfig(abandoned_after_seconds=0.5)
    async with open_store(database) as store, open_store(database) as other, Datastore(store, config=config) as before:
        async with before.sink(endpoint=ELSEWHERE + "grpc://own:9000").counted(0).open("t", "me", params_with("ann")):
            pass
        await other.apply([new_trial("t", endpoint=ELSEWHERE + "grpc://own:9000", attempt=1)])
        await trio.sleep(2)
        trial = await get(store, "t")
        assert (trial.end, trial.endpoint) == (TrialEnd.OPEN, ELSEWHERE + "grpc://own:9000")


async def test_after_a_restart_nobody_who_lives_counts_as_gone(
    server: PostgresqlServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_postgresql_presence, "PAUSE_SECONDS", 6.0)
    monkeypatch.setattr(_postgresql_presence, "GONE_SECONDS", 0.0)
    database = server.database()
    async with open_store(database) as one, open_store(database) as other:
        assert isinstance(one, PostgresqlStore)
        assert isinstance(other, PostgresqlStore)
        await one.apply([new_trial("one")])
        await other.apply([new_trial("other")])
        numbers = one.presence.number, other.presence.number
        await trio.to_thread.run_sync(server.stop, "immediate")
        await trio.to_thread.run_sync(server.start)
        await one.apply([sample("one", 0)])
        await other.apply([sample("other", 0)])
        assert (one.presence.number, other.presence.number) == numbers
        await trio.sleep(7)  # the pause, and a look
        assert [(await get(store, name)).end for store, name in ((one, "other"), (other, "one"))] == [0, 0]


async def check_server_away(server: PostgresqlServer, seconds: float) -> None:
    """Sixteen trials go on while the server is away; what was acknowledged is there, once."""
    database, trials, ticks = server.database(), 16, 100
    acknowledged = dict.fromkeys(range(trials), 0)

    async def write(store: TrialStore, number: int) -> None:
        trial_id, tick = f"{number}", 0
        writes = [new_trial(trial_id)]
        while tick <= ticks:
            try:
                assert await store.apply([*writes, sample(trial_id, tick)]) == {}
            except UnavailableError:
                await trio.sleep(0.1)
                continue
            writes = []
            acknowledged[number] = tick = tick + 1
            await trio.sleep(0.005)
        while True:
            try:
                await store.apply([sample(trial_id, tick, state=TrialState.ENDED)])
            except UnavailableError:
                continue
            return

    async with open_store(database) as store:
        async with trio.open_nursery() as nursery:
            for number in range(trials):
                nursery.start_soon(write, store, number)
            while min(acknowledged.values()) < 20:  # noqa: ASYNC110  sixteen of them
                await trio.sleep(0.01)
            await trio.to_thread.run_sync(server.stop, "immediate")
            await trio.sleep(seconds)
            await trio.to_thread.run_sync(server.start)
        for number in range(trials):
            assert [one.tick_id for one in await read(store, f"{number}")] == list(range(ticks + 2))
            assert (await get(store, f"{number}")).end == TrialEnd.ENDED


@pytest.mark.parametrize("seconds", [0.5, 7.0])
async def test_the_server_crashes_and_comes_back(server: PostgresqlServer, seconds: float) -> None:
    with trio.fail_after(100):
        await check_server_away(server, seconds)


@pytest.mark.parametrize("answers", [False, True], ids=["questions", "answers"])
@pytest.mark.parametrize("cuts", [8, pytest.param(400, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_a_batch_is_done_once_at_whatever_byte_its_connection_breaks(
    postgresql: PostgresqlServer, database: str, answers: bool, cuts: int
) -> None:
    """In what is sent, and in what comes back: then it was committed, or was not."""
    gate = s3.Gate(postgresql.port)
    gate.open()
    try:
        async with open_store(database.replace(f"127.0.0.1:{postgresql.port}", gate.address)) as store:
            assert await store.apply([new_trial("a"), sample("a", 0)]) == {}
            assert await store.apply([sample("a", 1), late("a", 0, 0.5)]) == {}
            before = gate.passed, gate.answered
            assert await store.apply([sample("a", 2), late("a", 1, 0.5)]) == {}
            size = gate.answered - before[1] if answers else gate.passed - before[0]
            assert size > 20
            gate.cuts_answers = answers
            broken = 0
            for number in range(cuts):
                gate.cut = 1 + size * number // cuts
                tick = number + 3
                assert await store.apply([sample("a", tick), late("a", tick - 1, 0.5)]) == {}
                broken += gate.cut is None
                gate.cut = None
            # The measured batch had some of what goes on beside it.
            assert broken > cuts // 2
        async with open_store(database) as store:
            found = await read(store, "a")
            assert [one.tick_id for one in found] == list(range(cuts + 3))
            assert all(late_rewards(one) == [0.5] for one in found[:-1])
    finally:
        gate.close()


async def test_late_samples_from_two(database: str) -> None:
    """A batch that changes what another process has written finds it as it is."""
    async with open_store(database) as one, open_store(database) as other:
        await one.apply([new_trial("a"), *(sample("a", tick) for tick in range(10))])

        async def correct(store: TrialStore, rewards: list[float]) -> None:
            for reward in rewards:
                await store.apply([late("a", 3, reward)])

        async with trio.open_nursery() as nursery:
            nursery.start_soon(correct, one, [0.5 * number for number in range(1, 11)])
            nursery.start_soon(correct, other, [0.5 * number for number in range(11, 21)])
        found = await read(one, "a")
        assert sorted(late_rewards(found[3])) == [0.5 * number for number in range(1, 21)]
