"""Turns for what only a few may do at a time: those who wait come in the rotation of their accounts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator

import trio

from trio_cogment.base.recount import Count


class FairTurns:
    """At most a number at a time, and at most a number of each account. Who finds room goes on without a checkpoint.

    An account with a thousand requests delays another account's by one of its own, not by all of them; within an
    account they come in order.

    Args:
        at_once: how many.
        per_account: how many of one account; those without an account are bounded by `at_once` alone.
    """

    def __init__(self, at_once: int, per_account: int) -> None:
        self._at_once = at_once
        self._per_account = per_account
        self._taken: Counter[str] = Counter()
        #: In the order of the accounts' turns.
        self._waiting: dict[str, deque[trio.Event]] = {}

    @property
    def taken(self) -> int:
        """How many have a turn now."""
        return self._taken.total()

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return sum(map(len, self._waiting.values()))

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        yield Count("turns", self.taken, self.taken)
        yield Count("accounts with turns", len(self._taken), sum(map(bool, self._taken.values())))
        yield Count("those who wait for a turn", self.waiting, self.waiting)

    def _may_go(self, account: str) -> bool:
        of_account = self._at_once if not account else self._per_account
        return self._taken.total() < self._at_once and self._taken[account] < of_account

    def acquire_nowait(self, account: str) -> bool:
        """Take a turn if nobody has to be waited for; `release` must follow then."""
        if account in self._waiting or not self._may_go(account):
            return False
        self._taken[account] += 1
        return True

    async def acquire(self, account: str) -> None:
        """Wait for a turn; `release` must follow. After `Cancelled` there is none to be released."""
        if self.acquire_nowait(account):
            return
        granted = trio.Event()
        self._waiting.setdefault(account, deque()).append(granted)
        try:
            await granted.wait()
        except trio.Cancelled:
            if granted.is_set():
                self.release(account)
            else:
                self._forget(account, granted)
            raise

    def release(self, account: str) -> None:
        """End a turn, and let those begin whose turn it is now."""
        self._taken[account] -= 1
        if not self._taken[account]:
            del self._taken[account]
        for name in list(self._waiting):
            if self._taken.total() >= self._at_once:
                return
            if self._may_go(name):
                waiting = self._waiting.pop(name)
                self._taken[name] += 1
                waiting.popleft().set()
                if waiting:
                    self._waiting[name] = waiting  # behind the others

    def _forget(self, account: str, granted: trio.Event) -> None:
        waiting = self._waiting[account]
        waiting.remove(granted)
        if not waiting:
            del self._waiting[account]


class Turn:
    """One turn of `FairTurns`, for an account."""

    __slots__ = ("_account", "_held", "_turns")

    def __init__(self, turns: FairTurns, account: str) -> None:
        self._turns = turns
        self._account = account
        self._held = False

    async def begin(self) -> None:
        """Wait for it; `end` must follow. After `Cancelled` it has not begun."""
        await self._turns.acquire(self._account)
        self._held = True

    def begin_nowait(self) -> bool:
        """Begin it if nobody has to be waited for."""
        self._held = self._turns.acquire_nowait(self._account)
        return self._held

    def end(self) -> None:
        """End it; nothing happens when it is over."""
        if self._held:
            self._held = False
            self._turns.release(self._account)

    async def __aenter__(self) -> Turn:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()
