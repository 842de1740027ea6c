"""Stored bytes of accounts with a quota: those that are there, and those about to be written.

What is there is the storage's to say. It is asked when somebody with a quota begins to write, after each batch with
writes of theirs, and before anybody is refused. What is about to be written is reserved before it is queued, and given
back when its batch has been settled: in between it counts, twice for a moment, but never not at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import trio

from trio_cogment.base.errors import CogmentError, QuotaError
from trio_cogment.servers.datastore.storage import TrialStore


class Account:
    """What one owner has stored.

    Attributes:
        owner: the account.
        stored: bytes that the storage counts.
        reserved: bytes that may come to be stored.
        writers: how many count by it.
    """

    __slots__ = ("owner", "reserved", "stored", "writers")

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.stored = 0
        self.reserved = 0
        self.writers = 0


class Purse:
    """An account, and how much one writer may bring it to.

    Attributes:
        account: whose trials the writer writes.
    """

    __slots__ = ("_accounts", "_limit", "account")

    def __init__(self, accounts: Accounts, account: Account, limit: int | None) -> None:
        self._accounts = accounts
        self._limit = limit
        self.account = account

    def take_nowait(self, size: int) -> bool:
        """Reserve bytes; False: by what is known there is no room."""
        account = self.account
        if self._limit is not None and account.stored + account.reserved + size > self._limit:
            return False
        account.reserved += size
        return True

    async def take(self, size: int) -> None:
        """Reserve bytes.

        Raises:
            QuotaError: there is no room; the text names the quota.
        """
        if not self.take_nowait(size):
            await self._accounts.refresh(self.account)
            if not self.take_nowait(size):
                raise QuotaError(f"the quota of {self._limit} stored_bytes of this account is used up")

    def give_back(self, size: int) -> None:
        """Reserve less: it is not written."""
        self.account.reserved -= size


class Accounts:
    """The accounts for which somebody writes.

    Args:
        store: says what they have stored.
    """

    def __init__(self, store: TrialStore) -> None:
        self._store = store
        self._known: dict[str, Account] = {}
        #: Held while something is written or asked, so that no answer is older than the one before.
        self._turn = trio.Lock()

    @property
    def reserved(self) -> dict[str, int]:
        """What is reserved for each account that is counted now."""
        return {owner: account.reserved for owner, account in self._known.items()}

    @asynccontextmanager
    async def writing(self, owner: str, limit: int | None) -> AsyncIterator[Purse | None]:
        """Count what is written to an owner's trials in the block; None: nobody counts it.

        Args:
            owner: the account; empty: nobody's.
            limit: the quota of whoever writes; None: it has none. It counts if others for the same account have one.

        Raises:
            CogmentError: of the storage.
        """
        account = self._known.get(owner)
        if not owner or (limit is None and account is None):
            yield None
            return
        if account is None:
            account = self._known[owner] = Account(owner)
        account.writers += 1
        try:
            await self.refresh(account)
            yield Purse(self, account, limit)
        finally:
            account.writers -= 1
            self._forget(account)

    async def refresh(self, account: Account) -> None:
        """Ask the storage what an account has.

        Raises:
            CogmentError: of the storage.
        """
        async with self._turn:
            account.stored = await self._store.stored_bytes(account.owner)

    @asynccontextmanager
    async def settling(self, accounts: Collection[Account]) -> AsyncIterator[None]:
        """Write a batch for these accounts in the block; what each has afterwards is known when it is left."""
        async with self._turn:
            yield
            for account in accounts:
                try:
                    account.stored = await self._store.stored_bytes(account.owner)
                except CogmentError:
                    account.stored += account.reserved  # more than it can be; it is asked again before a refusal

    def release(self, account: Account, size: int) -> None:
        """Give back what was reserved for a batch, which is stored now, or is not."""
        account.reserved -= size
        self._forget(account)

    def _forget(self, account: Account) -> None:
        if not account.writers and not account.reserved:
            self._known.pop(account.owner, None)
