"""A directory with little room, and one that balances load, in simulated worlds; each against a list of its own."""

from __future__ import annotations

import random
from functools import partial
from typing import Any, NamedTuple

import trio

from tests.servers.directory.bench import Told, service_of
from trio_cogment.access import EVERYTHING, Identity
from trio_cogment.api.common_pb2 import StatusReply, StatusRequest
from trio_cogment.base.config import DirectoryServerConfig, RpcConfig
from trio_cogment.base.errors import FailedPreconditionError, ResourceExhaustedError, RpcError, StatusCode
from trio_cogment.rpc import serve
from trio_cogment.servers.directory import DirectoryServer, Inquiry, Service
from trio_cogment.testing import World

LIVES, STEPS = 3, 14
MOST, MOST_OF_ONE, MOST_ALIKE = 9, 4, 2
MOST_BYTES, MOST_BYTES_OF_ONE = 150, 60
LITTLE = DirectoryServerConfig(
    startup_lag_seconds=0,
    max_entries=MOST,
    max_owner_entries=MOST_OF_ONE,
    max_duplicates=MOST_ALIKE,
    max_total_bytes=MOST_BYTES,
    max_owner_bytes=MOST_BYTES_OF_ONE,
)
TOKENS = ("", "secret")
#: The last one is known only by its address: with a token that says whose a registration is.
ACCOUNTS = ("token:ann", "token:bob", "unknown")


class Listed(NamedTuple):
    """A registration, as the list has it."""

    service_id: int
    secret: str
    owner: str
    token: str
    permanent: bool
    reach: str | None
    kind: int
    protocol: int
    host: str
    port: int
    properties: tuple[tuple[str, str], ...]

    @property
    def service(self) -> tuple[Any, ...]:
        return self[6:]

    @property
    def bytes(self) -> int:
        return len(self.host) + sum(len(name) + len(value) for name, value in self.properties)

    def is_of(self, other: Listed) -> bool:
        return (self.owner, self.token) == (other.owner, other.token)


def drawn(rng: random.Random) -> Listed:
    """Draw what is registered next; what is not permanent is a client, which nobody checks."""
    permanent = rng.random() < 0.5
    account, token = rng.choice(ACCOUNTS), rng.choice(TOKENS)
    reach = rng.choice([None, "203.0.113.7"])
    properties = rng.choice([(), (("map", "small"),), (("map", "small"), ("size", "1" * rng.randrange(20)))])
    owner = "" if token and account == "unknown" else account
    if permanent:
        what = rng.choice([4, 5]), 1, rng.choice(["203.0.113.7", "8.8.8.8"]), 9000, properties
    else:
        what = 3, 3, rng.choice(["client", "c" * rng.randrange(1, 30)]), 0, properties
    return Listed(0, "", owner, token, permanent, reach, *what)


def replaced_by(new: Listed, listed: list[Listed]) -> list[Listed]:
    """Return what goes when it comes: what a permanent one is found by, the newest first; else the oldest like it."""
    own = [one for one in listed if one.is_of(new) and one.permanent == new.permanent]
    if new.permanent:
        return [one for one in reversed(own) if one.kind == new.kind and set(new.properties) <= set(one.properties)]
    alike = [one for one in own if one.service == new.service]
    return alike[: len(alike) - MOST_ALIKE + 1] if len(alike) >= MOST_ALIKE else []


def refused(new: Listed, replaced: list[Listed], listed: list[Listed]) -> str:
    """Return what is said if there is no room for it; nothing if there is."""
    left = [one for one in listed if one not in replaced]
    own = [one for one in left if one.is_of(new)]
    if len(own) >= MOST_OF_ONE:
        return f"max_owner_entries: you have {MOST_OF_ONE} registrations"
    if sum(one.bytes for one in own) + new.bytes > MOST_BYTES_OF_ONE:
        return "max_owner_bytes: you have "
    if len(left) >= MOST:
        return f"the directory has {len(listed)} registrations and takes no more"
    if sum(one.bytes for one in left) + new.bytes > MOST_BYTES:
        return f"the directory has {sum(one.bytes for one in listed)} bytes of registrations; no room"
    return ""


async def within_limits(world: World) -> None:
    """Registering and taking back where there is little room, with restarts."""
    rng = world.stream("little room")
    disk = world.disk("small")
    listed: list[Listed] = []
    for _ in range(LIVES):
        server = DirectoryServer(path="directory", config=LITTLE, host=world.host("small", disk=disk))
        async with server:
            await _is_listed(server, listed)
            for _ in range(STEPS):
                if listed and rng.random() < 0.25:
                    await _take_back(server, listed, rng)
                else:
                    await _register(server, listed, drawn(rng), world)
                await _is_listed(server, listed)
            server.stop()


