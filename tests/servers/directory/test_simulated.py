"""The directory in simulated worlds: partitions, crashes of services and of the directory itself, with its disk.

Safety: nobody is shown who has been away for longer than the documented time. Liveness: when the faults are over,
everybody is shown; and once, who has not crashed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio

from tests.servers.directory.bench import ENVIRONMENT, Directory, Told, service_of
from tests.servers.directory.limits_and_loads import by_load, within_limits
from trio_cogment.api.directory_pb2 import InquireRequest, ServiceDetails
from trio_cogment.base.config import DirectoryServerConfig, RpcConfig
from trio_cogment.base.endpoints import GrpcEndpoint
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.services import ServiceKind
from trio_cogment.rpc import serve
from trio_cogment.servers.directory import Inquiry, Service
from trio_cogment.servers.discovery import DirectoryClient, Offer, keep_registered
from trio_cogment.testing import Link, World

CONFIG = DirectoryServerConfig()
PORT, DIRECTORY_PORT = 9000, 9005
#: The longest that somebody is shown who cannot be reached, by the guide; and the network's time.
HIDDEN_SECONDS = 21 + 1
#: Connections that went dark have to be found out by their owners before they can do anything again.
HASTY = RpcConfig(
    client_keepalive_seconds=10, keepalive_seconds=5, keepalive_timeout_seconds=5, connect_backoff_max_seconds=2
)


class Play:
    """Services on hosts of their own, a directory that may crash, and what the world sees of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.network = world.network
        self.network.set_default_link(Link(fragments=0.1, loss=0.01))
        self.disk = world.disk("directory")
        self.away: dict[str, float] = {}
        self.server: Any = None

    async def directory(self) -> None:
        """Run the directory; two seconds after a crash, again from what its disk has kept."""
        host = self.network.host("directory")
        while True:
            with host.running():
                async with self.world.serve_directory(disk=self.disk, rpc_config=HASTY) as self.server:
                    await trio.sleep_forever()
            self.disk.crash()
            await trio.sleep(2)
            self.disk.restart()
            host.restart()

    async def service(self, name: str, *, kept: bool) -> None:
        """Run a service that keeps itself registered, or registers once."""
        host = self.network.host(name)
        while True:
            with host.running():
                async with trio.open_nursery() as nursery:
                    listeners = [host.listen(PORT)]
                    await nursery.start(partial(serve, [service_of(Told())], listeners, config=HASTY))
                    async with host.channel("directory", DIRECTORY_PORT, config=HASTY) as channel:
                        client = DirectoryClient(channel)
                        if kept:
                            offers = [Offer(kind=ServiceKind.ENVIRONMENT, port=PORT)]
                            await keep_registered(client, offers, registration_host=name, host=self.world.host(name))
                        else:
                            kept = False
                            await self.register_once(client, name)
                            await trio.sleep_forever()
            await trio.sleep(1)
            host.restart()

    async def register_once(self, client: DirectoryClient, name: str) -> None:
        while True:
            try:
                await client.register(ServiceKind.ENVIRONMENT, GrpcEndpoint(name, PORT), wait_for_ready=True)
                return
            except CogmentError:
                await trio.sleep(1)

    async def shown(self) -> list[str]:
        """Return the hosts that the directory shows, sorted, asked from within."""
        found = await self.server.find(Inquiry(kind=ENVIRONMENT))
        return sorted(entry.service.host for entry in found)

    async def watch(self) -> None:
        """See that nobody is shown who has been away for too long."""
        while True:
            await trio.sleep(0.5)
            if self.server is None or not self.network.host("directory").up:
                continue
            now = trio.current_time()
            for host in set(await self.shown()) & self.away.keys():
                assert now - self.away[host] <= HIDDEN_SECONDS, f"{host} is shown since {now - self.away[host]} s"

    def partition(self, name: str) -> None:
        self.network.partition([name])
        self.away.setdefault(name, trio.current_time())

    def heal(self) -> None:
        self.network.heal()
        self.away.clear()

    async def until(self, condition: Callable[[list[str]], bool], seconds: float) -> None:
        with trio.fail_after(seconds):
            while not condition(await self.shown()):  # noqa: ASYNC110  the time is virtual
                await trio.sleep(0.5)


@asynccontextmanager
async def playing(world: World, **services: bool) -> AsyncIterator[Play]:
    """Run a directory and services: name -> whether it keeps itself registered."""
    play = Play(world)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(play.directory, name="directory")
        for name, kept in services.items():
            nursery.start_soon(partial(play.service, name, kept=kept), name=f"service {name}")
        nursery.start_soon(play.watch, name="watch")
        await trio.sleep(1)
        yield play
        nursery.cancel_scope.cancel()


async def a_partition(world: World) -> None:
    async with playing(world, kept=True, once=False) as play:
        await play.until(lambda shown: shown == ["kept", "once"], 10)
        await trio.sleep(world.rng.uniform(0, 30))
        name = world.rng.choice(["kept", "once"])
        play.partition(name)
        await play.until(lambda shown: name not in shown, HIDDEN_SECONDS)
        await trio.sleep(world.rng.uniform(0, 60))
        play.heal()
        await play.until(lambda shown: shown == ["kept", "once"], 60)
        # The one that is kept may have registered again, and has taken the old one back then.
        await trio.sleep(60)
        assert await play.shown() == ["kept", "once"]
        assert play.server.count == 2


