"""Counts what accounts have at a time, and refuses what is more than their share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trio_cogment.base.errors import QuotaError
from trio_cogment.base.recount import Count


class Ledger:
    """How much each account has of one thing.

    Nothing here waits: what is asked for is counted at once or refused at once, so two that ask at the same time cannot
    both get the last of it. Whoever takes gives back, when what it took for is gone or has failed.

    Args:
        what: of which thing, for the text of refusals.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._used: dict[str, int] = {}

    def used(self, account: str) -> int:
        """Return how much an account has."""
        return self._used.get(account, 0)

    @property
    def accounts(self) -> Mapping[str, int]:
        """What each account has, without those that have nothing."""
        return dict(self._used)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        used = sum(self._used.values())
        yield Count(self._what, used, used)
        yield Count(f"accounts with {self._what}", len(self._used), sum(map(bool, self._used.values())))

    def take(self, account: str, amount: int, limit: int | None) -> None:
        """Count so much more for an account.

        Args:
            account: of whom.
            amount: how much.
            limit: how much it may have; None: any number.

        Raises:
            QuotaError: it would be more. Nothing was counted.
        """
        used = self._used.get(account, 0) + amount
        if limit is not None and used > limit and amount > 0:
            raise QuotaError(f"the quota of {limit} {self._what} of this account is used up")
        if used:
            self._used[account] = used

    def give_back(self, account: str, amount: int) -> None:
        """Count so much less for an account."""
        left = self._used.get(account, 0) - amount
        if left < 0:
            raise ValueError(f"{account}: {amount} {self._what} given back, of {left + amount}")
        if left:
            self._used[account] = left
        else:
            self._used.pop(account, None)
