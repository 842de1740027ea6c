"""Several platforms in one process: one is cancelled, the other is untouched, and nothing is left of either."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import trio

from tests.sync.players import descriptors, threads
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import Channel, open_listeners, serve
from trio_cogment.sdk import (
    ActorSession,
    Controller,
    DatastoreClient,
    EnvironmentSession,
    Participants,
    actor_params,
    serve_participants,
    trial_params,
)

PATIENCE_SECONDS = 60


def tasks() -> set[trio.lowlevel.Task]:
    """Return all tasks of this run."""
    found: set[trio.lowlevel.Task] = set()
    task = trio.lowlevel.current_root_task()
    waiting = [] if task is None else [task]
    while waiting:
        task = waiting.pop()
        found.add(task)
        waiting.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
    return found


async def endless(session: EnvironmentSession) -> None:
    await session.start([("*", b"on")])
    async for event in session.all_events():
        if event.actions is not None:
            await session.produce_observations([("*", b"on")])


async def echo(session: ActorSession) -> None:
    async for event in session.all_events():
        if event.observation is not None:
            await session.do_action(b"")


class Program:
    """A platform with a store in a file, served on a socket, with participants on another one, and a running trial."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.store = f"sqlite:{folder}/{name}.db"
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self.port = 0
        self.trial_id = ""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        participants = Participants()
        participants.register_environment(endless)
        participants.register_actor(echo, "echo")
        try:
            with self.scope:
                async with trio.open_nursery() as nursery, open_platform(store=self.store) as platform:
                    served = await nursery.start(partial(serve_participants, participants, address="127.0.0.1"))
                    listeners = await open_listeners("127.0.0.1")
                    serving = await nursery.start(serve, platform.services, listeners)
                    self.port = serving.port
                    await self._start_trial(platform, served.port)
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            self.ended.set()

    async def _start_trial(self, platform: Platform, port: int) -> None:
        there = f"grpc://127.0.0.1:{port}"
        params = trial_params(
            [actor_params("ann", "c", endpoint=there)],
            environment_endpoint=there,
            datalog_endpoint="cogment://discover",
        )
        self.trial_id = await platform.controller.start_trial(params, trial_id=self.name)

    async def tick(self) -> int:
        """Return the trial's tick, as a client over the network sees it."""
        async with Channel("127.0.0.1", self.port) as channel:
            (info,) = await Controller(channel).trial_infos([self.trial_id])
            assert info.state == TrialState.RUNNING
            return info.tick_id

    async def wait_beyond(self, tick: int) -> int:
        async with Channel("127.0.0.1", self.port) as channel:
            store = DatastoreClient(channel)
            async with store.samples(self.trial_id, follow=True) as samples:
                async for sample in samples:
                    if sample.tick_id > tick:
                        return sample.tick_id
        raise AssertionError("the trial has ended")


@pytest.mark.usefixtures("quiet")
async def test_one_is_cancelled_and_the_other_goes_on(tmp_path: Path) -> None:
    await trio.to_thread.run_sync(int)
    open_before, threads_before, tasks_before = descriptors(), threads(), tasks()
    with trio.fail_after(PATIENCE_SECONDS):
        async with trio.open_nursery() as nursery:
            first, second = Program(tmp_path, "first"), Program(tmp_path, "second")
            await nursery.start(first.run)
            await first.wait_beyond(3)
            of_one = descriptors()
            await nursery.start(second.run)
            await second.wait_beyond(3)
            first.scope.cancel()
            await first.ended.wait()
            assert not any("/first.db" in descriptor for descriptor in descriptors())
            assert len(descriptors()) <= len(of_one)
            # Its trial has its ticks, its store takes them, its sockets answer.
            tick = await second.tick()
            await second.wait_beyond(tick + 3)
            second.scope.cancel()
    assert tasks() == tasks_before
    assert descriptors() == open_before
    assert threads() == threads_before


@pytest.mark.usefixtures("quiet")
async def test_two_at_a_time_again_and_again(tmp_path: Path) -> None:
    """Nothing piles up."""
    counts = []
    with trio.fail_after(PATIENCE_SECONDS):
        for number in range(5):
            async with trio.open_nursery() as nursery:
                programs = [Program(tmp_path, f"{number}{name}") for name in "ab"]
                for program in programs:
                    await nursery.start(program.run)
                for program in programs:
                    await program.wait_beyond(1)
                nursery.cancel_scope.cancel()
            counts.append((len(tasks()), len(descriptors()), len(threads())))
    assert len(set(counts)) == 1, counts
