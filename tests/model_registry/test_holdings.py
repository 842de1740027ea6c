"""What each account has in a registry, and is about to have: no more than its quota."""

from __future__ import annotations

import pytest
import trio

from tests.model_registry.helpers import open_harness
from trio_cogment.access import Quotas
from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo
from trio_cogment.errors import QuotaError
from trio_cogment.model_registry._archive import most_bytes_of
from trio_cogment.model_registry._holdings import Caller, Holdings
from trio_cogment.model_registry._model import Model

INFO = ModelVersionInfo(model_id="m", data_size=1000)
SIZE = most_bytes_of(INFO)


def model(name: str, owner: str, size: int | None = None) -> Model:
    made = Model(name, name, owner=owner)
    made.bytes = size
    return made


def holdings_of(*models: Model) -> Holdings:
    async def measure(one: Model) -> int:
        measured.append(one.model_id)
        return 500

    measured.clear()
    holdings = Holdings(measure)
    for one in models:
        if one.owner:
            holdings.counts.take(one.owner, 1, None)
        holdings.add(one)
    return holdings


measured: list[str] = []


def test_what_is_stored_takes_its_bytes_and_a_description() -> None:
    assert 1000 < SIZE < 1500
    assert most_bytes_of(ModelVersionInfo(model_id="m")) == pytest.approx(SIZE - 1000, abs=10)
    small, large = (most_bytes_of(ModelInfo(model_id="m", user_data={"k": "v" * size})) for size in (1, 101))
    assert large - small == 100


async def test_an_account_gets_no_more_than_its_quota() -> None:
    holdings = holdings_of(model("a", "ann"), model("b", "ann", 100), model("c", "bob", 9000), model("d", ""))
    with await holdings.reserve("ann", INFO, 600 + 2 * SIZE) as first:
        assert measured == ["a"]
        assert holdings.used("ann") == 600
        with await holdings.reserve("ann", INFO, 600 + 2 * SIZE):
            with pytest.raises(QuotaError, match="stored_bytes"):
                await holdings.reserve("ann", INFO, 600 + 3 * SIZE - 1)
            assert holdings.reserved.used("ann") == 2 * SIZE
        first.release()  # twice does no harm
    assert holdings.reserved.used("ann") == 0
    assert measured == ["a"]


async def test_who_has_no_quota_reserves_nothing() -> None:
    holdings = holdings_of(model("a", "ann"))
    for owner, quota in (("", 1), ("ann", None)):
        with await holdings.reserve(owner, INFO, quota):
            assert holdings.reserved.used(owner) == 0
    assert measured == []


def test_a_model_that_is_gone_counts_no_more() -> None:
    one, two = model("a", "ann", 100), model("b", "ann", 10)
    holdings = holdings_of(one, two)
    assert (holdings.used("ann"), holdings.counts.used("ann")) == (110, 2)
    holdings.remove(one)
    holdings.remove(one)
    assert (holdings.used("ann"), holdings.counts.used("ann")) == (10, 1)
    holdings.remove(two)
    holdings.remove(model("c", "bob"))
    assert (holdings.used("ann"), holdings.counts.used("ann")) == (0, 0)
    assert not holdings._models  # owners come and go


async def test_the_bytes_of_a_model_that_was_created_count(autojump_clock: trio.testing.MockClock) -> None:
    async with open_harness() as one:
        ann = Caller(account="ann", quotas=Quotas(stored_bytes=10_000))
        await one.registry.create_or_update(ModelInfo(model_id="m", user_data={"k": "v" * 100}), by=ann)
        assert one.registry.holdings.used("ann") > 100
