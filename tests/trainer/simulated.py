"""A simulated trainer: workers, controllers, readers and a dispatcher that vanish, repeat and come back.

Workers number their steps, so that each can be looked for at the end. The server is restarted in the middle, on what
it had stored, and the storage fails now and then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from random import Random
from typing import Any

import trio

from tests.trainer.bench import STATUS, Client, steps
from trio_cogment.api.trainer.trainer_pb2 import CancelRunRequest, ControlEvent, RunStep
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import CogmentError, RpcError, StatusCode, UnavailableError
from trio_cogment.rpc import InProcessChannel
from trio_cogment.testing import World
from trio_cogment.trainer import RunOrder, RunSink, Trainer, trainer_services
from trio_cogment.trainer.dispatch.admission import Capacity
from trio_cogment.trainer.dispatch.dispatcher import RunDispatcher, Starter
from trio_cogment.trainer.runs import Cause
from trio_cogment.trainer.storage import Batch, Kind, MemoryDatabase

EXTERNAL = ("ext-0", "ext-1")
STARTED = ("own-0", "own-1", "own-2")
CONFIG = TrainerConfig(
    credit_low=5,
    credit_high=20,
    credit_grace_seconds=0.5,
    heartbeat_timeout_seconds=60,
    registration_timeout_seconds=20,
    commit_rows=8,
    page_rows=4,
    recent_rows=8,
    batch_rate_hz=200,
)


class Disk(MemoryDatabase):
    """Fails now and then."""

    def __init__(self, rng: Random) -> None:
        super().__init__()
        self._rng = rng
        self.sound = False

    def write(self, batch: Batch) -> None:
        if not self.sound and self._rng.random() < 0.03:
            raise UnavailableError("the disk is away")
        super().write(batch)


class Starts(Starter):
    """Runs the workers that the trainer starts: they publish through the sink, and end in one way or another."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        yield

    async def run(self, order: RunOrder, gpus: Sequence[int], sink: RunSink) -> None:
        rng = self._rng
        silent = rng.random() < 0.1
        await sink.starting(order.run_id, gpus, registers=silent or rng.random() < 0.5)
        if silent:
            await trio.sleep_forever()
        await trio.sleep(rng.uniform(0, 3))
        await sink.attach(order.run_id, "own", "simulated")
        for number in range(rng.randrange(60)):
            await sink.publish(order.run_id, RunStep(run_id=order.run_id, step_index=number, worker_id="own"))
            if rng.random() < 0.3:
                await trio.sleep(rng.uniform(0, 2))
        if rng.random() < 0.3:
            await sink.ended(order.run_id, Cause.FAILED, "exit_code_1")
        elif rng.random() < 0.2:
            raise ZeroDivisionError("a bug")
        else:
            await sink.ended(order.run_id, Cause.FINISHED)


