"""Stored bytes of accounts with a quota, with those about to be stored: none gets more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import trio

from trio_cogment.access import Quotas
from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.base.errors import PermissionDeniedError, QuotaError, UnavailableError
from trio_cogment.base.services import TRIAL_OWNER
from trio_cogment.rpc import IN_PROCESS, Metadata
from trio_cogment.servers.datastore._services import _owner
from trio_cogment.servers.datastore._stored_bytes import Accounts
from trio_cogment.servers.datastore.storage import (
    ROW_BYTES,
    EndWrite,
    OutcomeWrite,
    SampleWrite,
    TrialEnd,
    TrialWrite,
    WriteKind,
    counted_bytes,
    trial_bytes,
)


class Store:
    """Says what an account has stored, as a test tells it."""

    def __init__(self) -> None:
        self.stored = {"ann": 100}
        self.asked: list[str] = []
        self.broken = False

    async def stored_bytes(self, owner: str) -> int:
        await trio.lowlevel.checkpoint()
        self.asked.append(owner)
        if self.broken:
            raise UnavailableError("the disk is away")
        return self.stored[owner]


def accounts_of(store: Any) -> Accounts:
    return Accounts(store)


async def test_so_much_and_no_more() -> None:
    store = Store()
    accounts = accounts_of(store)
    async with accounts.writing("ann", 150) as purse:
        assert purse is not None
        assert purse.take_nowait(30)
        assert not purse.take_nowait(21)
        assert purse.take_nowait(20)
        assert accounts.reserved == {"ann": 50}
        with pytest.raises(QuotaError, match="the quota of 150 stored_bytes"):
            await purse.take(1)
        assert accounts.reserved == {"ann": 50}
        purse.give_back(20)
        await purse.take(20)
        store.stored["ann"] = 60  # something was deleted, which only the storage knows
        await purse.take(40)
        assert accounts.reserved == {"ann": 90}
        accounts.release(purse.account, 90)
        assert accounts.reserved == {"ann": 0}
    assert accounts.reserved == {}


async def test_nobody_counts_who_has_no_quota_unless_others_of_the_account_do() -> None:
    store = Store()
    accounts = accounts_of(store)
    for owner, limit in (("", 10), ("", None), ("ann", None)):
        async with accounts.writing(owner, limit) as purse:
            assert purse is None
    assert store.asked == []
    async with accounts.writing("ann", 150), accounts.writing("ann", None) as free:
        assert free is not None
        await free.take(1000)  # it has no limit, and counts
        async with accounts.writing("ann", 1000) as other:
            assert other is not None
            with pytest.raises(QuotaError):
                await other.take(1)
        free.give_back(1000)
    assert accounts.reserved == {}


async def test_an_account_is_known_until_all_that_was_reserved_is_settled() -> None:
    store = Store()
    accounts = accounts_of(store)
    async with accounts.writing("ann", 150) as purse:
        assert purse is not None
        await purse.take(50)
    assert accounts.reserved == {"ann": 50}
    async with accounts.settling([purse.account]):
        store.stored["ann"] = 150
    assert purse.account.stored == 150
    accounts.release(purse.account, 50)
    assert accounts.reserved == {}


async def test_where_the_storage_does_not_answer_the_most_that_there_can_be_counts() -> None:
    store = Store()
    accounts = accounts_of(store)
    async with accounts.writing("ann", 150) as purse:
        assert purse is not None
        await purse.take(50)
        async with accounts.settling([purse.account]):
            store.broken = True
        assert purse.account.stored == 150
        accounts.release(purse.account, 50)
        with pytest.raises(UnavailableError):
            await purse.take(1)
    with pytest.raises(UnavailableError, match="away"):
        await accounts.writing("ann", 150).__aenter__()
    assert accounts.reserved == {}


def test_what_a_write_counts() -> None:
    params = TrialParams(max_steps=7)
    trial = TrialWrite("t", "me", params, logged=True)
    assert counted_bytes(trial) == ROW_BYTES + len("t") + len("me") + params.ByteSize()
    assert trial_bytes("t", "me", 10, 5) == ROW_BYTES + 3 + 10 + 5
    assert counted_bytes(OutcomeWrite("t", b"four")) == 4
    sample = SampleWrite("t", 1, 2, 3, b"seven b", WriteKind.LOGGED)
    # Files have this sum for each of their trials: what a row counts must not change.
    assert counted_bytes(sample) == 128 + 7
    assert counted_bytes(EndWrite("t", TrialEnd.ENDED)) == 0


ADMIN, OWNED, FREE = Quotas(stored_bytes=1), Quotas(stored_bytes=2), Quotas(stored_bytes=3)


@pytest.mark.parametrize(
    ("who", "said", "expected"),
    [
        ({"by_address": True, "peer": "203.0.113.7"}, ["ann"], ("", Quotas())),
        ({"by_address": True, "peer": IN_PROCESS}, [], ("", Quotas())),
        ({"by_address": True, "peer": IN_PROCESS}, ["ann%20b"], ("ann b", Quotas())),
        ({"owner": "ann", "quotas": OWNED, "trials": ("t",)}, ["bob"], ("ann", OWNED)),
        ({"admin": True, "quotas": ADMIN, "trials": ("other",)}, ["bob%2F"], ("bob/", Quotas())),
        ({"quotas": FREE}, ["bob"], ("bob", Quotas())),
        ({"quotas": FREE}, [], ("token", FREE)),
        ({"quotas": FREE, "trials": ("t",)}, ["bob"], ("token", FREE)),
    ],
)
def test_whose_trial_a_data_log_writes(who: dict[str, Any], said: list[str], expected: tuple[str, Quotas]) -> None:
    assert _owner(call_of(who, said), "t") == expected


def test_who_has_a_token_for_other_trials_writes_nothing() -> None:
    with pytest.raises(PermissionDeniedError, match="'t'"):
        _owner(call_of({"trials": ("other",)}, []), "t")


def call_of(who: dict[str, Any], said: list[str]) -> Any:
    trials = who.get("trials", ())
    grant = SimpleNamespace(
        owner=who.get("owner", ""),
        quotas=who.get("quotas", Quotas()),
        trials=trials,
        names_trial=lambda trial_id: not trials or trial_id in trials,
    )
    identity = SimpleNamespace(
        admin=who.get("admin", False), by_address=who.get("by_address", False), account="token", grant=grant
    )
    metadata = Metadata([(TRIAL_OWNER, text) for text in said])
    return SimpleNamespace(identity=identity, metadata=metadata, peer=who.get("peer", "203.0.113.7"))
