"""Attacks on what all callers have together, from one address; and what somebody at another address does meanwhile.

They go to `_attack_stage.py`. The attacker comes from `ATTACKER`, others from 127.0.0.1: without tokens, that is who
they are to the server. `HONEST` has, for each attack, what a newcomer wants: a world, a seat, a socket.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
from _attack_target import OWN_CONNECTION, Target
from _attacks_web import BINARY, frame, request, upgrade

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb

HERE = "127.0.0.1"
ATTACKER = "127.0.0.66"
_TEXT = 0x81
_STUDY = "/experiment/study/socket"
_PROCESS = "/dm_env_rpc.v1.Environment/Process"


class Browser:
    """One connection that speaks HTTP/1.1 and WebSocket from an address."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int, address: str, *, most_bytes: int = 2**24) -> Browser:
        """Connect; of what is sent here that nobody has asked for, little more than `most_bytes` is read."""
        return cls(*await asyncio.open_connection(HERE, port, local_addr=(address, 0), limit=most_bytes))

    async def ask(self, method: str, path: str, body: Any = None, token: str = "") -> Any:
        """Make a request; return the status and the document."""
        self.begin(method, path, body, token)
        return await self._answer()

    def begin(self, method: str, path: str, body: Any = None, token: str = "") -> None:
        """Make a request, and do not read the answer."""
        data = b"" if body is None else json.dumps(body).encode()
        fields = [f"content-length: {len(data)}", "content-type: application/json"]
        if token:
            fields.append(f"cogment-actor-trial-token: {token}")
        self._writer.write(request(path, *fields, method=method) + data)

    async def _answer(self) -> tuple[int, Any]:
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
        data = await self._reader.readexactly(int(fields.get("content-length", 0)))
        return int(head.split()[1]), data

    async def socket(self, path: str) -> bool:
        """Begin to speak WebSocket; False: it is refused."""
        self._writer.write(upgrade(path))
        status, _ = await self._answer()
        return status == 101

    def say(self, message: Any, *, text: bool = False) -> None:
        self._writer.write(frame(_TEXT if text else BINARY, json.dumps(message).encode()))

    async def hear(self) -> bytes:
        """Return the next message; pings are left out."""
        while True:
            first, size = await self._reader.readexactly(2)
            if size == 126:
                size = int.from_bytes(await self._reader.readexactly(2), "big")
            elif size == 127:
                size = int.from_bytes(await self._reader.readexactly(8), "big")
            data = await self._reader.readexactly(size)
            if first & 0x0F in (1, 2):
                return data
            if first & 0x0F == 8:
                raise ConnectionResetError("the server has closed it")

    async def page_says(self, wanted: str) -> Any:
        """Return a field of the first message to a page that has it."""
        while True:
            data = await self.hear()
            size = int.from_bytes(data[:4], "big")
            message = json.loads(data[4 : 4 + size])
            if message.get(wanted) is not None:
                return message[wanted]

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def _relayed(target: Target) -> AsyncIterator[int]:
    """Have a port by which gRPC reaches the server from the attacker's address."""

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(HERE, target.port, local_addr=(ATTACKER, 0))
        with suppress(OSError):
            await asyncio.gather(_pipe(reader, there[1]), _pipe(there[0], writer))

    async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with await asyncio.start_server(one, HERE, 0) as server:
        yield server.sockets[0].getsockname()[1]


