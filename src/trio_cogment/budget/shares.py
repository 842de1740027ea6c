"""Shares of one thing of a server, in all and for each account: trials, worlds, seats, sockets, bytes.

A limit for all alone would belong to whoever comes first. So beside each there is a share: as much as one account may
have, be it a token, a certificate or an address. `docs/limits.md` lists all of them. What the process itself does
counts for no account: there only the limit for all holds. Callers on this machine without a token are one account,
because more is not known of them; the default of a share is what one user with everything needs.

Nothing here waits: of two who ask for the last of it at the same time, one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trio_cogment.access.identity import THIS_PROCESS, Identity
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.base.recount import Count
from trio_cogment.budget.quotas import Ledger


def share_of(identity: Identity) -> str:
    """Return the account whose share somebody uses; empty: this process, which has none."""
    return "" if identity.account == THIS_PROCESS.account else identity.account


@dataclass(frozen=True, slots=True)
class Reached:
    """A limit that leaves no room.

    Attributes:
        name: of the setting.
        limit: its value.
        used: how much there is that counts for it.
    """

    name: str
    limit: int
    used: int


class Shares:
    """See the module.

    Args:
        what: of which thing, in the plural; for the texts of refusals.
        limits: the setting's name and value of the limit for all, and then of the share.
    """

    def __init__(self, what: str, *limits: tuple[str, int]) -> None:
        (self._name, self._limit), (self._share_name, self._share) = limits
        self._what = what
        self._used = 0
        self._accounts = Ledger(what)

    @property
    def used(self) -> int:
        """How much there is."""
        return self._used

    def used_by(self, account: str) -> int:
        """Return how much an account has."""
        return self._accounts.used(account)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        yield Count(self._what, self._used, sum(self._accounts.accounts.values()))

    def reached(self, account: str, amount: int = 1) -> Reached | None:
        """Return the limit that leaves no room for so much more; None: there is room."""
        if self._used + amount > self._limit:
            return Reached(self._name, self._limit, self._used)
        if account and self.used_by(account) + amount > self._share:
            return Reached(self._share_name, self._share, self.used_by(account))
        return None

    def count(self, account: str, amount: int = 1) -> None:
        """Count so much more, or less, whether there is room or not."""
        if amount > 0:
            self._accounts.take(account, amount, None)
        elif amount < 0:
            self._accounts.give_back(account, -amount)
        self._used += amount

    def expect_room(self, account: str, amount: int = 1) -> None:
        """Check that there is room for so much more.

        Raises:
            ResourceExhaustedError: there is none; the text names the limit.
        """
        reached = self.reached(account, amount)
        if reached is not None:
            whose = " of yours" if reached.name == self._share_name else ""
            raise ResourceExhaustedError(
                f"too many {self._what}: {reached.name} is {reached.limit}; try again when some{whose} are gone"
            )

    def take(self, account: str, amount: int = 1) -> None:
        """Count so much more.

        Raises:
            ResourceExhaustedError: see `expect_room`. Nothing was counted.
        """
        self.expect_room(account, amount)
        self.count(account, amount)

    @contextmanager
    def taken(self, account: str) -> Iterator[None]:
        """Have one for the time of the block.

        Raises:
            ResourceExhaustedError: see `take`.
        """
        self.take(account)
        try:
            yield
        finally:
            self.count(account, -1)
