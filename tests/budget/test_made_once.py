"""Large bytes that are made once: for whom, when, and for how long they count."""

from __future__ import annotations

import gc

import pytest
import trio
from trio.testing import MockClock

from trio_cogment.base.config import RpcConfig
from trio_cogment.budget.made_once import Made, MadeOnce
from trio_cogment.budget.memory import memory_of_run

SOURCE = bytes(1000)


async def test_it_is_made_once_for_all_who_want_the_same() -> None:
    once, made, found = MadeOnce(), list[str](), list[Made]()

    async def want(kind: str) -> None:
        def make() -> bytes:
            made.append(kind)
            return kind.encode()

        found.append(await once.get(SOURCE, kind, 2, make))

    async with trio.open_nursery() as nursery:
        for kind in "abba":
            nursery.start_soon(want, kind)
    assert sorted(made) == ["a", "b"]
    assert sorted(each.data for each in found) == [b"a", b"a", b"b", b"b"]
    assert len({id(each) for each in found}) == 2


async def test_other_bytes_with_the_same_content_are_others() -> None:
    once = MadeOnce()
    first = await once.get(SOURCE, "a", 1, lambda: b"one")
    second = await once.get(bytes(bytearray(SOURCE)), "a", 1, lambda: b"two")
    assert (first.data, second.data) == (b"one", b"two")


async def test_it_counts_for_as_long_as_it_is_kept() -> None:
    memory = memory_of_run().messages
    with memory_of_run().lent_by(RpcConfig()):
        once, during = MadeOnce(), list[int]()

        def make() -> bytes:
            during.append(memory.used)
            return bytes(300)

        found = await once.get(SOURCE, "a", 5, make)
        assert during == [5000]
        assert memory.used == 300
        del found
        gc.collect()
        assert not memory.used


async def test_it_waits_for_memory(autojump_clock: MockClock) -> None:
    memory = memory_of_run().messages
    with memory_of_run().lent_by(RpcConfig()):
        once = MadeOnce()
        others = memory.loan()
        others.set(round(memory.total))
        with trio.move_on_after(1) as waiting:
            await once.get(SOURCE, "a", 1, bytes)
        assert waiting.cancelled_caught
        assert memory.used == others.size
        assert not memory.short
        async with trio.open_nursery() as nursery:
            nursery.start_soon(once.get, SOURCE, "a", 1, bytes)
            await trio.testing.wait_all_tasks_blocked()
            others.close()


async def test_what_cannot_be_made_counts_nothing_and_the_next_one_tries_again() -> None:
    memory = memory_of_run().messages
    with memory_of_run().lent_by(RpcConfig()):
        once = MadeOnce()

        def fail() -> bytes:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await once.get(SOURCE, "a", 1, fail)
        assert not memory.used
        assert (await once.get(SOURCE, "a", 1, lambda: b"x")).data == b"x"


async def test_nothing_is_kept_when_nobody_waits_any_more(autojump_clock: MockClock) -> None:
    memory = memory_of_run().messages
    with memory_of_run().lent_by(RpcConfig()):
        once = MadeOnce()
        others = memory.loan()
        others.set(round(memory.total))
        with trio.move_on_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(once.get, SOURCE, "a", 1, bytes)
                nursery.start_soon(once.get, SOURCE, "a", 1, bytes)
        others.close()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(once.get, SOURCE, "a", 1, lambda: bytes(10))
        gc.collect()
        assert not memory.used
