"""A calm server gives memory back; one that works, or has nothing to give, is left alone."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import trio
import trio.testing

from trio_cogment.cli.services.idle_memory import Tidying

MIB = 2**20

PROGRAM = """
import sys
from trio_cogment.cli.services.idle_memory import GlibcHeap, Tidying

heap = GlibcHeap()
tidying = Tidying(heap)
before = heap.resident()
# Small enough for the heap, and the last one keeps it from shrinking by itself.
held = [bytearray(4000) for _ in range(20_000)]
last = bytearray(4000)
assert heap.resident() - before > 60_000_000
held.clear()
tidying.tidy()
assert heap.resident() - before < 20_000_000, heap.resident() - before

class Node:
    pass

collected = []
import gc
gc.disable()
gc.callbacks.append(lambda phase, info: collected.append(info["generation"]))
tidying = Tidying(heap)
for _ in range(30_000):
    node = Node()
    node.self = node
for _ in range(20):
    tidying.look()
    tidying.tidy()
assert collected.count(2) == 4, collected  # each has two phases
collected.clear()
tidying.tidy()
assert not collected
"""


class FakeHeap:
    """A heap that does as it is told."""

    def __init__(self) -> None:
        self.now_resident = self.now_used = 100 * MIB
        self.trims = 0

    def resident(self) -> int:
        return self.now_resident

    def used(self) -> int:
        return self.now_used

    def trim(self) -> None:
        self.trims += 1


class Process:
    """What is known of the process; collecting and trimming take as long as they are told to."""

    def __init__(self) -> None:
        self.heap = FakeHeap()
        self.busy = 0.0
        self.blocks = 100_000
        self.collected: list[float] = []
        self.collecting_takes = 0.0
        self.tidying = Tidying(
            self.heap, busy_seconds=lambda: self.busy, blocks=lambda: self.blocks, collect=self.collect
        )

    def collect(self) -> None:
        self.collected.append(trio.current_time())
        self.busy += self.collecting_takes


def test_it_is_trimmed_when_it_has_grown_or_become_free() -> None:
    process = Process()
    heap = process.heap
    process.tidying.tidy()
    assert heap.trims == 0
    heap.now_resident += 9 * MIB
    process.tidying.tidy()
    process.tidying.tidy()
    assert heap.trims == 1
    heap.now_used -= 9 * MIB  # what was freed is still resident
    process.tidying.tidy()
    process.tidying.tidy()
    assert heap.trims == 2


async def test_the_heap_is_not_trimmed_in_the_same_breath() -> None:
    process = Process()
    process.blocks -= 50_000
    process.heap.now_resident += 9 * MIB
    process.tidying.tidy()
    assert (len(process.collected), process.heap.trims) == (1, 0)
    process.tidying.tidy()
    assert (len(process.collected), process.heap.trims) == (1, 1)


async def test_everything_is_collected_when_many_objects_have_gone_and_once_more(
    autojump_clock: trio.testing.MockClock,
) -> None:
    process = Process()
    tidying = process.tidying
    tidying.tidy()
    assert process.collected == []
    for number in range(2):
        process.blocks += 25_000
        tidying.look()
        tidying.tidy()
        assert len(process.collected) == 2 * number  # a crowd that is there has left nothing
        process.blocks -= 25_000
        tidying.look()
        tidying.tidy()
        tidying.tidy()
        assert len(process.collected) == 2 * number + 1
        for _ in range(10):  # those who were leaving have left by now
            tidying.look()
            tidying.tidy()
        assert len(process.collected) == 2 * number + 2


async def test_what_has_come_and_stays_is_looked_through_later(autojump_clock: trio.testing.MockClock) -> None:
    process = Process()
    tidying = process.tidying
    process.blocks += 25_000
    for _ in range(14):
        tidying.look()
        tidying.tidy()
    assert process.collected == []
    process.blocks -= 10_000
    tidying.look()  # it has not stayed
    process.blocks += 10_000
    for _ in range(14):
        tidying.look()
        tidying.tidy()
    assert process.collected == []
    tidying.look()
    tidying.tidy()
    assert len(process.collected) == 1


async def test_a_busy_process_is_left_alone(autojump_clock: trio.testing.MockClock) -> None:
    process = Process()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.tidying.run)
        for _ in range(100):
            process.blocks -= 1000
            await trio.sleep(0.1)
            process.busy += 0.08
        assert process.collected == []
        await trio.sleep(20)
        assert len(process.collected) == 2
        nursery.cancel_scope.cancel()


async def test_it_rests_for_longer_than_it_took(autojump_clock: trio.testing.MockClock) -> None:
    process = Process()
    process.collecting_takes = 0.1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(process.tidying.run)
        process.blocks += 10_000_000
        for _ in range(200):
            process.blocks -= 30_000
            await trio.sleep(0.1)
        nursery.cancel_scope.cancel()
    pauses = [later - earlier for earlier, later in zip(process.collected, process.collected[1:], strict=False)]
    assert pauses
    assert min(pauses) >= 1.4


def test_memory_of_this_library_is_given_back() -> None:
    if hasattr(ctypes.CDLL(None), "mallinfo2"):
        subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
    else:
        from trio_cogment.cli.services.idle_memory import heap_of_process

        assert heap_of_process() is None