class Simulation:
    """One run of it.

    Args:
        world: where.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.disk = Disk(world.stream("disk"))
        self.acknowledged: dict[tuple[str, str], int] = defaultdict(int)
        self.granted: dict[tuple[str, str], int] = defaultdict(int)
        self.read: dict[str, list[int]] = {run_id: [] for run_id in (*EXTERNAL, *STARTED)}
        self.seen: list[int] = []

    async def run(self) -> None:
        """Two servers, one after the other; then everything is ended and looked at."""
        for life in range(2):
            self.granted.clear()
            before = {stored.run.run_id: dict(stored.last) for stored in self.disk.runs()}
            async with self.server(life) as (trainer, client):
                await self.submit(client)
                with trio.move_on_after(self.world.rng.uniform(5, 40)):
                    async with trio.open_nursery() as nursery:
                        for run_id in EXTERNAL:
                            for worker in ("w0", "w1"):
                                nursery.start_soon(self.worker, client, run_id, worker, life)
                        for number in range(2):
                            nursery.start_soon(self.controller, client, number + 2 * life)
                        for run_id in self.read:
                            nursery.start_soon(self.reader, client, run_id)
                        nursery.start_soon(self.watcher, client)
                        nursery.start_soon(self.ledgers, trainer, before)
        self.disk.sound = True
        async with self.server(2) as (_, client):
            await self.finish(client)

    @asynccontextmanager
    async def server(self, life: int) -> AsyncIterator[tuple[Trainer, Client]]:
        host = self.world.host(f"trainer-{life}")
        run_writer, run_reader = host.runner(1), host.runner(1)
        starts = Starts(self.world.stream(f"starts {life}"))
        async with (
            RunDispatcher(Capacity(cpus=2, memory_mb=10_000), workers=starts) as dispatcher,
            Trainer(self.disk, run_writer, run_reader, config=CONFIG, host=host, dispatcher=dispatcher) as trainer,
            InProcessChannel(trainer_services(trainer)) as channel,
        ):
            yield trainer, Client(channel)

    async def submit(self, client: Client) -> None:
        for run_id in (*EXTERNAL, *STARTED):
            entry_point = "external" if run_id in EXTERNAL else "python"
            while True:
                try:
                    schedule = {"when_full": "queue", "class": "interactive" if run_id.endswith("1") else "batch"}
                    await client.submit(run_id, run_name=run_id, entry_point=entry_point, schedule=schedule)
                except RpcError as error:
                    if error.code is StatusCode.ALREADY_EXISTS:
                        break  # it has ended in the life before
                    await trio.sleep(0.1)
                else:
                    break

    async def worker(self, client: Client, run_id: str, worker: str, life: int) -> None:
        """Publish numbered steps; vanish, come back, and send again what was not acknowledged."""
        rng = self.world.stream(f"{run_id} {worker} {life}")
        while True:
            try:
                with trio.move_on_after(rng.uniform(0.1, 8)):
                    token = await client.register(run_id, worker, supports_pause=rng.random() < 0.5)
                    await self.session(client, run_id, worker, token, rng)
            except CogmentError:
                self.world.sometimes("a worker is refused")
            else:
                self.world.sometimes("a worker vanishes")
            await trio.sleep(rng.uniform(0, 2))

    async def session(self, client: Client, run_id: str, worker: str, token: str, rng: Random) -> None:
        async with trio.open_nursery() as nursery:
            if rng.random() < 0.7:
                nursery.start_soon(self.control, client, run_id, worker, token, rng)
            while True:
                mark = self.acknowledged[run_id, worker]
                first = max(0, mark - rng.randrange(4))
                count = rng.randrange(1, 30)
                batch = steps(run_id, count, first=first, worker_id=worker, numbered=True)
                try:
                    reply = await client.publish(batch, token=token)
                except CogmentError as error:
                    self.world.sometimes(f"refused: {type(error).__name__}")
                else:
                    assert reply.accepted + reply.dropped == count
                    self.acknowledged[run_id, worker] = max(mark, first + count)
                await trio.sleep(rng.uniform(0, 0.3))

    async def control(self, client: Client, run_id: str, worker: str, token: str, rng: Random) -> None:
        """Keep a control stream for a while, and another one later."""
        try:
            with trio.move_on_after(rng.uniform(0.1, 5)):
                async with client.control(token) as call:
                    async for event in call:
                        self.granted[run_id, worker] += event.grant_steps
                        if event.pause or event.resume:
                            kind = "pause" if event.pause else "resume"
                            await call.send(ControlEvent(run_id=event.run_id, **{kind: True}))
        except CogmentError:
            self.world.sometimes("a control stream is refused")

    async def controller(self, client: Client, number: int) -> None:
        rng = self.world.stream(f"controller {number}")
        while True:
            await trio.sleep(rng.uniform(0, 3))
            run_id = rng.choice((*EXTERNAL, *STARTED))
            commands: list[dict[str, Any]] = [
                {"pause": True},
                {"resume": True},
                {"resume": True},
                {"max_rate_hz": 5},
                {},
            ]
            command = rng.choice(commands)
            try:
                with trio.move_on_after(rng.uniform(0, 3)):
                    if command:
                        await client.command(run_id, **command)
                    elif rng.random() < 0.2:
                        await client.ask("CancelRun", CancelRunRequest(run_id=run_id))
                        self.world.sometimes("a run is cancelled")
            except CogmentError:
                self.world.sometimes("a command is refused")

    async def reader(self, client: Client, run_id: str) -> None:
        """Read steps, leave, and go on behind the last one."""
        rng = self.world.stream(f"reader {run_id} {len(self.read[run_id])}")
        found = self.read[run_id]
        while True:
            try:
                with trio.move_on_after(rng.uniform(0, 5)):
                    async with client.stream(run_id, since=found[-1] if found else 0) as call:
                        async for step in call:
                            found.append(step.seq_id)
            except CogmentError:
                self.world.sometimes("a reader is refused")
            await trio.sleep(rng.uniform(0.01, 1))

    async def watcher(self, client: Client) -> None:
        """Watch all runs, leave, and go on behind the last change."""
        rng = self.world.stream(f"watcher {len(self.seen)}")
        while True:
            with trio.move_on_after(rng.uniform(0, 5)):
                async with client.watch(self.seen[-1] if self.seen else 1) as call:
                    async for record in call:
                        self.seen.append(record.seq_id)
            await trio.sleep(rng.uniform(0.01, 1))

    async def ledgers(self, trainer: Trainer, before: Mapping[str, Mapping[Kind, int]]) -> None:
        """Look at the accounts, all the time: what a run's workers have used is what was accepted of them.

        Args:
            trainer: which accounts.
            before: how much each run had of each kind when it began.
        """
        while True:
            for entry in trainer.board.all():
                used = 0
                for worker in entry.workers.values():
                    ledger = worker.ledger
                    assert 0 <= ledger.outstanding <= CONFIG.credit_high
                    assert self.granted[entry.run_id, worker.worker_id] <= ledger.granted
                    used += ledger.consumed
                last = before.get(entry.run_id, {})
                assert used == sum(log.accepted - last.get(kind, 0) for kind, log in entry.logs.items())
            await trio.sleep(0.05)

    async def finish(self, client: Client) -> None:
        """End what goes on, and look at everything."""
        for run_id in EXTERNAL:
            await client.cancel(run_id)
        with trio.fail_after(3600):
            while any(STATUS[record.status] != "TERM" for record in await client.runs()):
                for record in await client.runs():
                    if STATUS[record.status] == "PAUSE":
                        await client.command(record.run_id, resume=True)
                await trio.sleep(1)
        for run_id in (*EXTERNAL, *STARTED):
            async with client.stream(run_id) as call:
                stored = [(step.seq_id, step.worker_id, step.step_index) async for step in call]
            assert [seq for seq, _, _ in stored] == list(range(1, len(stored) + 1))
            found = self.read[run_id]
            assert found == list(range(1, len(found) + 1)), "a reader misses nothing, and sees nothing twice"
            assert len(found) <= len(stored)
            if run_id in STARTED:
                # Its worker may have been started again, from the first step on.
                assert all(index in (0, before + 1) for (_, _, before), (_, _, index) in pairwise(stored)), run_id
            for worker in {worker for _, worker, _ in stored} if run_id in EXTERNAL else ():
                indices = [index for _, of, index in stored if of == worker]
                assert indices == list(range(len(indices))), "each step of a worker is there once"
                assert len(indices) >= self.acknowledged[run_id, worker], "what was acknowledged is there"
        assert self.seen == list(range(2, len(self.seen) + 2)), "a watcher misses nothing"
        await self.check_events(client)

    async def check_events(self, client: Client) -> None:
        """The states that were told follow each other as the table has them, and end."""
        states: dict[str, list[str]] = defaultdict(list)
        rows = self.disk.events(after=0, limit=10**6)
        async with client.watch(1) as call:
            while call and rows[-1].seq > (record := await call.receive()).seq_id:
                states[record.run_id].append(STATUS[record.status])
            states[record.run_id].append(STATUS[record.status])
        for run_id, found in states.items():
            assert found[-1] == "TERM", (run_id, found)
            assert found.count("TERM") == 1, (run_id, found)
            last = self.disk.runs()
            assert all(stored.run.outcome is not None for stored in last)


async def simulated(world: World) -> None:
    """Run the simulation."""
    simulation = Simulation(world)
    await simulation.run()
    accepted = sum(stored.last[Kind.STEPS] for stored in simulation.disk.runs())
    if accepted > 100:
        world.sometimes("many steps")
