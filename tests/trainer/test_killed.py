"""A server that is killed under load: what it had accepted is there once, and whoever comes back misses nothing."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest
import trio

from tests.cli.process import PATIENCE_SECONDS, Server, server
from tests.trainer.bench import STATUS, Client, steps
from tests.trainer.dispatch.programs import program, until
from trio_cogment.api.trainer.trainer_pb2 import RunRecord
from trio_cogment.base.errors import CogmentError
from trio_cogment.rpc import Channel

RUNS = ("a", "b", "c")
BATCH = 25
WORKER = 'import time\nwhile True: print(\'{"type": "step"}\'); time.sleep(0.001)'


class Publisher:
    """Publishes numbered steps of one run, over any number of servers."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.acknowledged = 0
        self.sent = 0
        self.busy = trio.Event()

    async def publish(self, client: Client) -> None:
        """Publish until the server has gone; what it did not acknowledge is sent again."""
        try:
            await client.register(self.run_id)
            while True:
                # Some of it was acknowledged before: it must not be there twice.
                first = max(0, self.acknowledged - 5)
                batch = steps(self.run_id, BATCH, first=first, numbered=True)
                self.sent = max(self.sent, first + BATCH)
                reply = await client.publish(batch)
                assert reply.accepted + reply.dropped == BATCH
                self.acknowledged = first + BATCH
                self.busy.set()
        except CogmentError:
            pass


class Watcher:
    """Watches all runs, over any number of servers."""

    def __init__(self) -> None:
        self.records: list[RunRecord] = []
        self.since = 1
        self.more = trio.lowlevel.ParkingLot()

    async def watch(self, client: Client) -> None:
        try:
            async with client.watch(self.since) as call:
                async for record in call:
                    self.records.append(record)
                    self.since = record.seq_id
                    self.more.unpark_all()
        except CogmentError:
            pass

    def check(self) -> None:
        """Check that every change was seen once, but the first."""
        assert [record.seq_id for record in self.records] == list(range(2, len(self.records) + 2))


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[tuple[Server, Client]]:
    arguments = ("services", "trainer", "--port=0", f"--folder={folder}", "--log_level=error")
    async with server(*arguments) as found, Channel("127.0.0.1", found.port) as channel:
        yield found, Client(channel)


@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_kill_9_under_load(tmp_path: Path, kills: int) -> None:
    rng = Random(kills)
    publishers = [Publisher(run_id) for run_id in RUNS]
    watcher = Watcher()
    read: dict[str, list[int]] = {run_id: [] for run_id in RUNS}
    for kill in range(kills):
        with trio.fail_after(PATIENCE_SECONDS):
            async with running(tmp_path) as (process, client):
                for run_id in RUNS if kill == 0 else ():
                    await client.submit(run_id, run_name=run_id)
                await check_states(client, kill)
                await client.submit(f"worker-{kill}", **program(WORKER, run_name=str(kill)))
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watcher.watch, client)
                    for publisher in publishers:
                        publisher.busy = trio.Event()
                        nursery.start_soon(publisher.publish, client)
                        nursery.start_soon(read_on, client, publisher.run_id, read[publisher.run_id])
                    for publisher in publishers:
                        await publisher.busy.wait()
                    await until(client, f"worker-{kill}", "EXEC")
                    await trio.sleep(rng.uniform(0, 0.2))
                    assert await process.stop(signal.SIGKILL) == -signal.SIGKILL
    with trio.fail_after(PATIENCE_SECONDS):
        async with running(tmp_path) as (process, client):
            await check_states(client, kills)
            for publisher in publishers:
                await client.cancel(publisher.run_id)
                async with client.stream(publisher.run_id) as call:
                    found = [(step.seq_id, step.step_index) async for step in call]
                assert [seq for seq, _ in found] == list(range(1, len(found) + 1))
                assert [index for _, index in found] == list(range(len(found))), "each once, and in order"
                assert publisher.acknowledged <= len(found) <= publisher.sent
                await read_on(client, publisher.run_id, read[publisher.run_id])
                assert read[publisher.run_id] == list(range(1, len(found) + 1)), "a reader that came back"
            with trio.move_on_after(PATIENCE_SECONDS) as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(watcher.watch, client)
                    await all_ended(watcher, len(RUNS) + kills)
                    nursery.cancel_scope.cancel()
            assert not scope.cancelled_caught
            watcher.check()
            assert await process.stop() == 0


async def read_on(client: Client, run_id: str, found: list[int]) -> None:
    """Read the steps of a run from where the last reader was."""
    try:
        async with client.stream(run_id, since=found[-1] if found else 0) as call:
            async for step in call:
                found.append(step.seq_id)
    except CogmentError:
        pass


async def all_ended(watcher: Watcher, runs: int) -> None:
    while len({record.run_id for record in watcher.records if STATUS[record.status] == "TERM"}) < runs:
        await watcher.more.park()


async def check_states(client: Client, kills: int) -> None:
    """Check what a restart has made of the runs: external ones go on, those with a worker have ended."""
    for kill in range(kills):
        await until(client, f"worker-{kill}", "TERM")
    for record in await client.runs():
        if record.run_id in RUNS:
            assert STATUS[record.status] in (("INIT",) if kills == 0 else ("RDY", "EXEC"))
        else:
            assert record.failure_reason == "daemon restarted"
