"""Garbage collection in a run: its times, and what is collected."""

from __future__ import annotations

import gc
import weakref
from collections.abc import AsyncIterator, Iterator

import pytest
import trio

from trio_cogment.testing import World, check_determinism, simulate
from trio_cogment.testing.sim import simulate as _garbage


class Thing:
    """Something in a cycle, that a weak reference can tell of."""

    def __init__(self) -> None:
        self.itself = self


async def leaves_cycles(world: World) -> None:
    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            world.history.record("numbers", "closed")

    for _ in range(300):
        generator = numbers()
        await anext(generator)
        box: list[object] = [generator]
        box.append(box)
        del generator, box
        await trio.sleep(1)


@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")  # which is right, and not what is tested
@pytest.mark.parametrize("seed", range(4))
def test_what_is_closed_when_it_is_collected_is_closed_at_the_same_time(seed: int) -> None:
    check_determinism(seed, leaves_cycles)


def test_a_long_run_collects_what_it_leaves() -> None:
    async def scenario(_world: World) -> int:
        watches = []
        for _ in range(12_000):
            watches.append(weakref.ref(Thing()))
            await trio.lowlevel.checkpoint()
        return sum(watch() is not None for watch in watches)

    assert simulate(1, scenario).value < 12_000


def test_a_run_leaves_nothing_and_touches_nothing_older(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_garbage, "_COUNTED_EVERY", 1 << 30)
    old = weakref.ref(Thing())

    async def scenario(_world: World) -> weakref.ref[Thing]:
        gc.collect()
        assert not gc.isenabled()
        assert old() is not None
        return weakref.ref(Thing())

    gc.disable()  # or `old` might go before the run
    try:
        assert simulate(1, scenario).value() is None
        assert not gc.isenabled()
    finally:
        gc.enable()
    simulate(1, scenario_of_nothing)
    assert gc.isenabled()
    gc.collect()
    assert old() is None


class Box:
    """Keeps what keeps it, and a thirtieth of what there is already."""

    def __init__(self, world: World, others: int) -> None:
        self.world = world
        self.ballast: list[list[int]] = [[] for _ in range(others // 30)]
        world.mistakes = Mistakes(self)


class Mistakes(list[str]):
    """None, in a box."""

    def __init__(self, box: Box) -> None:
        super().__init__()
        self.box = box


def test_what_is_left_of_many_runs_does_not_pile_up() -> None:
    async def scenario(world: World) -> Box:
        return Box(world, others)

    gc.disable()
    try:
        others = len(gc.get_objects())
        worlds = [weakref.ref(simulate(1, scenario).value.world) for _ in range(50)]
        assert sum(world() is not None for world in worlds) < 25
    finally:
        gc.enable()


async def scenario_of_nothing(_world: World) -> None:
    pass


@pytest.fixture
def frozen() -> Iterator[Thing]:
    thing = Thing()
    gc.freeze()
    yield thing
    gc.unfreeze()


def test_what_others_have_frozen_stays_frozen(frozen: Thing) -> None:
    simulate(1, scenario_of_nothing)
    assert not any(thing is frozen for thing in gc.get_objects())  # which lists what is not frozen
