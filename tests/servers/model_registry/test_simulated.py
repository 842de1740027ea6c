"""The registry on a simulated machine: it crashes, or the power goes, while clients upload over a simulated network."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest
import trio

from trio_cogment.base.config import ModelRegistryConfig
from trio_cogment.base.errors import RpcError, StatusCode, UnavailableError
from trio_cogment.rpc import serve
from trio_cogment.sdk import ModelRegistryClient
from trio_cogment.servers.model_registry import BlobStore, LocalBlobs, ModelRegistry, model_registry_services
from trio_cogment.testing import FaultyStore, SimDisk, StoreFaults, World, check_determinism, simulate
from trio_cogment.testing.pytest_plugin import Sim

PORT = 9002
SIZES = (0, 1000, 300_000, 900_000)
ROUNDS = 4


@dataclass
class Account:
    """What clients were told."""

    archived: dict[int, bytes] = field(default_factory=dict)
    transient: set[int] = field(default_factory=set)
    seen: list[int] = field(default_factory=list)
    interrupted: int = 0
    told: set[StatusCode] = field(default_factory=set)


@asynccontextmanager
async def registry_on(world: World, blobs: BlobStore) -> AsyncIterator[ModelRegistry]:
    """Run a registry on the host `registry` until the block ends, or the host crashes."""
    host = world.network.host("registry")
    registry = ModelRegistry(blobs, config=ModelRegistryConfig(cache_max_items=5), host=world.host("registry"))
    async with registry, trio.open_nursery() as nursery:
        await nursery.start(partial(serve, model_registry_services(registry), [host.listen(PORT)]))
        yield registry
        nursery.cancel_scope.cancel()


async def run_registry(world: World, disk: SimDisk, lives: int, calm: trio.Event) -> None:
    """Run it, and crash it after some time: the program, or the machine, and that in the middle of a write or not."""
    rng = world.stream("crashes")
    host = world.network.host("registry")
    for _ in range(lives):
        power = rng.random() < 0.5
        with host.running() as scope:
            if power and rng.random() < 0.5:
                disk.crash_at(disk.operations + rng.randrange(10, 200))
            try:
                async with registry_on(world, LocalBlobs("/archive", files=disk)):
                    await trio.sleep(rng.uniform(0.05, 3.0))
                    if power:
                        disk.crash()
                    host.crash(power=power)
                    await trio.sleep_forever()
            except UnavailableError:  # the power went while the archive was being opened
                host.crash(power=power)
        assert scope.cancel_called
        world.sometimes("power loss" if power else "crash")
        await trio.sleep(rng.uniform(0.1, 2.0))
        disk.restart()
        host.restart()
    async with registry_on(world, LocalBlobs("/archive", files=disk)):
        calm.set()
        await trio.sleep_forever()


async def upload_for_a_while(world: World, name: str, account: Account) -> None:
    rng = world.stream(name)
    async with world.network.host(name).channel("registry", PORT) as channel:
        client = ModelRegistryClient(channel)
        for turn in range(ROUNDS):
            data = f"{name} {turn}".encode().ljust(rng.choice(SIZES), b".")
            archived = rng.random() < 0.7
            while True:
                try:
                    with trio.fail_after(20):
                        info = await (client.store if archived else client.publish)("m", data, user_data={"by": name})
                except (RpcError, trio.TooSlowError):
                    account.interrupted += 1
                    await trio.sleep(rng.uniform(0.1, 1.0))
                    continue
                break
            number = info.version_number
            assert number not in account.archived, "a number was given twice"
            assert number not in account.transient, "a number was given twice"
            if archived:
                account.archived[number] = data
            else:
                account.transient.add(number)
            await trio.sleep(rng.uniform(0.0, 0.5))


async def follow(world: World, account: Account, *, task_status: trio.TaskStatus[None]) -> None:
    async with world.network.host("follower").channel("registry", PORT) as channel:
        task_status.started()
        while True:
            try:
                async with ModelRegistryClient(channel).track_latest("m") as latest:
                    async for info in latest:
                        account.seen.append(info.version_number)
            except RpcError as error:
                account.told.add(error.code)
                await trio.sleep(0.5)


async def scenario(world: World) -> Account:
    account = Account()
    disk = world.disk("registry")
    async with trio.open_nursery() as nursery:
        calm = trio.Event()
        nursery.start_soon(run_registry, world, disk, 4, calm)
        await nursery.start(follow, world, account)
        async with trio.open_nursery() as clients:
            for index in range(3):
                clients.start_soon(upload_for_a_while, world, f"client-{index}", account)
        await calm.wait()
        newest = max([*account.archived, *account.transient])
        with trio.fail_after(60):  # who follows learns of it, whatever has happened in between
            while not account.seen or account.seen[-1] < max(account.archived):  # noqa: ASYNC110  virtual time is free
                await trio.sleep(0.1)
        await look_at_all(world, account, newest)
        assert account.seen == sorted(set(account.seen)), "who follows was told something old"
        assert account.told <= {StatusCode.NOT_FOUND}, "it ended for another reason than that nobody had made it yet"
        if account.interrupted:
            world.sometimes("interrupted")
        nursery.cancel_scope.cancel()
    return account


async def look_at_all(world: World, account: Account, newest: int) -> None:
    """See that what was acknowledged is there, that what is there is whole, and that numbers go on."""
    async with world.network.host("looking").channel("registry", PORT) as channel:
        client = ModelRegistryClient(channel)
        infos = {info.version_number: info async for info in client.list_versions("m", page=3)}
        for number, data in account.archived.items():
            assert (await client.retrieve("m", number))[1] == data, "what was acknowledged is lost or torn"
        for number, info in infos.items():
            assert len((await client.retrieve("m", number))[1]) == info.data_size
        assert (await client.store("m", b"")).version_number > newest


#: What may go wrong in a storage that is open; its `close` and `Upload.abort` never raise.
FAULTS = StoreFaults(
    before=0.1,
    after=0.1,
    operations={"read", "names", "folders", "delete", "upload", "open_blob", "open_blob.read"}
    | {f"upload.{name}" for name in ("write", "finish", "commit")},
)


async def storage_that_fails(world: World) -> None:
    """Any operation of the storage fails, before it is done or after: the registry stays, and keeps its word."""
    account = Account()
    disk = world.disk("registry")
    faulty: FaultyStore[BlobStore] = FaultyStore(
        LocalBlobs("/archive", files=disk),
        rng=world.stream("storage"),
        history=world.history,
        plain=lambda text: OSError(errno.EIO, text),
    )
    async with registry_on(world, faulty.store):
        faulty.faults = FAULTS
        async with trio.open_nursery() as clients:
            for index in range(3):
                clients.start_soon(upload_for_a_while, world, f"client-{index}", account)
        faulty.faults = StoreFaults()
        assert account.archived
        await look_at_all(world, account, max([*account.archived, *account.transient]))
    async with registry_on(world, LocalBlobs("/archive", files=disk)):
        await look_at_all(world, account, max([*account.archived, *account.transient]))
    for event in world.history:
        world.sometimes(event.what)


@pytest.mark.sim(seeds=6)
def test_a_storage_that_fails(sim: Sim) -> None:
    reached = sim(storage_that_fails).counters
    assert reached.keys() == {"store error before", "store error after"}


@pytest.mark.sim(seeds=6)
def test_crashes_during_uploads(sim: Sim) -> None:
    sim(scenario)


def test_what_is_to_happen_does_happen() -> None:
    reached: set[str] = set()
    for seed in range(1000, 1005):
        reached |= set(simulate(seed, scenario).counters)
    assert reached == {"crash", "power loss", "interrupted"}


def test_a_seed_runs_the_same_twice() -> None:
    check_determinism(7, scenario)
