"""A directory and clients that register, take back and ask at once, while it crashes and is cut off."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import trio

from tests.models import directory as model
from tests.models.clients import ask
from tests.servers.directory.bench import ENVIRONMENT, METHODS, OTHER, Told, registration, service_of
from tests.servers.directory.test_simulated import HASTY
from trio_cogment.access import EVERYTHING, Identity
from trio_cogment.api.directory_pb2 import DeregisterRequest, InquireRequest, RegisterReply, ServiceDetails
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rpc import CallOpener, serve
from trio_cogment.servers.directory import DirectoryServer, Inquiry, Service
from trio_cogment.testing import CallLog, SimDisk, World

PORT, SERVICE_PORT = 9005, 9000
CLIENTS = ("ann", "bob", "cat")
TURNS = 12
LIVES = 3
KINDS = (ENVIRONMENT, OTHER)
MAPS = ("small", "large")
TOKENS = ("", "", "secret")


class Step(NamedTuple):
    """What a client does next. What is not needed for it has no meaning.

    Attributes:
        what: a name of `STEPS`.
        kind: of service.
        properties: of a service, or asked for.
        permanent: of a registration.
        token: of authentication.
        which: the registration it is about, of all that are known.
        pause: before it, in seconds.
    """

    what: str
    kind: int = ENVIRONMENT
    properties: tuple[tuple[str, str], ...] = ()
    permanent: bool = True
    token: str = ""
    which: int = 0
    pause: float = 0.0


STEPS = (
    *("register", "register", "register", "take back", "wrong secret", "wrong token"),
    *("inquire", "inquire", "inquire", "look"),
)


def draw(rng: random.Random) -> Step:
    """Draw a step."""
    properties = rng.choice([(), (("map", rng.choice(MAPS)),), (("map", rng.choice(MAPS)), ("size", "1"))])
    return Step(
        rng.choice(STEPS),
        rng.choice(KINDS),
        properties,
        rng.random() < 0.6,
        rng.choice(TOKENS),
        rng.randrange(8),
        rng.choice([0.0, 0.0, rng.uniform(0, 2)]),
    )


Alive = Callable[[str], Awaitable[None]]


class Known(NamedTuple):
    """A registration that was confirmed."""

    service_id: int
    secret: str
    token: str
    host: str


class Client:
    """One that registers services, takes them back and asks.

    Args:
        log: where its calls are noted.
        name: of the client.
        directory: what it calls.
        known: what all of them have registered.
        alive: gives services that are checked a host where they answer; without it nothing is checked.
    """

    def __init__(
        self, log: CallLog, name: str, directory: OverWire | InProcess, known: list[Known], alive: Alive | None = None
    ) -> None:
        self._log = log
        self.name = name
        self._directory = directory
        self._known = known
        self._alive = alive
        self._count = 0

    async def do(self, step: Step) -> None:
        """Do a step."""
        await trio.sleep(step.pause)
        self._count += 1
        if step.what == "register":
            await self._register(step)
        elif step.what == "inquire":
            kind = step.kind if step.which % 2 else 0
            await self._inquire(model.Inquire(self._directory.account, kind, step.properties, step.token))
        elif self._known:
            known = self._known[step.which % len(self._known)]
            if step.what == "look":
                await self._inquire(model.Look(self._directory.account, known.service_id, known.token))
                return
            host, secret = ("", "no") if step.what == "wrong secret" else (known.host, known.secret)
            token = "no" if step.what == "wrong token" else known.token
            request = model.Deregister(known.service_id, host, token)
            await ask(self._log, self.name, request, lambda: self._directory.deregister(request, secret))

    async def _inquire(self, request: model.Inquire | model.Look) -> None:
        await ask(self._log, self.name, request, lambda: self._directory.inquire(request))

    async def _register(self, step: Step) -> None:
        host = permanent_host(self.name, self._count)
        permanent = step.permanent or self._alive is None
        if not permanent and self._alive is not None:
            host = f"{self.name}{self._count}"
            await self._alive(host)
        account = self._directory.account
        request = model.Register(account, host, step.kind, step.properties, permanent, step.token)

        async def call() -> int:
            service_id, secret = await self._directory.register(request)
            self._known.append(Known(service_id, secret, request.token, host))
            return service_id

        await ask(self._log, self.name, request, call)


class OverWire:
    """A directory that is called over a channel. All callers that come by a simulated network are one account."""

    account = "unknown"

    def __init__(self, channel: CallOpener) -> None:
        self._channel = channel

    async def register(self, request: model.Register) -> tuple[int, str]:
        sent = registration(
            request.host, dict(request.properties), kind=request.kind, port=SERVICE_PORT, permanent=request.permanent
        )
        (reply,) = await self._exchange("Register", sent, request.token)
        assert reply.status == RegisterReply.OK, reply.error_msg
        return reply.service_id, reply.secret

    async def deregister(self, request: model.Deregister, secret: str) -> str:
        sent = DeregisterRequest(service_id=request.service_id, secret=secret)
        (reply,) = await self._exchange("Deregister", sent, request.token)
        return model.OK if reply.status == RegisterReply.OK else model.FAILED

    async def inquire(self, request: model.Inquire | model.Look) -> tuple[model.Shown, ...]:
        if isinstance(request, model.Look):
            sent = InquireRequest(service_id=request.service_id)
        else:
            kind: Any = request.kind
            sent = InquireRequest(details=ServiceDetails(type=kind, properties=dict(request.properties)))
        found = [reply.data for reply in await self._exchange("Inquire", sent, request.token)]
        return tuple(model.Shown(data.service_id, data.endpoint.host, data.permanent) for data in found)

    async def _exchange(self, method: str, request: Any, token: str) -> list[Any]:
        metadata = {"authentication-token": token} if token else {}
        async with self._channel.call(METHODS[method], metadata=metadata) as call:
            await call.send(request)
            await call.done_sending()
            return [reply async for reply in call]


class InProcess:
    """A directory that is called as an object, by an account of one's own."""

    def __init__(self, server: DirectoryServer, account: str) -> None:
        self._server = server
        self.account = account
        self._caller = Identity(account=f"ipv4:{account}", local=False, grant=EVERYTHING)

    async def register(self, request: model.Register) -> tuple[int, str]:
        service = Service(kind=request.kind, protocol=1, host=request.host, port=1, properties=dict(request.properties))
        return await self._server.register(
            service, permanent=request.permanent, token=request.token, caller=self._caller
        )

    async def deregister(self, request: model.Deregister, secret: str) -> str:
        try:
            await self._server.deregister(request.service_id, secret, token=request.token)
        except FailedPreconditionError:
            return model.FAILED
        return model.OK

    async def inquire(self, request: model.Inquire | model.Look) -> tuple[model.Shown, ...]:
        if isinstance(request, model.Look):
            inquiry = Inquiry(service_id=request.service_id)
        else:
            inquiry = Inquiry(kind=request.kind, properties=dict(request.properties))
        found = await self._server.find(inquiry, token=request.token, caller=self._caller)
        return tuple(model.Shown(entry.service_id, entry.service.host, entry.permanent) for entry in found)


