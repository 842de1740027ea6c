"""Slots for large transfers: how many are received, or sent, at the same time, and which give way when others wait.

A client may be as slow as it likes while nobody waits for its slot. When somebody does, a transfer that has moved
next to nothing within an interval loses its slot: thirty clients that send a byte every few seconds, or read nothing,
would otherwise keep all others out. Only time in which the server waits for the client counts, and bytes count when
they pass, not when a chunk is whole.

Slots go round: of those who wait, the one goes first whose client has the fewest, and among equals the one that has
waited for longest. A client is an account (`budget.peer_limits`), which may have a limited number of slots while others
are free; of clients on the server's machine, it is a connection.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

import trio

from trio_cogment.access import Identity
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.budget.peer_limits import is_counted


class TransferCall(Protocol):
    """A client's call, as far as slots are concerned: gRPC stands on the budget, not the budget on gRPC."""

    @property
    def identity(self) -> Identity:
        """Whose it is."""

    @property
    def peer(self) -> str:
        """The client's address."""

    def under_way(self) -> tuple[int, int]:
        """Return how many bytes have arrived and were not taken yet, and how many wait to be sent."""


class Rates(Protocol):
    """A configuration, as far as slots are concerned."""

    @property
    def max_peer_transfers(self) -> int:
        """How many slots one account may have while others are free."""

    @property
    def transfer_least_bytes(self) -> int:
        """A transfer of which fewer bytes pass in `transfer_least_seconds` loses its slot when others wait."""

    @property
    def transfer_least_seconds(self) -> float:
        """See `transfer_least_bytes`."""


class Transfer:
    """One upload, or download.

    Args:
        client: whose it is.
        counted: the client is an account, with a limit of its own.
        passed: how many bytes have passed between client and server.
    """

    def __init__(self, client: str, counted: bool, passed: Callable[[], int]) -> None:
        self.client = client
        self.counted = counted
        self.passed = passed
        self.granted = trio.Event()
        self.lost = False
        self.scope: trio.CancelScope | None = None  # while the server waits for the client
        self.mark = -math.inf, 0  # when it was looked at, and what had passed then

    @contextmanager
    def clients_turn(self, scope: trio.CancelScope) -> Iterator[None]:
        """Hold the block, within this scope, in which the server waits for the client; the slot may be lost there."""
        self.scope = scope
        try:
            yield
        finally:
            self.scope = None


def transfer_of(call: TransferCall, taken: Callable[[], int]) -> Transfer:
    """Return the transfer of a call.

    Args:
        call: of a client.
        taken: how many bytes the handler has received, or given to the call to be sent.
    """
    counted = is_counted(call.identity)
    client = call.identity.account if counted else call.peer

    def passed() -> int:
        arrived, unsent = call.under_way()
        return taken() + arrived - unsent

    return Transfer(client, counted, passed)


class TransferSlots:
    """The slots of one direction.

    Args:
        most: how many there are.
        config: the rest.
    """

    def __init__(self, most: int, config: Rates) -> None:
        self._most = most
        self._config = config
        self._holders: list[Transfer] = []
        self._waiting: list[Transfer] = []
        self._judged = -math.inf

    @property
    def crowd(self) -> int:
        """How many transfers have a slot or wait for one."""
        return len(self._holders) + len(self._waiting)

    @asynccontextmanager
    async def slot(self, transfer: Transfer) -> AsyncIterator[None]:
        """Hold the block of a transfer; wait until there is a slot for it."""
        self._waiting.append(transfer)
        self._grant()
        try:
            while not transfer.granted.is_set():
                self._judge(trio.current_time())
                with trio.move_on_after(self._config.transfer_least_seconds / 4):
                    await transfer.granted.wait()
            yield
        finally:
            (self._holders if transfer.granted.is_set() else self._waiting).remove(transfer)
            self._grant()

    def check(self, transfer: Transfer) -> None:
        """Refuse to go on with a transfer that has lost its slot.

        Raises:
            ResourceExhaustedError: it has.
        """
        if transfer.lost:
            config = self._config
            raise ResourceExhaustedError(
                f"transfer_least_bytes: fewer than {config.transfer_least_bytes} bytes have passed in "
                f"{config.transfer_least_seconds:g} s, and others wait"
            )

    def _grant(self) -> None:
        while len(self._holders) < self._most and (waiting := self._next()) is not None:
            self._waiting.remove(waiting)
            self._holders.append(waiting)
            waiting.mark = trio.current_time(), waiting.passed()
            waiting.granted.set()

    def _next(self) -> Transfer | None:
        has = Counter(holder.client for holder in self._holders)
        most = self._config.max_peer_transfers
        fit = [one for one in self._waiting if not one.counted or has[one.client] < most]
        return min(fit, key=lambda one: has[one.client], default=None)  # the first of several

    def _judge(self, now: float) -> None:
        """Take their slots from those that move next to nothing, the slowest first, as many as wait."""
        interval = self._config.transfer_least_seconds
        if now - self._judged > interval:  # nobody has waited meanwhile, so nobody had to hurry
            for holder in self._holders:
                holder.mark = now, holder.passed()
        self._judged = now
        slow: list[tuple[int, Transfer]] = []
        leaving = sum(holder.lost for holder in self._holders)
        for holder in self._holders:
            since, before = holder.mark
            passed = holder.passed()
            if holder.scope is None or passed - before >= self._config.transfer_least_bytes:
                holder.mark = now, passed
            elif now - since >= interval and not holder.lost:
                slow.append((passed - before, holder))
        slow.sort(key=lambda pair: pair[0])
        for _, holder in slow[: max(0, len(self._waiting) - leaving)]:
            assert holder.scope is not None
            holder.lost = True
            holder.scope.cancel()
