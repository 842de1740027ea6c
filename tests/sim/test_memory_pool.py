"""The memory that connections borrow, under faults: borrowers come and go, everything returns, and nobody starves.

Hogs ask for large answers and read few of them, or none, and leave in the middle; others open and drop calls with large
messages; links break, and are partitioned. All the time honest clients get their answers, large ones as well.
"""

from __future__ import annotations

import random
from functools import partial

import pytest
import trio

from trio_cogment.api.common_pb2 import Action, Observation
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import RpcError, StatusCode
from trio_cogment.budget.memory import ConnectionMemory, memory_of_run
from trio_cogment.rpc import Channel, serve
from trio_cogment.testing import World, check_determinism
from trio_cogment.testing.conformance.channel import ECHO, ECHO_ONE, CheckService
from trio_cogment.testing.pytest_plugin import Sim

PORT = 9000
TOTAL = 2**20
CONFIG = RpcConfig(server_memory_bytes=TOTAL, max_receive_message_bytes=2**16, keepalive_seconds=5)
HOGS = 12
HONEST = 3
ANSWERS = 12
#: As long as a reader may read nothing while others wait, and some time for those before it in the queue.
PATIENCE_SECONDS = 60.0
#: How a hog's call may end, besides by its own will.
GIVEN_UP = {StatusCode.UNAVAILABLE, StatusCode.RESOURCE_EXHAUSTED, StatusCode.CANCELLED}


def is_bounded(memory: ConnectionMemory) -> bool:
    # What is on its way already counts whether there is room or not, a message for each connection.
    return memory.messages.used <= TOTAL * 1.25 and memory.windows.used <= TOTAL / 2


async def hog(world: World, channel: Channel, rng: random.Random) -> None:
    """Send large messages over several calls, and read some of the answers before leaving."""

    async def call_once(size: int, messages: int) -> None:
        try:
            async with channel.call(ECHO) as call:
                for _ in range(messages):
                    await call.send(Action(content=bytes(size)))
                    if rng.random() < 0.1:
                        await call.receive()
                await trio.sleep(rng.uniform(0, 5))
        except RpcError as error:
            if error.code not in GIVEN_UP:
                raise
            if "server_memory_bytes" in error.message:
                world.sometimes("given up")

    for _ in range(4):
        with trio.move_on_after(rng.uniform(0.1, 30)) as scope:
            async with trio.open_nursery() as nursery:
                for _ in range(rng.randrange(1, 12)):
                    nursery.start_soon(call_once, rng.choice([100, 10_000, 60_000]), rng.randrange(1, 40))
        if scope.cancelled_caught:
            world.sometimes("left")


async def be_honest(world: World, channel: Channel, rng: random.Random) -> None:
    """Read every answer, each within `PATIENCE_SECONDS`."""
    for number in range(ANSWERS):
        size = rng.choice([10, 9_000, 60_000])
        with trio.fail_after(PATIENCE_SECONDS):
            reply: Observation = await channel.unary(ECHO_ONE, Action(tick_id=number, content=bytes(size)))
        assert (reply.tick_id, len(reply.content)) == (number, size)
        if memory_of_run().messages.short:
            world.sometimes("answered while others wait")
        await trio.sleep(rng.uniform(0, 3))


async def crowd(world: World) -> None:
    memory = memory_of_run()

    async def run_hog(number: int) -> None:
        name = f"hog{number}"
        for _ in range(2):
            async with world.network.host(name).channel("server", PORT, config=CONFIG) as channel:
                await hog(world, channel, world.stream(name))

    async def run_honest(number: int) -> None:
        name = f"honest{number}"
        async with world.network.host(name).channel("server", PORT, config=CONFIG) as channel:
            await be_honest(world, channel, world.stream(name))

    async def break_links() -> None:
        rng = world.stream("faults")
        while True:
            await trio.sleep(rng.uniform(0.5, 5))
            name = f"hog{rng.randrange(HOGS)}"
            if rng.random() < 0.5:
                for connection in world.network.connections(name):
                    connection.reset()
            else:
                world.network.partition([name])
                await trio.sleep(rng.uniform(0.1, 20))
                world.network.heal([name])

    async def check() -> None:
        while True:
            assert is_bounded(memory), (memory.messages.used, memory.windows.used)
            await trio.sleep(0.05)

    async with trio.open_nursery() as nursery:
        listener = world.network.host("server").listen(PORT)
        await nursery.start(partial(serve, [CheckService().service()], [listener], config=CONFIG))
        async with trio.open_nursery() as watching:
            watching.start_soon(break_links)
            watching.start_soon(check)
            async with trio.open_nursery() as clients:
                for number in range(HOGS):
                    clients.start_soon(run_hog, number)
                for number in range(HONEST):
                    clients.start_soon(run_honest, number)
            watching.cancel_scope.cancel()
        world.network.heal()
        # A client that has vanished in a partition is noticed by its silence.
        with trio.fail_after(60):
            while memory.messages.used or memory.windows.used:  # noqa: ASYNC110  virtual time is free
                await trio.sleep(0.5)
        assert not memory.messages.short
        nursery.cancel_scope.cancel()


@pytest.mark.sim(seeds=3)
def test_memory_returns_and_nobody_starves(sim: Sim) -> None:
    sim(crowd)


def test_what_is_to_happen_does_happen() -> None:
    from trio_cogment.testing import simulate

    missing = {"left", "given up", "answered while others wait"}
    for seed in range(1000, 1004):
        missing -= simulate(seed, crowd).counters.keys()
        if not missing:
            return
    assert not missing


def test_a_seed_runs_the_same_twice() -> None:
    check_determinism(7, crowd)