def permanent_host(name: str, count: int) -> str:
    """Return an address that everybody may lead others to."""
    return f"8.{8 + CLIENTS.index(name) if name in CLIENTS else int(name)}.{count // 200}.{count % 200}"


async def that_crashes(world: World) -> CallLog:
    """The directory ends, is cut off and loses its connections; what is checked answers all the time."""
    log = CallLog()
    known: list[Known] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_lives, world, world.disk("directory"))
        nursery.start_soon(_harm, world)
        async with trio.open_nursery() as clients:
            for name in CLIENTS:
                clients.start_soon(_a_client, world, log, name, known, nursery, name=f"client {name}")
        nursery.cancel_scope.cancel()
    world.network.heal()
    return log


async def _lives(world: World, disk: SimDisk) -> None:
    rng = world.stream("crashes")
    host = world.network.host("directory")
    for life in range(LIVES + 1):
        with host.running():
            async with world.serve_directory(disk=disk, rpc_config=HASTY):
                await trio.sleep(rng.uniform(0.5, 6.0) if life < LIVES else 1e6)
                world.sometimes("crash")
                power = rng.random() < 0.5
                if power:
                    disk.crash()
                host.crash(power=power)
                await trio.sleep_forever()
        await trio.sleep(rng.uniform(0.1, 2.0))
        disk.restart()
        host.restart()


async def _harm(world: World) -> None:
    rng = world.stream("harm")
    while True:
        await trio.sleep(rng.uniform(0.5, 4))
        if rng.random() < 0.5:
            for connection in world.network.connections("directory"):
                connection.reset()
            world.sometimes("reset")
        else:
            world.network.partition(["directory"])
            world.sometimes("partition")
            await trio.sleep(rng.uniform(0.5, 3))
            world.network.heal()


async def _a_client(world: World, log: CallLog, name: str, known: list[Known], hosts: trio.Nursery) -> None:
    rng = world.stream(f"client {name}")

    async def alive(host: str) -> None:
        listeners = [world.network.host(host).listen(SERVICE_PORT)]
        await hosts.start(partial(serve, [service_of(Told())], listeners, config=HASTY))

    async with world.network.host(name).channel("directory", PORT, config=HASTY) as channel:
        client = Client(log, name, OverWire(channel), known, alive)
        for _ in range(TURNS):
            await client.do(draw(rng))


async def in_one_process(world: World, scripts: Sequence[Sequence[Step]]) -> CallLog:
    """Clients that do what they are told, in one process; everything is permanent."""
    log = CallLog()
    known: list[Known] = []
    server = DirectoryServer(path="directory", host=world.host("directory", disk=world.disk("directory")))
    async with server:
        async with trio.open_nursery() as nursery:
            for number, script in enumerate(scripts):
                client = Client(log, str(number), InProcess(server, str(number)), known)
                nursery.start_soon(_script, client, script, name=f"client {number}")
        server.stop()
    return log


async def _script(client: Client, script: Sequence[Step]) -> None:
    for step in script:
        await client.do(step)
