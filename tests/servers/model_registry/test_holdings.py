"""Holdings of each account in a registry, with those it is about to have: no more than its quota."""

from __future__ import annotations

import random

import pytest
import trio

from tests.servers.model_registry.helpers import Harness, open_harness
from trio_cogment.access import Quotas
from trio_cogment.api.model_registry_pb2 import ModelInfo, ModelVersionInfo, RetrieveModelsRequest
from trio_cogment.base.errors import PermissionDeniedError, QuotaError, UnavailableError
from trio_cogment.budget.transfer_slots import Transfer
from trio_cogment.servers.model_registry._archive import most_bytes_of
from trio_cogment.servers.model_registry._documents import write_model, write_version
from trio_cogment.servers.model_registry._holdings import Caller, Holdings
from trio_cogment.servers.model_registry._model import Model
from trio_cogment.testing import SimDisk

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


def test_what_is_about_to_be_stored_counts_with_what_is_still_to_be_said_of_it() -> None:
    """A model is what its description takes; a version's number, time and hash, which come later, are 256 bytes."""
    model = ModelInfo(model_id="m", user_data={"k": "v"})
    assert most_bytes_of(model) == len(write_model(model))
    assert most_bytes_of(INFO) == len(write_version(INFO)) + 256 + 1000
    said = ModelVersionInfo(
        model_id="m", data_size=1000, version_number=2**31 - 1, creation_timestamp=2**64 - 1, data_hash="x" * 44
    )
    assert len(write_version(said)) + 1000 <= most_bytes_of(INFO)


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


def test_what_nobody_has_measured_is_not_counted_yet() -> None:
    assert holdings_of(model("a", "ann"), model("b", "ann", 100)).used("ann") == 100


async def test_a_model_that_is_deleted_is_not_measured() -> None:
    gone = model("a", "ann")
    holdings = holdings_of(gone)
    gone.deleted = True
    with await holdings.reserve("ann", INFO, 2 * SIZE):
        assert measured == []
    assert gone.bytes is None


async def test_a_model_whose_bytes_are_known_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    known = model("m", "ann", 1000)
    holdings = holdings_of(known)
    async with known.lock:  # somebody uploads a version just now
        with trio.fail_after(10):
            await holdings.measured(known)
    assert measured == []


async def test_what_is_stored_is_not_reserved_any_more(autojump_clock: trio.testing.MockClock) -> None:
    ann = caller("ann", stored_bytes=1 << 20)
    async with open_harness() as one:
        await one.registry.create_or_update(ModelInfo(model_id="m"), ann)
        holdings = one.registry.holdings
        info = ModelVersionInfo(model_id="m", archived=True, data_size=10)
        async with one.registry.receiving(info, Transfer("here", False, int), ann) as coming:
            await coming.write(bytes(10))
            assert holdings.reserved.used("ann") == most_bytes_of(info)
            await one.registry.add(coming)
            assert holdings.reserved.used("ann") == 0
        assert holdings.reserved.used("ann") == 0


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


def caller(name: str, **quotas: int) -> Caller:
    """Return somebody who reaches only what is its own."""

    def check(owner: str, what: str) -> None:
        if owner != name:
            raise PermissionDeniedError(f"{what}: it belongs to somebody else")

    return Caller(account=name, quotas=Quotas(**quotas), check=check)


async def upload(one: Harness, by: Caller, size: int, *, archived: bool = True) -> None:
    info = ModelVersionInfo(model_id="m", archived=archived, data_size=size)
    async with one.registry.receiving(info, Transfer("here", False, int), by) as coming:
        await coming.write(bytes(size))
        await one.registry.add(coming)


async def test_nobody_changes_what_is_somebody_elses(autojump_clock: trio.testing.MockClock) -> None:
    async with open_harness() as one:
        ann, bob = caller("ann"), caller("bob")
        await one.registry.create_or_update(ModelInfo(model_id="m"), ann)
        for attempt in (
            one.registry.create_or_update(ModelInfo(model_id="m", user_data={"k": "v"}), bob),
            one.registry.delete("m", bob),
            upload(one, bob, 10),
        ):
            with pytest.raises(PermissionDeniedError, match=r"^model 'm': it belongs to somebody else"):
                await attempt
        assert await one.numbers("m") == []
        (found,) = (await one.unary("RetrieveModels", RetrieveModelsRequest())).model_infos
        assert found == ModelInfo(model_id="m")
        await upload(one, ann, 10)
        await one.registry.delete("m", ann)


