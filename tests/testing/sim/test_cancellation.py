"""`cancel_at_every_step`: good code passes, and each sort of bad code is found."""

from __future__ import annotations

import itertools
import os
from collections.abc import Awaitable, Callable

import pytest
import trio

from trio_cogment.testing import (
    CancellationError,
    CancelledBlock,
    DeadlockError,
    LivelockError,
    NondeterminismError,
    World,
    cancel_at_every_step,
    simulate,
)


async def some_steps(_world: World, block: CancelledBlock) -> None:
    with block:
        for _ in range(5):
            await trio.sleep(1)


def test_every_step_is_cancelled_once() -> None:
    ends: list[float] = []

    async def scenario(_world: World, block: CancelledBlock) -> None:
        with block:
            try:
                for _ in range(5):
                    await trio.sleep(1)
            finally:
                with trio.CancelScope(shield=True, deadline=trio.current_time() + 2):
                    await trio.sleep(1.5)
                ends.append(trio.current_time())

    result = cancel_at_every_step(1, scenario)
    # Its first run is not cancelled. Who is about to take a step has had its wait: it feels the next one.
    assert ends == [6.5, 2.5, 3.5, 4.5, 5.5, 6.5, 6.5]
    assert (result.steps, result.tried) == (6, [0, 1, 2, 3, 4, 5])
    assert result.slowest_seconds == 1.5


def test_steps_can_be_chosen() -> None:
    assert cancel_at_every_step(1, some_steps, steps=itertools.count(1, 2)).tried == [1, 3]
    assert cancel_at_every_step(1, some_steps, steps=[4]).tried == [4]
    with pytest.raises(ValueError, match="steps: expected some from 0 to 4"):
        cancel_at_every_step(1, some_steps, steps=[5])


def test_arguments_go_through() -> None:
    async def scenario(world: World, block: CancelledBlock, name: str) -> None:
        with block:
            assert (world.seed, name) == (7, "x")
            await trio.sleep(1)

    assert cancel_at_every_step(7, scenario, "x").tried == [0]


async def swallows(_world: World, block: CancelledBlock) -> None:
    with block:
        try:
            await trio.sleep(1)
        except trio.Cancelled:
            raise KeyError("not what it was") from None


async def fails_as_pytest_does(_world: World, block: CancelledBlock) -> None:
    async with trio.open_nursery() as nursery:
        with block:
            nursery.start_soon(trio.sleep, 1)
            await trio.sleep(1)
        if block.cancelled:
            pytest.fail("as it should")


async def leaves_a_task(_world: World, block: CancelledBlock) -> None:
    with block:
        trio.lowlevel.spawn_system_task(trio.sleep, 1000, name="forgotten")
        await trio.sleep(1)


async def leaves_a_task_elsewhere(_world: World, block: CancelledBlock) -> None:
    async with trio.open_nursery() as nursery:
        with block:
            nursery.start_soon(trio.sleep, 1000, name="forgotten")
            await trio.sleep(1)
        await trio.sleep(10)


async def leaves_a_descriptor(_world: World, block: CancelledBlock) -> None:
    with block:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        OPENED.append(descriptor)
        await trio.sleep(1)
        os.close(descriptor)


async def leaves_a_port(world: World, block: CancelledBlock) -> None:
    with block:
        listener = world.network.host("here").listen(9000)
        await trio.sleep(1)
        await listener.aclose()


async def leaves_a_connection(world: World, block: CancelledBlock) -> None:
    listener = world.network.host("there").listen(9000)
    with block:
        stream = await world.network.connect("here", "there", 9000)
        await trio.sleep(1)
        await stream.aclose()
    await listener.aclose()


async def takes_long(_world: World, block: CancelledBlock) -> None:
    with block:
        try:
            await trio.sleep(1)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 60):
                await trio.sleep(5)


async def relies_on_a_peer(_world: World, block: CancelledBlock) -> None:
    answered = trio.Event()

    async def peer() -> None:
        await trio.sleep(2)
        answered.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer)
        with block:
            try:
                await trio.sleep(1)
            finally:
                with trio.CancelScope(shield=True):
                    await answered.wait()


OPENED: list[int] = []
BAD: list[tuple[Callable[[World, CancelledBlock], Awaitable[None]], type[BaseException], str]] = [
    (swallows, KeyError, "not what it was"),
    (fails_as_pytest_does, BaseExceptionGroup, "from Trio nursery"),
    (leaves_a_task, CancellationError, "tasks that were started in it still run: forgotten"),
    (leaves_a_task_elsewhere, CancellationError, "tasks that were started in it still run: forgotten"),
    (leaves_a_descriptor, CancellationError, "descriptors are still open: .*/dev/null"),
    (leaves_a_port, CancellationError, "left open in the simulated network: port here:9000"),
    (leaves_a_connection, CancellationError, "left open in the simulated network: connection here>there:9000"),
    (takes_long, CancellationError, "it took 5 s to end, more than 3 s"),
    (relies_on_a_peer, CancellationError, "left in shields without any deadline: .*main"),
]


@pytest.mark.parametrize(("scenario", "kind", "text"), BAD, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_wrong_is_found(
    scenario: Callable[[World, CancelledBlock], Awaitable[None]], kind: type[BaseException], text: str
) -> None:
    try:
        with pytest.raises(kind, match=text) as caught:
            # Without being cancelled, each of them is in order, but for those that forget a task in any case.
            cancel_at_every_step(1, scenario)
    finally:
        while OPENED:
            try:
                os.close(OPENED.pop())
            except OSError:
                pass  # closed, where it was not cancelled
    notes = "\n".join(caught.value.__notes__)
    assert "simulated with seed 1" in notes
    if "a_task" not in scenario.__name__:
        assert f"{scenario.__name__} was cancelled before step " in notes


def test_a_shield_for_ever_does_not_hang_the_test() -> None:
    async def scenario(_world: World, block: CancelledBlock) -> None:
        with block:
            try:
                await trio.sleep(1)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep_forever()

    with pytest.raises(DeadlockError, match="everybody waits"):
        cancel_at_every_step(1, scenario)


def test_a_shield_that_goes_round_does_not_hang_the_test() -> None:
    async def scenario(_world: World) -> None:
        with trio.CancelScope(shield=True):
            while True:
                await trio.lowlevel.checkpoint()

    with pytest.raises(LivelockError, match="1000 steps"):
        simulate(1, scenario, budget=1000)


def test_the_block_is_entered_once() -> None:
    async def never(_world: World, _block: CancelledBlock) -> None:
        await trio.sleep(1)

    async def twice(_world: World, block: CancelledBlock) -> None:
        for _ in range(2):
            with block:
                await trio.sleep(1)

    with pytest.raises(ValueError, match="never entered"):
        cancel_at_every_step(1, never)
    with pytest.raises(RuntimeError, match="enters it once"):
        cancel_at_every_step(1, twice)


def test_runs_that_differ_are_told() -> None:
    runs = itertools.count()

    async def scenario(_world: World, block: CancelledBlock) -> None:
        with block:
            for _ in range(3 if next(runs) == 0 else 1):
                await trio.sleep(1)

    with pytest.raises(NondeterminismError, match="only 1 steps"):
        cancel_at_every_step(1, scenario)
