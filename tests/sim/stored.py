"""A datastore's storages: what is written, closed, opened again and read, which trials are kept, and its clients."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import trio

from tests.models import datastore_clients, trial_store
from tests.models.runs import Run, of_trial_store
from tests.servers.datastore.stores import in_memory, in_sqlite_inline
from tests.servers.datastore.test_model import PROPERTIES, TRIALS, run
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.servers.datastore._memory import MemoryStore
from trio_cogment.servers.datastore._retention import Retention
from trio_cogment.servers.datastore.storage import ROW_BYTES, EndWrite, OutcomeWrite, TrialEnd, Write, WriteKind
from trio_cogment.testing import CallLog, World
from trio_cogment.testing.conformance.trial_store import late, new_trial, sample

BATCHES = 25
SCRIPTS, STEPS = 3, 12
_COUNTED_WRONGLY = f"""
SELECT trial_id, samples_count, counted, bytes, size, raw_bytes, raw FROM (
    SELECT *, (SELECT count(*) FROM samples WHERE trial = number)
            + (SELECT coalesce(sum(samples_count), 0) FROM chunks WHERE trial = number) AS counted,
        (SELECT coalesce(sum(length(data)), 0) FROM samples WHERE trial = number)
            + (SELECT coalesce(sum(raw_bytes), 0) FROM chunks WHERE trial = number) AS raw,
        {ROW_BYTES} + length(CAST(trial_id AS BLOB)) + length(CAST(user_id AS BLOB)) + length(params) + length(outcome)
        + (SELECT coalesce(sum(length(data) + {ROW_BYTES}), 0) FROM samples WHERE trial = number)
        + (SELECT coalesce(sum(min(length(data) + {ROW_BYTES}, raw_bytes + {ROW_BYTES} * samples_count)), 0)
            FROM chunks WHERE trial = number) AS size
    FROM trials
) WHERE samples_count != counted OR bytes != size OR raw_bytes != raw
"""
_STATES = (TrialState.RUNNING, TrialState.RUNNING, TrialState.TERMINATING, TrialState.ENDED)


def draw_write(rng: random.Random) -> Write:
    """Draw a write of any kind."""
    trial_id, tick_id, run_number = rng.choice(TRIALS), rng.randrange(7), rng.randrange(2)
    kind = rng.random()
    if kind < 0.15:
        value = rng.choice(PROPERTIES)
        return new_trial(
            trial_id,
            user_id=rng.choice(["ann", "bob"]),
            logged=rng.random() < 0.5,
            properties={"p": value} if value else {},
            owner=rng.choice(["", "x", "y"]),
        )
    if kind < 0.75:
        how = rng.choice([WriteKind.LOGGED, WriteKind.LOGGED, WriteKind.STORED])
        payload = bytes(rng.choice([0, 30, 3000]))
        return sample(trial_id, tick_id, run=run_number, state=rng.choice(_STATES), kind=how, payload=payload)
    if kind < 0.85:
        return late(trial_id, tick_id, rng.choice([0.5, 1.0, 2.0]))
    if kind < 0.95:
        return EndWrite(trial_id, rng.choice(list(TrialEnd)))
    return OutcomeWrite(trial_id, rng.choice([b"", b"one", b"two"]))


def draw_script(rng: random.Random) -> list[list[Write] | str | None]:
    """Draw batches of writes, of which some come in order, deletions, and when the file is closed and opened again."""
    script: list[list[Write] | str | None] = [[new_trial(trial_id, owner="x") for trial_id in TRIALS]]
    for number in range(BATCHES):
        kind = rng.random()
        if kind < 0.1:
            script.append(rng.choice(TRIALS))
        elif kind < 0.2:
            script.append(None)
        elif kind < 0.4:
            first = 10 * number
            script.append([sample(TRIALS[0], tick_id) for tick_id in range(first, first + rng.randint(1, 6))])
        else:
            script.append([draw_write(rng) for _ in range(rng.randint(1, 12))])
    return script


async def on_a_file(world: World) -> None:
    """Compare a file, and what is in memory, with the model that storages are held to; look into the closed file."""
    script = draw_script(world.rng)
    with TemporaryDirectory() as folder:
        await run(in_sqlite_inline(Path(folder), world.stream("threads")), script)
        check_file(Path(folder))
        await run(in_memory(Path(folder)), [step for step in script if step is not None])


async def few_are_kept(world: World) -> None:
    """Of the trials that have ended this many are kept, those that ended last, whatever else is created and deleted."""
    rng = world.rng
    keep = rng.randint(0, 4)
    store = MemoryStore(1 << 30)
    retention = Retention(store, keep)
    ended: dict[str, None] = {}
    running: set[str] = set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(retention.run)
        for number in range(60):
            trial_id, kind = f"t{rng.randrange(12)}", rng.random()
            if kind < 0.5:
                known = trial_id in ended or trial_id in running
                state = TrialState.ENDED if rng.random() < 0.6 else TrialState.RUNNING
                # A later tick that is not its end opens it again.
                await store.apply([new_trial(trial_id), sample(trial_id, number, state=state)])
                if state == TrialState.ENDED:
                    if trial_id not in ended:
                        ended[trial_id] = None
                    running.discard(trial_id)
                else:
                    ended.pop(trial_id, None)
                    running.add(trial_id)
                world.sometimes("again" if known else "new")
            elif kind < 0.6:
                await store.delete([trial_id])
                retention.forget([trial_id])
                ended.pop(trial_id, None)
                running.discard(trial_id)
            await trio.sleep(2.5)  # a pause, and what was deleted
            while len(ended) > keep:
                del ended[next(iter(ended))]
            found = {trial.trial_id for trial in await store.trials(after=0, limit=100)}
            assert found == running | ended.keys(), f"{sorted(found)} are kept, not {sorted(running | ended.keys())}"
        nursery.cancel_scope.cancel()


def check_file(folder: Path) -> None:
    """What the file of a folder counts is what is there, and nothing is left of trials that were deleted."""
    (path,) = folder.glob("*.db")
    with closing(sqlite3.connect(path)) as connection:
        for wrong, what in (
            (_COUNTED_WRONGLY, "trials count samples and bytes wrongly"),
            ("SELECT number FROM properties WHERE number NOT IN (SELECT number FROM trials)", "properties of no trial"),
            (
                "SELECT trial FROM samples WHERE trial NOT IN (SELECT number FROM trials UNION SELECT number FROM "
                "deleted)",
                "samples of no trial",
            ),
            (
                "SELECT trial FROM chunks WHERE trial NOT IN (SELECT number FROM trials UNION SELECT number FROM "
                "deleted)",
                "chunks of no trial",
            ),
            (
                "SELECT one.position FROM chunks AS one JOIN chunks AS other ON one.trial = other.trial "
                "AND one.position < other.position WHERE one.last_tick >= other.first_tick "
                "OR one.position >= other.first_position",
                "chunks that are not in the order of their ticks and positions",
            ),
            (
                "SELECT samples.position FROM samples JOIN chunks ON samples.trial = chunks.trial "
                "AND samples.position BETWEEN chunks.first_position AND chunks.position",
                "a row within a chunk",
            ),
        ):
            rows = connection.execute(wrong).fetchall()
            assert not rows, f"{what}: {rows}"


async def _clients_on_a_file(world: World) -> CallLog:
    rng = world.stream("scripts")
    scripts = [[datastore_clients.draw(rng) for _ in range(STEPS)] for _ in range(SCRIPTS)]
    with TemporaryDirectory() as folder:
        async with in_sqlite_inline(Path(folder), world.stream("threads"))()() as store:
            return await datastore_clients.in_one_process(world, scripts, faults=False, inner=store)


clients_on_a_file = Run(_clients_on_a_file, trial_store, of_trial_store).judged