async def _register(server: DirectoryServer, listed: list[Listed], new: Listed, world: World) -> None:
    replaced = replaced_by(new, listed)
    wanted = refused(new, replaced, listed)
    service = Service(
        kind=new.kind, protocol=new.protocol, host=new.host, port=new.port, properties=dict(new.properties)
    )
    caller = Identity(account=new.owner or "unknown", local=False, grant=EVERYTHING)
    said = ""
    try:
        service_id, secret = await server.register(
            service, permanent=new.permanent, token=new.token, caller=caller, reach=new.reach
        )
    except ResourceExhaustedError as error:
        said = str(error)
    assert said.startswith(wanted), f"{said!r} instead of {wanted!r}"
    assert bool(said) == bool(wanted), f"{said!r}: expected room"
    if wanted:
        world.sometimes("no room in a directory")
        return
    added = new._replace(service_id=service_id, secret=secret)
    assert 0 < service_id < 2**63
    assert len(secret) == 32
    if new.permanent and replaced:
        assert service_id == replaced[0].service_id
        listed[listed.index(replaced[0])] = added
        replaced = replaced[1:]
    else:
        assert service_id not in {one.service_id for one in listed}
        listed.append(added)
    listed[:] = [one for one in listed if one not in replaced]


async def _take_back(server: DirectoryServer, listed: list[Listed], rng: random.Random) -> None:
    one = rng.choice(listed)
    wrong = rng.choice(["", "", "secret", "token", "id"])
    service_id = 1 if wrong == "id" else one.service_id
    secret = rng.choice(listed).secret + "0" if wrong == "secret" else one.secret
    token = one.token + "x" if wrong == "token" else one.token
    try:
        await server.deregister(service_id, secret, token=token)
    except FailedPreconditionError:
        assert wrong
        return
    assert not wrong
    listed.remove(one)


async def _is_listed(server: DirectoryServer, listed: list[Listed]) -> None:
    assert server.count == len(listed)
    for token in TOKENS:
        found = await server.find(Inquiry(), token=token)
        kept = {
            (
                *(entry.service_id, entry.owner, entry.permanent, entry.reach),
                *(entry.service.kind, entry.service.protocol, entry.service.host, entry.service.port),
                tuple(sorted(entry.service.properties.items())),
            )
            for entry in found
        }
        wanted = {
            (one.service_id, one.owner, one.permanent, one.reach, *one.service) for one in listed if one.token == token
        }
        assert kept == wanted
        for entry in found:
            data = entry.data()
            assert (data.service_id, data.permanent) == (entry.service_id, entry.permanent)
            assert (data.details.type, data.endpoint.protocol) == (entry.service.kind, entry.service.protocol)
            assert (data.endpoint.host, data.endpoint.port) == (entry.service.host, entry.service.port)
            assert dict(data.details.properties) == dict(entry.service.properties)


#: What services say of their load, and what it means: 255 is full, and what is not a number from 0 to 255 is nothing.
LOADS = {"0": 0, "5": 5, "10": 10, "11": 11, "007": 7, "100": 100, "254": 254, "255": 255} | dict.fromkeys(
    ("256", "x", "", " 5", "0005", "٣"), 0
)
SERVICES, PORT = 4, 9000
BALANCED = DirectoryServerConfig(load_balancing=True, startup_lag_seconds=0)
HASTY = RpcConfig(client_keepalive_seconds=10, keepalive_seconds=5, keepalive_timeout_seconds=5)


class Shy(Told):
    """One that says nothing of its load, but its version."""

    async def Status(self, request: StatusRequest, _call: Any) -> StatusReply:
        self.asked += 1
        raise RpcError(StatusCode.UNIMPLEMENTED, "no status")


async def by_load(world: World) -> None:
    """Those with the lowest load are shown; one that is gone is hidden, and forgotten after two minutes."""
    rng = world.stream("loads")
    hosts = {f"loaded-{number}": Shy() if number == 0 else Told(rng.choice(list(LOADS))) for number in range(SERVICES)}
    server = DirectoryServer(config=BALANCED, host=world.host("balanced"), rpc_config=HASTY)
    async with server, trio.open_nursery() as nursery:
        for name, told in hosts.items():
            await nursery.start(partial(serve, [service_of(told)], [world.network.host(name).listen(PORT)]))
            await server.register(Service(kind=4, protocol=1, host=name, port=PORT))
        for _ in range(3):
            await _lowest_are_shown(server, {name: _load_of(told) for name, told in hosts.items()})
            for told in hosts.values():
                told.load = rng.choice(list(LOADS))
                told.asked = 0
            await trio.sleep(45)
            # Every ten seconds, and it is seen once a second that it is time.
            assert all(4 <= told.asked <= 5 for told in hosts.values()), [told.asked for told in hosts.values()]
        gone = rng.choice(list(hosts))
        world.network.host(gone).crash()
        del hosts[gone]
        await trio.sleep(30)
        await _lowest_are_shown(server, {name: _load_of(told) for name, told in hosts.items()})
        await trio.sleep(80)
        assert server.count == SERVICES
        await trio.sleep(40)
        assert server.count == SERVICES - 1
        server.stop()
        nursery.cancel_scope.cancel()


def _load_of(told: Told) -> int:
    return 0 if isinstance(told, Shy) else LOADS[told.load]


async def _lowest_are_shown(server: DirectoryServer, loads: dict[str, int]) -> None:
    most = min(min(loads.values()) + 10, 254)
    shown = {entry.service.host for entry in await server.find(Inquiry(kind=4))}
    assert shown == {name for name, load in loads.items() if load <= most}, loads