class Agent:
    """A client of dm_env_rpc."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        serialize, parse = pb.EnvironmentRequest.SerializeToString, pb.EnvironmentResponse.FromString
        self._call = channel.stream_stream(_PROCESS, serialize, parse)()

    @classmethod
    @asynccontextmanager
    async def at(cls, port: int, **options: int) -> AsyncIterator[Agent]:
        """Be one, which leaves in the end."""
        given = [(name.replace("_", ".", 1), value) for name, value in options.items()]
        async with grpc.aio.insecure_channel(f"{HERE}:{port}", options=[OWN_CONNECTION, *given]) as channel:
            agent = cls(channel)
            yield agent
            agent._call.cancel()

    async def ask(self, request: pb.EnvironmentRequest) -> pb.EnvironmentResponse:
        await self.begin(request)
        answer: pb.EnvironmentResponse = await self._call.read()
        return answer

    async def begin(self, request: pb.EnvironmentRequest) -> None:
        """Make a request, and do not read the answer."""
        await self._call.write(request)


async def worlds_left(target: Target) -> None:
    """Clients of dm_env_rpc that create 100 worlds each and leave, one after the other."""
    create = pb.EnvironmentRequest(create_world=pb.CreateWorldRequest())

    async with _relayed(target) as port:

        async def one(_: int) -> None:
            async with Agent.at(port) as agent:
                for _ in range(target.many(100)):
                    answer = await agent.ask(create)
                    if answer.HasField("error"):
                        target.count("RESOURCE_EXHAUSTED", answer.error.message)

        while target.seconds_left:
            await target.in_lanes(2, one, 4)


async def lobby_links(target: Target) -> None:
    """Somebody with the link of a lobby who is ready, gets a seat, and leaves; again and again."""
    path = f"{target.link}socket"

    async def one(_: int) -> None:
        browser = await Browser.open(target.port, ATTACKER)
        if await browser.socket(path):
            browser.say({"type": "hello", "ticket": "", "automated": False})
            browser.say({"type": "ready"})
            await browser.page_says("link")
        browser.close()

    while target.seconds_left:
        await target.in_lanes(4, one, target.many(40))


async def lobby_people(target: Target) -> None:
    """1,500 pages of a lobby at a time that come and go."""
    path = f"{target.link}socket"

    async def one(_: int) -> None:
        browser = await Browser.open(target.port, ATTACKER)
        if await browser.socket(path):
            browser.say({"type": "hello", "ticket": "", "automated": False})
            await browser.page_says("state")
        browser.close()

    while target.seconds_left:
        await target.in_lanes(32, one, target.many(1500))


async def experiment_people(target: Target) -> None:
    """1,500 new people of an experiment at a time, who come and go; one of 16 gets to the game, and leaves it."""

    async def one(number: int) -> None:
        browser = await Browser.open(target.port, ATTACKER)
        if await browser.socket(_STUDY):
            browser.say({"type": "enter", "parameters": {"from": "attack"}})
            await browser.page_says("page")
            if number % 16 == 0:
                browser.say({"type": "turn", "page": "consent", "agrees": True})
                await browser.page_says("seat")
        browser.close()

    while target.seconds_left:
        await target.in_lanes(32, one, target.many(1500))


async def rest_seats(target: Target) -> None:
    """Trials by REST with 100 actors each, in which nobody plays."""
    actors = [{"name": f"a{k}", "actor_class": "player", "implementation": "web"} for k in range(100)]
    body = {"environment": {"implementation": "field"}, "actors": actors}

    async def one(_: int) -> None:
        browser = await Browser.open(target.port, ATTACKER)
        status, document = await browser.ask("POST", "/controller/trials", body)
        if status != 202:
            target.count("RESOURCE_EXHAUSTED" if status == 429 else str(status), document.decode())
        browser.close()

    await target.in_lanes(4, one, target.many(200))
    await asyncio.sleep(target.seconds_left)


async def observations_unread_by_rest(target: Target) -> None:
    """A trial by REST of 300 actors that read nothing, of which each is given the same 3.9 MiB to see."""
    count = target.many(300)
    actors = [{"name": f"a{k}", "actor_class": "player", "implementation": "web"} for k in range(count)]
    starting = await Browser.open(target.port, ATTACKER)
    body = {"environment": {"implementation": "crowd"}, "actors": actors}
    status, document = await starting.ask("POST", "/controller/trials", body)
    if status != 202:
        target.count(str(status), document.decode())
        return
    trial = json.loads(document)
    kept = [starting]

    async def one(number: int) -> None:
        browser = await Browser.open(target.port, ATTACKER, most_bytes=1024)
        kept.append(browser)
        browser.begin("POST", f"/actor/a{number}/{trial['trial_id']}", token=trial["tokens"][f"a{number}"])

    await target.in_lanes(16, one, count)
    await asyncio.sleep(target.seconds_left)
    for browser in kept:
        browser.close()


async def observations_unread_by_agents(target: Target) -> None:
    """A world of dm_env_rpc with 300 agents that read nothing, of which each is given the same 3.9 MiB to see."""
    count = target.many(300)
    create = pb.EnvironmentRequest()
    create.create_world.settings["template"].strings.array.append("crowd")
    create.create_world.settings["start_when"].int64s.array.append(count)
    deaf = {"grpc_http2_lookahead_bytes": 1024, "grpc_http2_bdp_probe": 0}
    async with _relayed(target) as port, AsyncExitStack() as stack:
        owner = await stack.enter_async_context(Agent.at(port))
        made = await owner.ask(create)
        if made.HasField("error"):
            target.count("ERROR", made.error.message)
            return

        async def one(number: int) -> None:
            agent = await stack.enter_async_context(Agent.at(port, **deaf))
            join = pb.EnvironmentRequest()
            join.join_world.world_name = made.create_world.world_name
            join.join_world.settings["actor_name"].strings.array.append(f"a{number}")
            answer = await agent.ask(join)
            if answer.HasField("error"):
                target.count("ERROR", answer.error.message)
                return
            step = pb.EnvironmentRequest()
            step.step.requested_observations.extend(answer.join_world.specs.observations)
            await agent.begin(step)

        await target.in_lanes(16, one, count)
        await asyncio.sleep(target.seconds_left)


async def openenv_sessions(target: Target) -> None:
    """500 sockets of OpenEnv with a trial each, that then say nothing."""
    kept = []

    async def one(_: int) -> None:
        browser = await Browser.open(target.port, ATTACKER)
        kept.append(browser)
        if await browser.socket("/ws"):
            browser.say({"type": "reset", "data": {}}, text=True)
            answer = await browser.hear()
            if b"CAPACITY_REACHED" in answer:
                target.count("RESOURCE_EXHAUSTED", "CAPACITY_REACHED")

    await target.in_lanes(8, one, target.many(500))
    await asyncio.sleep(target.seconds_left)
    for browser in kept:
        browser.close()


# What somebody else wants meanwhile


async def _world(port: int, _link: str) -> bool:
    async with Agent.at(port) as agent:
        created = await agent.ask(pb.EnvironmentRequest(create_world=pb.CreateWorldRequest()))
        name = created.create_world.world_name
        joined = await agent.ask(pb.EnvironmentRequest(join_world=pb.JoinWorldRequest(world_name=name)))
        return not created.HasField("error") and not joined.HasField("error")


async def _game(port: int, link: str) -> bool:
    waiting = await Browser.open(port, HERE)
    if not await waiting.socket(f"{link}socket"):
        return False
    waiting.say({"type": "hello", "ticket": "", "automated": False})
    waiting.say({"type": "ready"})
    seat = await waiting.page_says("link")
    waiting.close()
    playing = await Browser.open(port, HERE)
    found = await playing.socket(f"{seat}socket")
    playing.say({"type": "hello", "ticket": "", "automated": False})
    await playing.page_says("asked")
    playing.say({"type": "resign"})
    playing.close()
    return found


async def _participant(port: int, _link: str) -> bool:
    browser = await Browser.open(port, HERE)
    if not await browser.socket(_STUDY):
        return False
    browser.say({"type": "enter"})
    await browser.page_says("page")
    browser.say({"type": "turn", "page": "consent", "agrees": True})
    await browser.page_says("seat")
    browser.say({"type": "leave"})
    await browser.page_says("end")
    browser.close()
    return True


async def _seat(port: int, _link: str) -> bool:
    browser = await Browser.open(port, HERE)
    actor = {"name": "honest", "actor_class": "player", "implementation": "web"}
    body = {"environment": {"implementation": "field"}, "actors": [actor]}
    status, document = await browser.ask("POST", "/controller/trials", body)
    if status != 202:
        return False
    trial = json.loads(document)
    token = trial["tokens"]["honest"]
    status, _ = await browser.ask("POST", f"/actor/honest/{trial['trial_id']}", token=token)
    browser.close()
    return status == 200


async def _socket(port: int, _link: str) -> bool:
    browser = await Browser.open(port, HERE)
    if not await browser.socket("/ws"):
        return False
    browser.say({"type": "reset", "data": {}}, text=True)
    answer = await browser.hear()
    browser.close()
    return b"observation" in answer


#: By the name of the attack: does what a newcomer wants, and returns whether that is possible.
HONEST: dict[str, Callable[[int, str], Awaitable[bool]]] = {
    "worlds_left": _world,
    "lobby_links": _game,
    "lobby_people": _game,
    "experiment_people": _participant,
    "rest_seats": _seat,
    "observations_unread_by_rest": _seat,
    "observations_unread_by_agents": _world,
    "openenv_sessions": _socket,
}
