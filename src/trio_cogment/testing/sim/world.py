"""Everything a simulated run needs from outside: the wall clock, ids, randomness, disks and a network, all seeded."""

from __future__ import annotations

import dataclasses
import random
import ssl
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import trio
from purerpc import Service

from trio_cogment.base.config import DirectoryServerConfig, RpcConfig
from trio_cogment.platform import Platform, open_platform
from trio_cogment.rpc import CallHost, OwnNursery, serve
from trio_cogment.sdk import Participants
from trio_cogment.sdk.spec import Spec
from trio_cogment.servers.directory import DirectoryServer, directory_services
from trio_cogment.servers.orchestrator import Orchestrator, orchestrator_services
from trio_cogment.testing._recorded_calls import RecordedCalls
from trio_cogment.testing.history import History
from trio_cogment.testing.sim.delayed_channel import DelayedChannel
from trio_cogment.testing.sim.disk import SimDisk
from trio_cogment.testing.sim.fault_plan import FaultPlan
from trio_cogment.testing.sim.links import Link
from trio_cogment.testing.sim.network import SimListener, SimNetwork

# Blocking functions in a simulation: they take virtual time, and what they do is there before anyone is told.

T = TypeVar("T")

#: How long a function takes to begin, and how long it then takes to tell: often no time at all.
_SECONDS = (0.0, 0.0, 0.0005, 0.003)


class SimRunner:
    """Runs functions as worker threads do; a `trio_cogment.base.host.Runner`.

    A function runs at one moment, and waits for nobody. Some time passes before it begins, as a thread has to start,
    and some before its caller learns that it has ended, as a thread has to tell the event loop. Meanwhile others can
    see what it has done.

    Args:
        threads: how many functions are under way at a time; more wait.
        rng: decides how long each takes.
    """

    def __init__(self, threads: float, rng: random.Random) -> None:
        self._limiter = trio.CapacityLimiter(threads)
        self._rng = rng

    async def __call__(self, function: Callable[..., T], *args: object) -> T:
        """See `Runner`."""
        before, after = self._rng.choice(_SECONDS), self._rng.choice(_SECONDS)
        async with self._limiter:
            await trio.sleep(before)
            try:
                return function(*args)
            finally:
                with trio.CancelScope(shield=True):
                    await trio.sleep(after)


#: Simulated runs begin on 2026-01-01 at midnight UTC, in nanoseconds since the epoch.
START_NS = 1_767_225_600_000_000_000