async def test_what_is_kept_up_is_what_is_found_when_it_is_measured(autojump_clock: trio.testing.MockClock) -> None:
    disk = SimDisk(random.Random(1))
    ann = caller("ann", stored_bytes=1 << 20)

    async def measured_anew() -> int:
        async with open_harness(disk) as other:
            (model,) = other.registry.models.values()
            await other.registry.holdings.measured(model)
            return other.registry.holdings.used("ann")

    for changes in range(1, 6):
        async with open_harness(disk, cache_max_items=2) as one:
            await one.registry.create_or_update(ModelInfo(model_id="m"), ann)
            before = one.registry.holdings.used("ann")
            if changes >= 2:
                await one.registry.create_or_update(ModelInfo(model_id="m", user_data={"k": "v" * 1000}), ann)
                assert one.registry.holdings.used("ann") > before + 1000
            for size in (10, 2000, 300)[: changes - 2]:
                await upload(one, ann, size)
            archived = one.registry.holdings.used("ann")
            # What is only in memory counts as long as it is there.
            for _ in range(3):
                await upload(one, ann, 500, archived=False)
            kept = list(one.registry.models["m"].transients.values())
            assert len(kept) == 2
            assert one.registry.holdings.used("ann") == archived + sum(version.counted_bytes for version in kept)
            assert one.registry.holdings.reserved.used("ann") == 0
        assert await measured_anew() == archived
        async with open_harness(disk) as one:
            await one.registry.delete("m", ann)
            assert one.registry.holdings.used("ann") == 0


async def test_whose_models_are_is_known_after_a_restart(autojump_clock: trio.testing.MockClock) -> None:
    disk = SimDisk(random.Random(1))
    ann, bob = caller("ann", models=1), caller("bob", models=1)
    async with open_harness(disk) as one:
        await one.registry.create_or_update(ModelInfo(model_id="m"), ann)
    async with open_harness(disk) as one:
        assert one.registry.models["m"].owner == "ann"
        with pytest.raises(QuotaError, match="models"):
            await one.registry.create_or_update(ModelInfo(model_id="n"), ann)
        await one.registry.create_or_update(ModelInfo(model_id="n"), bob)
        await one.registry.delete("m", ann)
        await one.registry.create_or_update(ModelInfo(model_id="m"))
    async with open_harness(disk) as one:
        assert {model.model_id: model.owner for model in one.registry.models.values()} == {"m": "", "n": "bob"}


class Forgetful(SimDisk):
    """A disk that takes no descriptions of models when it is told so."""

    broken = False

    def replace(self, source: str, target: str) -> None:
        if self.broken and target.endswith("m.yaml"):
            raise OSError(5, "Input/output error")
        super().replace(source, target)


@pytest.mark.parametrize("after", ["bob", ""])
async def test_a_model_that_could_not_be_created_counts_for_nobody_and_is_nobodys(
    after: str, autojump_clock: trio.testing.MockClock
) -> None:
    disk = Forgetful(random.Random(1))
    ann = caller("ann", models=1, stored_bytes=1 << 20)
    async with open_harness(disk) as one:
        disk.broken = True
        with pytest.raises(UnavailableError):
            await one.registry.create_or_update(ModelInfo(model_id="m"), ann)
        disk.broken = False
        assert one.registry.holdings.counts.accounts == {}
        assert one.registry.holdings.reserved.accounts == {}
        await one.registry.create_or_update(ModelInfo(model_id="m"), caller(after))
        await one.registry.create_or_update(ModelInfo(model_id="n"), ann)
    async with open_harness(disk) as one:
        assert {model.model_id: model.owner for model in one.registry.models.values()} == {"m": after, "n": "ann"}


async def test_a_quota_is_used_to_the_last_byte(autojump_clock: trio.testing.MockClock) -> None:
    info = ModelInfo(model_id="m", user_data={"k": "v"})
    async with open_harness() as one:
        await one.registry.create_or_update(info, caller("ann", stored_bytes=1000))
        size = one.registry.holdings.used("ann")
    async with open_harness() as one:
        with pytest.raises(QuotaError, match=f"the quota of {size - 1} stored_bytes"):
            await one.registry.create_or_update(info, caller("ann", stored_bytes=size - 1))
        await one.registry.create_or_update(info, caller("ann", stored_bytes=size))
        assert one.registry.holdings.used("ann") == size
        # One that somebody else reaches and changes counts for its owner, and against nobody's quota.
        anybody = Caller(account="bob", quotas=Quotas(stored_bytes=0))
        await one.registry.create_or_update(ModelInfo(model_id="m", user_data={"k": "v" * 100}), anybody)
        assert one.registry.holdings.used("ann") > size