@pytest.mark.sim(seeds=5)
def test_a_partition(sim: Any) -> None:
    sim(a_partition)


async def a_partition_of_the_directory(world: World) -> None:
    """Everybody is away for so long that all would be forgotten: it is the directory that is alone."""
    async with playing(world, kept=True, other=True) as play:
        await play.until(lambda shown: shown == ["kept", "other"], 10)
        play.network.partition(["directory"])
        for name in ("kept", "other"):
            play.away[name] = trio.current_time()
        await trio.sleep(world.rng.uniform(30, 300))
        play.heal()
        await play.until(lambda shown: shown == ["kept", "other"], 90)
        await trio.sleep(60)
        assert await play.shown() == ["kept", "other"]


@pytest.mark.sim(seeds=5)
def test_a_partition_of_the_directory(sim: Any) -> None:
    sim(a_partition_of_the_directory)


async def a_crash_of_the_directory(world: World) -> None:
    async with playing(world, kept=True, once=False) as play:
        await play.until(lambda shown: shown == ["kept", "once"], 10)
        ids = {data.service_id for data in await inquire(play)}
        for _ in range(3):
            await trio.sleep(world.rng.uniform(0, 20))
            play.network.host("directory").crash(power=world.rng.random() < 0.5)
            await trio.sleep(3)  # until it runs again
            await play.until(lambda shown: "once" in shown, 10)
            await play.until(lambda shown: shown == ["kept", "once"], 60)
        await trio.sleep(60)
        assert await play.shown() == ["kept", "once"]
        # Who registered once was kept on the disk.
        [once] = [data for data in await inquire(play) if data.endpoint.host == "once"]
        assert once.service_id in ids


async def inquire(play: Play) -> list[Any]:
    async with play.network.host("desk").channel("directory", DIRECTORY_PORT, config=HASTY) as channel:
        return await Directory(play.server, channel, None).inquire(  # type: ignore[arg-type]  # no net here
            InquireRequest(details=ServiceDetails(type=ENVIRONMENT))
        )


@pytest.mark.sim(seeds=5)
def test_a_crash_of_the_directory(sim: Any) -> None:
    sim(a_crash_of_the_directory)


async def anything(world: World) -> None:
    """Faults at any time; then peace, and everybody is shown."""
    rng = world.rng
    async with playing(world, one=True, two=True, three=True) as play:
        with trio.move_on_after(90):
            while True:
                await trio.sleep(rng.uniform(0, 15))
                name = rng.choice(["one", "two", "three", "directory"])
                fault = rng.choice(["reset", "dark", "partition", "crash", "power"])
                world.sometimes(f"{fault} of {name}")
                host = play.network.host(name)
                if fault == "reset":
                    for connection in play.network.connections(name):
                        connection.reset()
                elif fault == "dark":
                    for connection in play.network.connections(name):
                        connection.go_dark()
                elif fault == "partition":
                    play.network.partition([name])
                    await trio.sleep(rng.uniform(0, 40))
                    play.network.heal()
                elif host.up:
                    host.crash(power=fault == "power")
        play.network.heal()
        await trio.sleep(120)
        shown = await play.shown()
        assert set(shown) == {"one", "three", "two"}
        # A service that crashed and is back has one registration more: nobody can tell it from one with two names.
        assert play.server.count == len(shown) <= 3 * CONFIG.max_duplicates


@pytest.mark.sim(seeds=2)
def test_anything(sim: Any) -> None:
    sim(anything)


@pytest.mark.soak
@pytest.mark.sim(seeds=100)
def test_anything_for_long(sim: Any) -> None:
    sim(anything)


async def acknowledged(world: World) -> None:
    """The power goes in the middle of any write: whoever was told OK is registered, and nobody is torn."""
    disk = world.disk("directory")
    told: set[str] = set()
    taken_back: set[str] = set()
    doubtful: set[str] = set()
    for round_number in range(6):
        disk.restart()
        async with world.serve_directory(disk=disk) as server:
            known = {entry.service.host for entry in await server.find(Inquiry(kind=100))}
            assert told - taken_back - doubtful <= known
            assert not taken_back & known
            assert known <= told | doubtful
            disk.crash_at(disk.operations + world.rng.randrange(40))
            for number in range(10):
                await use(server, f"{round_number}-{number}", told, taken_back, doubtful)
        disk.crash()
    world.network.host("directory").restart()


async def use(server: Any, name: str, told: set[str], taken_back: set[str], doubtful: set[str]) -> None:
    service = Service(kind=100, protocol=1, host=name, port=1, properties={"name": name})
    try:
        service_id, secret = await server.register(service, permanent=True)
    except CogmentError:
        doubtful.add(name)
        return
    told.add(name)
    if name.endswith("3"):
        try:
            await server.deregister(service_id, secret)
        except CogmentError:
            doubtful.add(name)
        else:
            taken_back.add(name)


@pytest.mark.sim(seeds=30)
def test_what_was_acknowledged_is_kept(sim: Any) -> None:
    sim(acknowledged)


@pytest.mark.sim(seeds=20)
def test_what_small_limits_let_in(sim: Any) -> None:
    sim(within_limits)


@pytest.mark.sim(seeds=5)
def test_the_least_loaded_are_shown(sim: Any) -> None:
    sim(by_load)
