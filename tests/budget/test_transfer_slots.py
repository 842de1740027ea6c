"""Slots of transfers: nobody keeps others out by being slow, and nobody loses a slot that nobody wants."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing

from trio_cogment.access import EVERYTHING, Identity
from trio_cogment.base.config import ModelRegistryConfig
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.budget.transfer_slots import Transfer, TransferSlots, transfer_of

CONFIG = ModelRegistryConfig(transfer_least_bytes=100, transfer_least_seconds=1.0, max_peer_transfers=2)


class Client:
    """A client that moves some bytes each tenth of a second."""

    def __init__(self, slots: TransferSlots, name: str, *, bytes_per_second: float = 0, counted: bool = False) -> None:
        self.moved = 0.0
        self.transfer = Transfer(name, counted, lambda: int(self.moved))
        self.began: float | None = None
        self.lost = False
        self._slots = slots
        self._rate = bytes_per_second

    async def run(self, *, seconds: float = 1000.0, servers_turn: bool = False) -> None:
        try:
            async with self._slots.slot(self.transfer):
                self.began = trio.current_time()
                while trio.current_time() < self.began + seconds:
                    with trio.move_on_after(1000) as scope:
                        if servers_turn:
                            await trio.sleep(0.1)
                        else:
                            with self.transfer.clients_turn(scope):
                                await trio.sleep(0.1)
                    self._slots.check(self.transfer)
                    self.moved += self._rate / 10
        except ResourceExhaustedError as error:
            assert "transfer_least_bytes: fewer than 100 bytes have passed in 1 s" in str(error)  # noqa: PT017  a task
            self.lost = True


async def test_the_slow_give_way_when_others_wait(autojump_clock: trio.testing.MockClock) -> None:
    slots = TransferSlots(2, CONFIG)
    async with trio.open_nursery() as nursery:
        slow = [Client(slots, "slow", bytes_per_second=10) for _ in range(2)]
        for one in slow:
            nursery.start_soon(one.run)
        await trio.sleep(100)
        assert not any(one.lost for one in slow)  # nobody has minded
        honest = Client(slots, "honest", bytes_per_second=1000)
        await honest.run(seconds=1.0)
        assert honest.began is not None
        assert honest.began - 100 < 2.5
        assert [one.lost for one in slow].count(True) == 1  # no more than was needed
        nursery.cancel_scope.cancel()
    assert slots.crowd == 0


async def test_the_fast_and_those_who_wait_for_the_server_stay(autojump_clock: trio.testing.MockClock) -> None:
    slots = TransferSlots(2, CONFIG)
    async with trio.open_nursery() as nursery:
        fast, served = Client(slots, "fast", bytes_per_second=150), Client(slots, "served")
        nursery.start_soon(fast.run)
        nursery.start_soon(partial(served.run, servers_turn=True))
        await trio.testing.wait_all_tasks_blocked()
        late = Client(slots, "late")
        with trio.move_on_after(60):
            await late.run()
        assert (late.began, fast.lost, served.lost) == (None, False, False)
        nursery.cancel_scope.cancel()
    assert slots.crowd == 0


async def test_slots_go_round_among_clients(autojump_clock: trio.testing.MockClock) -> None:
    slots = TransferSlots(2, CONFIG)
    async with trio.open_nursery() as nursery:
        greedy = [Client(slots, "greedy", bytes_per_second=1000) for _ in range(20)]
        for one in greedy:
            nursery.start_soon(partial(one.run, seconds=5.0))
        await trio.testing.wait_all_tasks_blocked()
        modest = Client(slots, "modest", bytes_per_second=1000)
        await modest.run(seconds=1.0)
        assert modest.began is not None
        assert modest.began <= 5.2  # before eighteen others that have waited for longer
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("counted", "running"), [(True, 2), (False, 4)])
async def test_a_peer_has_only_so_many_though_others_are_free(
    counted: bool, running: int, autojump_clock: trio.testing.MockClock
) -> None:
    slots = TransferSlots(4, CONFIG)
    async with trio.open_nursery() as nursery:
        peers = [Client(slots, "peer", bytes_per_second=1000, counted=counted) for _ in range(5)]
        for one in peers:
            nursery.start_soon(one.run)
        await trio.testing.wait_all_tasks_blocked()
        assert sum(one.began is not None for one in peers) == running
        nursery.cancel_scope.cancel()
    assert slots.crowd == 0


async def test_who_leaves_the_queue_takes_nothing_along(autojump_clock: trio.testing.MockClock) -> None:
    slots = TransferSlots(1, CONFIG)
    holder, gone, next_one = (Client(slots, name, bytes_per_second=1000) for name in ("holder", "gone", "next"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(holder.run, seconds=3.0))
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1):
            await gone.run()
        await next_one.run(seconds=0.1)
    assert gone.began is None
    assert slots.crowd == 0


class Under:
    """A call, as far as its bytes and its caller are concerned."""

    def __init__(self, identity: Identity, arrived: int, unsent: int) -> None:
        self.identity = identity
        self.peer = "ipv4:192.0.2.1:4711"
        self._under_way = arrived, unsent

    def under_way(self) -> tuple[int, int]:
        return self._under_way


def test_the_transfer_of_a_call_counts_what_has_passed_on_the_wire() -> None:
    """What has arrived and was not taken has passed; what waits to be sent has not."""
    account = Identity(account="token:ann", local=True, grant=EVERYTHING)
    call: Any = Under(account, 100, 30)
    transfer = transfer_of(call, lambda: 1000)
    assert (transfer.client, transfer.counted, transfer.passed()) == ("token:ann", True, 1070)
    nearby: Any = Under(Identity(account="127.0.0.1", local=True, grant=EVERYTHING), 0, 0)
    transfer = transfer_of(nearby, lambda: 5)
    assert (transfer.client, transfer.counted, transfer.passed()) == (nearby.peer, False, 5)


async def test_of_all_who_are_slow_the_slowest_gives_way(autojump_clock: trio.testing.MockClock) -> None:
    """Wherever it stands among those who have a slot; and one for each who waits."""
    slots = TransferSlots(4, CONFIG)
    async with trio.open_nursery() as nursery:
        holders = [Client(slots, str(rate), bytes_per_second=rate) for rate in (5000, 60, 20, 40)]
        for one in holders:
            nursery.start_soon(one.run)
        await trio.testing.wait_all_tasks_blocked()
        for lost in ([False, False, True, False], [False, False, True, True], [False, True, True, True]):
            nursery.start_soon(Client(slots, "late", bytes_per_second=9000).run)
            await trio.sleep(5)
            assert [one.lost for one in holders] == lost
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("hurries", [False, True])
async def test_time_in_which_nobody_waited_does_not_count(
    hurries: bool, autojump_clock: trio.testing.MockClock
) -> None:
    """Whoever has moved next to nothing until then has the whole interval from then on."""
    slots = TransferSlots(1, CONFIG)
    async with trio.open_nursery() as nursery:
        idle = Client(slots, "idle", bytes_per_second=0.5)
        nursery.start_soon(idle.run)
        await trio.sleep(100)
        late = Client(slots, "late")
        nursery.start_soon(late.run)
        await trio.sleep(0.95)
        assert (idle.lost, late.began) == (False, None)
        if hurries:
            idle.moved += 100
        await trio.sleep(1)
        assert idle.lost is not hurries
        nursery.cancel_scope.cancel()


async def test_time_in_which_nobody_waited_counts_for_none_of_many(autojump_clock: trio.testing.MockClock) -> None:
    slots = TransferSlots(3, CONFIG)
    async with trio.open_nursery() as nursery:
        idle = [Client(slots, str(number), bytes_per_second=0.5) for number in range(3)]
        for one in idle:
            nursery.start_soon(one.run)
        await trio.sleep(100)
        for _ in idle:
            nursery.start_soon(Client(slots, "late").run)
        await trio.sleep(0.95)
        assert [one.lost for one in idle] == [False] * 3
        await trio.sleep(1)
        assert [one.lost for one in idle] == [True] * 3
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("bytes_in_a_second", "stays"), [(99, False), (100, True)])
async def test_as_many_bytes_as_are_configured_are_enough(
    bytes_in_a_second: int, stays: bool, autojump_clock: trio.testing.MockClock
) -> None:
    slots = TransferSlots(1, CONFIG)
    async with trio.open_nursery() as nursery:
        holder = Client(slots, "holder")
        nursery.start_soon(holder.run)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(Client(slots, "late").run)
        for _ in range(20):
            await trio.sleep(0.8)
            holder.moved += bytes_in_a_second
            await trio.sleep(0.2)
        assert holder.lost is not stays
        nursery.cancel_scope.cancel()
