"""Faults in front of a storage: each kind, by chance and by plan, on whatever an interface may have."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from trio_cogment.base.errors import UnavailableError
from trio_cogment.testing import Fault, FaultPlan, FaultyStore, StoreFaults, World, simulate


class Shelf:
    """A storage with one method of each kind."""

    def __init__(self) -> None:
        self.put_away: list[int] = []
        self.opened = 0
        self.capacity = 3

    async def put(self, number: int) -> int:
        await trio.lowlevel.checkpoint()
        self.put_away.append(number)
        return number

    def count(self) -> int:
        return len(self.put_away)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Shelf]:
        self.opened += 1
        try:
            yield self
        finally:
            self.opened -= 1

    async def all(self) -> AsyncIterator[int]:
        for number in self.put_away:
            yield number


def faulty(world: World, shelf: Shelf, faults: StoreFaults | None = None) -> FaultyStore[Shelf]:
    return FaultyStore(
        shelf, rng=world.stream("shelf"), history=world.history, faults=faults, plan=world.plan, name="shelf"
    )


def noted(world: World) -> list[tuple[str, str]]:
    return [(event.what, event.details["operation"]) for event in world.history]


def test_no_faults() -> None:
    async def scenario(world: World) -> None:
        shelf = Shelf()
        front = faulty(world, shelf)
        assert await front.store.put(1) == 1
        assert (front.store.count(), front.store.capacity) == (1, 3)
        async with front.store.open() as opened:
            assert await opened.put(2) == 2
            assert shelf.opened == 1
        assert [number async for number in front.store.all()] == [1, 2]
        assert (shelf.opened, front.operations, len(world.history)) == (0, 6, 0)

    simulate(1, scenario)


def test_each_kind_of_fault_by_plan() -> None:
    plan = FaultPlan(
        (
            Fault("store error before", at=1, target="shelf"),
            Fault("store error after", at=2, target="shelf", details={"operation": "put"}),
            Fault("store delay", at=3, target="shelf", details={"seconds": 5.0}),
            Fault("store hang", at=9, target="shelf"),
            Fault("store error before", at=0, target="another"),
            Fault("power cut", at=0, target="shelf"),
        )
    )

    async def scenario(world: World) -> None:
        shelf = Shelf()
        store = faulty(world, shelf).store
        await store.put(0)
        await trio.sleep_until(1)
        with pytest.raises(UnavailableError, match="put failed"):
            await store.put(1)
        await trio.sleep_until(2)
        assert [number async for number in store.all()] == [0]  # it is for `put`
        with pytest.raises(UnavailableError, match="put was done and failed"):
            await store.put(2)
        await trio.sleep_until(3)
        await store.put(3)
        assert trio.current_time() == 8
        await trio.sleep_until(9)
        with trio.move_on_after(1000) as scope:
            await store.put(4)
        assert scope.cancelled_caught
        await store.put(5)
        assert shelf.put_away == [0, 2, 3, 5]
        assert [what for what, operation in noted(world)] == [
            "store error before",
            "store error after",
            "store delay",
            "store hang",
        ]

    simulate(1, scenario, plan=plan)


def test_context_managers_and_iterators() -> None:
    async def scenario(world: World) -> None:
        shelf = Shelf()
        front = faulty(world, shelf)
        store = front.store
        await store.put(1)
        front.faults = StoreFaults(after=1, operations=["open"])
        with pytest.raises(UnavailableError):
            async with store.open():
                raise AssertionError("entered")
        assert shelf.opened == 0
        front.faults = StoreFaults(before=1, operations=["open.put", "all"])
        async with store.open() as opened:
            with pytest.raises(UnavailableError):
                await opened.put(2)
        with pytest.raises(UnavailableError):
            _ = [number async for number in store.all()]
        with pytest.raises(ZeroDivisionError):
            async with store.open():
                _ = 1 / 0
        assert shelf.opened == 0
        assert noted(world) == [
            ("store error after", "open"),
            ("store error before", "open.put"),
            ("store error before", "all"),
        ]

    simulate(1, scenario)


def test_chance_is_the_seeds() -> None:
    async def scenario(world: World) -> Counter[str]:
        front = faulty(world, Shelf(), StoreFaults(before=0.1, after=0.1, delay=0.1, hang=0.1))
        for number in range(400):
            with trio.move_on_after(2):
                try:
                    await front.store.put(number)
                except UnavailableError:
                    pass
        return Counter(what for what, _ in noted(world))

    first, second, other = (simulate(seed, scenario) for seed in (1, 1, 2))
    assert first.value == second.value
    assert first.fingerprint == second.fingerprint != other.fingerprint
    assert len(first.value) == 4
    assert all(20 <= count <= 60 for count in first.value.values())


def test_shares_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="shares"):
        StoreFaults(before=-0.1)
    with pytest.raises(ValueError, match="shares"):
        StoreFaults(before=0.6, hang=0.6)


class Cupboard:
    """A storage that is called, not awaited."""

    def __init__(self) -> None:
        self.shelves: list[Shelf] = []

    def shelf(self) -> Shelf:
        self.shelves.append(Shelf())
        return self.shelves[-1]

    def add(self, number: int) -> int:
        self.shelves[-1].put_away.append(number)
        return number


def test_an_interface_that_is_called() -> None:
    kinds = ["store error before", "store error after", "store error after"]
    operations = ["add", "add", "shelf"]
    faults = (Fault(k, target="store", details={"operation": o}) for k, o in zip(kinds, operations, strict=True))

    async def scenario(world: World) -> None:
        cupboard = Cupboard()
        front = FaultyStore(cupboard, rng=world.rng, history=world.history, plan=world.plan, plain=OSError)
        shelf = front.store.shelf()  # it returns an object, so it is not hit
        assert len(cupboard.shelves) == 1
        with pytest.raises(OSError, match=r"^add failed, as it was told to$"):
            front.store.add(1)
        assert shelf.count() == 0
        with pytest.raises(OSError, match=r"^add was done and failed, as it was told to$"):
            front.store.add(2)
        assert front.store.add(number=3) == 3
        assert cupboard.shelves[0].put_away == [2, 3]
        assert shelf.count() == 2
        assert [event.details["operation"] for event in world.history] == ["add", "add"]
        front.faults = StoreFaults(before=1.0, operations={"shelf.count"})
        with pytest.raises(OSError, match=r"^shelf\.count failed"):
            shelf.count()

    simulate(1, scenario, plan=FaultPlan(tuple(faults)))


def test_delays_that_make_no_sense() -> None:
    for seconds in (-3.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="max_delay_seconds"):
            StoreFaults(delay=1, max_delay_seconds=seconds)
    with pytest.raises(ValueError, match="shares"):
        StoreFaults(before=float("nan"))
    with pytest.raises(ValueError, match="operations: expected a collection of names, got 'put'"):
        StoreFaults(before=1, operations="put")


@pytest.mark.parametrize("kind", ["delay", "hang"])
def test_what_is_called_neither_waits_nor_hangs(kind: str) -> None:
    async def scenario(world: World, plan: FaultPlan) -> None:
        faults = StoreFaults(**{kind: 0.1})  # type: ignore[arg-type]  # a share
        with pytest.raises(ValueError, match="faults: expected no delays"):
            FaultyStore(Cupboard(), rng=world.rng, history=world.history, faults=faults, plain=OSError)
        with pytest.raises(ValueError, match=rf"plan: expected no delays .* got Fault\('store {kind}'"):
            FaultyStore(Cupboard(), rng=world.rng, history=world.history, plan=plan, plain=OSError)
        FaultyStore(Cupboard(), rng=world.rng, history=world.history, plan=plan, plain=OSError, name="another")
        FaultyStore(Cupboard(), rng=world.rng, history=world.history, plan=plan, faults=faults)
        front = FaultyStore(Cupboard(), rng=world.rng, history=world.history, plain=OSError)
        with pytest.raises(ValueError, match="faults: expected no delays"):
            front.faults = faults
        assert front.faults == StoreFaults()

    simulate(1, scenario, FaultPlan((Fault(f"store {kind}", target="store"),)))


def test_a_fault_waits_for_a_call_that_it_can_hit() -> None:
    async def scenario(world: World) -> None:
        front = FaultyStore(Cupboard(), rng=world.rng, history=world.history, plan=world.plan, plain=OSError)
        front.store.shelf()
        with pytest.raises(OSError, match="add was done and failed"):
            front.store.add(1)
        assert front.store.add(2) == 2

    simulate(1, scenario, plan=FaultPlan((Fault("store error after", target="store"),)))