class World:
    """What `simulate` gives to a scenario as its first argument.

    Attributes:
        seed: of the run.
        plan: the faults of the run, if it was given any; printed when the run fails.
        rng: for the scenario's own draws.
        network: the simulated network.
        history: what happened, for the checkers.
        counters: how often each `sometimes` was reached.
        mistakes: what is wrong with the scenario itself; if there is anything, the run fails at its end.
    """

    def __init__(self, seed: int, plan: FaultPlan | None = None) -> None:
        self.seed = seed
        self.plan = plan or FaultPlan()
        self.rng = self.stream("scenario")
        self._ids = self.stream("ids")
        self._secrets = self.stream("secrets")
        self._disks: dict[str, SimDisk] = {}
        self._threads: dict[str, random.Random] = {}
        self.network = SimNetwork(self.stream)
        self.history = History()
        self.counters: Counter[str] = Counter()
        self.mistakes: list[str] = []

    def stream(self, name: str) -> random.Random:
        """Return a random generator for one purpose; drawing from it does not change what others draw."""
        return random.Random(f"{self.seed}/{name}")

    def wall_clock(self) -> int:
        """Return the time of the day in nanoseconds since the epoch: the virtual clock, in whole microseconds.

        Trio's virtual time is a sum of floats, whose last digits depend on how often a task woke up.
        """
        return START_NS + round(trio.current_time() * 1e6) * 1000

    def new_id(self) -> str:
        """Return an id that is unique in this run, in the form of a UUID."""
        return str(uuid.UUID(int=self._ids.getrandbits(128), version=4))

    def disk(self, name: str, *, capacity_bytes: int = 1 << 40) -> SimDisk:
        """Return a new, empty disk. What survives its losses of power follows from the seed and the name."""
        return SimDisk(self.stream(f"disk {name}"), capacity_bytes=capacity_bytes)

    def host(self, name: str, *, disk: SimDisk | None = None, link: Link | None = None) -> CallHost:
        """Return what a program on a host of the network takes from outside, all of it from the seed.

        What takes a `trio_cogment.base.host.Host` can be simulated with it: `open_platform(host=world.host("desk"))`.

        Args:
            name: of the host; the machine itself is `world.network.host(name)`.
            disk: its files; without one, a disk that the host has from its first use on.
            link: calls within the process take its latency and jitter; without one they take no time.
        """
        machine = self.network.host(name)

        async def listen(addresses: object = (), port: int = 0) -> list[SimListener]:
            await trio.lowlevel.checkpoint()
            return [machine.listen(port)]

        async def resolve(name: str, _port: int) -> list[str]:
            await trio.lowlevel.checkpoint()
            return [name]

        def in_process(services: Iterable[Service], *, config: RpcConfig | None = None) -> DelayedChannel:
            served = list(services)
            return self.in_process(served, name=served[0].name, link=link, config=config)

        threads_of_host = self._threads.setdefault(name, self.stream(f"threads of {name}"))
        if disk is None and name not in self._disks:
            self._disks[name] = self.disk(f"of {name}")
        return CallHost(
            wall_clock=self.wall_clock,
            new_id=self.new_id,
            secret_bytes=self._secrets.randbytes,
            random=lambda purpose: self.stream(f"{name} {purpose}"),
            connect=machine.connect,
            resolve=resolve,
            listen=listen,
            files=disk or self._disks[name],
            runner=lambda threads: SimRunner(threads, threads_of_host),
            in_process=None if link is None else in_process,
        )

    def sometimes(self, name: str) -> None:
        """Count that the run has reached a situation that some runs should reach."""
        self.counters[name] += 1

    def in_process(
        self, services: Iterable[Service], *, name: str = "", link: Link | None = None, config: RpcConfig | None = None
    ) -> DelayedChannel:
        """Return a channel to services of this process, whose messages take time; see `DelayedChannel`.

        Args:
            services: what can be called.
            name: channels of different names draw different jitter.
            link: the latency and the jitter.
            config: limits.
        """

        def stream(call: str) -> random.Random:
            return self.stream(f"in process {name} {call}")

        return DelayedChannel(services, link or Link(), stream, config=config)

    @asynccontextmanager
    async def open_platform(
        self, participants: Spec | Participants | None = None, *, link: Link | None = None, **options: Any
    ) -> AsyncIterator[Platform]:
        """Run the platform in process: `trio_cogment.open_platform` on the host `platform` of this world.

        Args:
            participants: the types of the project, or the participants.
            link: calls within the process take its latency and jitter; without one they take no time.
            options: see `trio_cogment.open_platform`.
        """
        options = {"host": self.host("platform", link=link), **options}
        async with open_platform(participants, **options) as platform:
            yield platform

    @asynccontextmanager
    async def serve_orchestrator(
        self, host: str = "orchestrator", port: int = 9000, *, rpc_config: RpcConfig | None = None, **options: Any
    ) -> AsyncIterator[Orchestrator]:
        """Run an orchestrator on a host of the network for the time of an `async with` block.

        Its services are served on `port`, and it reaches participants over the network, by the endpoints
        ``grpc://host:port``; its calls to them are noted in the history. Leaving the block stops it in order.

        Args:
            host: where it runs. For `SimHost.crash` to end it, too, run the block in the host's `SimHost.running`.
            port: what it listens on.
            rpc_config: of its server and of its channels.
            options: see `trio_cogment.Orchestrator`.
        """
        here = self.network.host(host)

        def channel(
            address: str, port: int, *, tls: ssl.SSLContext | None = None, config: RpcConfig | None = None
        ) -> RecordedCalls:
            if tls is not None:
                raise ValueError("tls: expected None: what OpenSSL draws does not come from the seed")
            return RecordedCalls(here.channel(address, port, config=config), self.history, f"{host}>{address}:{port}")

        orchestrator = Orchestrator(
            rpc_config=rpc_config, **{"host": dataclasses.replace(self.host(host), channel=channel), **options}
        )
        services = orchestrator_services(orchestrator)
        tasks = OwnNursery()
        async with orchestrator, _cancelled_after(tasks) as nursery:
            await nursery.start(partial(serve, services, [here.listen(port)], config=rpc_config))
            yield orchestrator
            await orchestrator.stop()

    @asynccontextmanager
    async def serve_directory(
        self,
        host: str = "directory",
        port: int = 9005,
        *,
        disk: SimDisk | None = None,
        config: DirectoryServerConfig | None = None,
        rpc_config: RpcConfig | None = None,
    ) -> AsyncIterator[DirectoryServer]:
        """Run a directory on a host of the network for the time of an `async with` block.

        Args:
            host: where it runs; from there it looks at the services. As for `serve_orchestrator`, its crash ends the
                directory only within `SimHost.running`.
            port: what it listens on.
            disk: where its file is; without one it has none.
            config: its limits and timeouts.
            rpc_config: of its server and of its channels.
        """
        here = self.network.host(host)
        directory = DirectoryServer(
            path="" if disk is None else "directory",
            config=config,
            rpc_config=rpc_config,
            host=self.host(host, disk=disk),
        )
        tasks = OwnNursery()
        async with directory, _cancelled_after(tasks) as nursery:
            await nursery.start(partial(serve, directory_services(directory), [here.listen(port)], config=rpc_config))
            yield directory
            directory.stop()


@asynccontextmanager
async def _cancelled_after(tasks: OwnNursery) -> AsyncIterator[trio.Nursery]:
    async with tasks as nursery:
        try:
            yield nursery
        finally:
            nursery.cancel_scope.cancel()
