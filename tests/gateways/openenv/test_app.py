"""The application without a network: sockets in memory on a virtual clock, and the HTTP routes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing
from trio.testing import MockClock

from tests.gateways.openenv.games import RockPaperScissors, Walk, game_of
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.environments.base import Environment
from trio_cogment.environments.serving import environment
from trio_cogment.environments.spec import RL_SPEC
from trio_cogment.gateways.openenv.app import Application
from trio_cogment.gateways.openenv.schemas import space_in
from trio_cogment.gateways.openenv.trials import Trials
from trio_cogment.platform import open_platform
from trio_cogment.sdk import EnvironmentSession, Participants
from trio_cogment.web.requests import Request
from trio_cogment.web.routing import Router, SocketRoute, Visit


class Socket:
    """A WebSocket as its handler has it; `reads` is whether the client takes what it is sent."""

    def __init__(self, *, reads: bool = True) -> None:
        self.messages_in, self._incoming = trio.open_memory_channel[bytes](100)
        self._outgoing, self.messages_out = trio.open_memory_channel[dict[str, Any]](100 if reads else 0)
        self._scope = trio.CancelScope()
        self._code = 1000

    async def serve(self, application: Application) -> None:
        (route,) = [route for route in application.routes() if isinstance(route, SocketRoute)]
        with self._scope:
            await route.handler(visit("/ws"), self)
            with trio.move_on_after(0.1):
                await self._outgoing.send({"close": self._code})
        self._outgoing.close()

    async def receive(self) -> bytes:
        return await self._incoming.receive()

    async def send(self, data: bytes) -> None:
        await self._outgoing.send(json.loads(data))

    def close_with(self, code: int, reason: str = "") -> None:
        self._code = code

    def say(self, kind: str, **data: Any) -> None:
        self.messages_in.send_nowait(json.dumps({"type": kind, "data": data}).encode())

    def hang_up(self) -> None:
        self._scope.cancel()

    async def hear(self) -> dict[str, Any]:
        """Return the next answer; a closing of the socket as `{"close": code}`."""
        return await self.messages_out.receive()


def visit(path: str, content: bytes = b"", query: str = "") -> Visit:
    headers = ((b"content-type", b"application/json"),) if content else ()
    request = Request("GET", path, query, headers)
    return Visit(request=request, parameters={}, peer="ipv4:127.0.0.1:1", identity=None, body=content)


@asynccontextmanager
async def running(
    made: Environment, *, config: OpenEnvConfig | None = None, implementation: Any = None
) -> AsyncIterator[tuple[Application, trio.Nursery]]:
    participants = Participants(RL_SPEC)
    participants.register_environment(implementation or environment(type(made)))
    config = config or OpenEnvConfig()
    async with open_platform(participants) as platform, trio.open_nursery() as nursery:
        yield Application(Trials(nursery, platform, game_of(made), config), config), nursery
        nursery.cancel_scope.cancel()


async def test_who_says_nothing_is_told_and_dismissed(autojump_clock: MockClock) -> None:
    async with running(Walk(), config=OpenEnvConfig(idle_seconds=100.0)) as (application, nursery):
        socket = Socket()
        nursery.start_soon(socket.serve, application)
        await trio.sleep(99)
        socket.say("reset")
        assert (await socket.hear())["type"] == "observation"
        await trio.sleep(99)
        socket.say("step", value=0)
        assert (await socket.hear())["type"] == "observation"
        assert trio.current_time() >= 198
        answer = await socket.hear()
        assert answer["data"] == {"code": "SESSION_ERROR", "message": "expected a message within 100 s"}
        assert await socket.hear() == {"close": 1001}
        assert trio.current_time() < 310


async def test_who_waits_for_the_others_is_not_idle(autojump_clock: MockClock) -> None:
    config = OpenEnvConfig(idle_seconds=100.0, gather_seconds=10_000.0)
    async with running(RockPaperScissors(), config=config) as (application, nursery):
        one, two = Socket(), Socket()
        nursery.start_soon(one.serve, application)
        one.say("reset", trial="t")
        await trio.sleep(5000)
        nursery.start_soon(two.serve, application)
        two.say("reset", trial="t")
        assert {(await each.hear())["type"] for each in (one, two)} == {"observation"}
        one.say("step", value=0)
        # Now the second is idle, and that is the end of the trial for the first.
        assert (await two.hear())["data"]["code"] == "SESSION_ERROR"
        assert (await one.hear())["data"]["code"] == "EXECUTION_ERROR"


async def test_who_does_not_read_is_given_up(autojump_clock: MockClock) -> None:
    config = OpenEnvConfig(send_seconds=30.0, max_sockets=1)
    async with running(Walk(), config=config) as (application, nursery):
        deaf = Socket(reads=False)
        nursery.start_soon(deaf.serve, application)
        deaf.say("reset")
        await trio.sleep(31)
        # Its place is free.
        socket = Socket()
        nursery.start_soon(socket.serve, application)
        socket.say("reset")
        assert (await socket.hear())["type"] == "observation"


async def test_who_asks_and_does_not_read_is_given_up_at_once(autojump_clock: MockClock) -> None:
    async with running(Walk(), config=OpenEnvConfig(max_sockets=1, send_seconds=1000.0)) as (application, nursery):
        deaf = Socket(reads=False)
        nursery.start_soon(deaf.serve, application)
        for _ in range(40):
            deaf.say("state")
        await trio.sleep(1)
        # What waits for it is sent, and then it is over.
        answers = [message async for message in deaf.messages_out]
        assert 10 < len(answers) < 40


async def test_many_sockets_come_and_go(autojump_clock: MockClock) -> None:
    async with running(Walk(), config=OpenEnvConfig(max_sockets=3)) as (application, nursery):
        for _ in range(10):
            sockets = [Socket() for _ in range(3)]
            for socket in sockets:
                nursery.start_soon(socket.serve, application)
                socket.say("reset")
            for socket in sockets:
                assert (await socket.hear())["type"] == "observation"
                socket.hang_up()
            await trio.testing.wait_all_tasks_blocked()


class Calls:
    """The HTTP routes, called without a connection."""

    def __init__(self, application: Application) -> None:
        self._router = Router(application.routes())

    async def get(self, path: str, query: str = "") -> tuple[int, Any]:
        return await self._call("GET", visit(path, query=query))

    async def post(self, path: str, content: str = "") -> tuple[int, Any]:
        return await self._call("POST", visit(path, content.encode()))

    async def _call(self, method: str, asked: Visit) -> tuple[int, Any]:
        found = self._router.find(asked.request.path)
        assert found is not None
        reply: Any = await found.routes[method].handler(asked)
        assert reply.content_type == b"application/json"
        return reply.status, json.loads(reply.body)


async def test_what_the_server_says_of_itself() -> None:
    async with running(RockPaperScissors()) as (application, _):
        calls = Calls(application)
        assert await calls.get("/health") == (200, {"status": "healthy"})
        _, metadata = await calls.get("/metadata")
        assert (metadata["name"], metadata["description"]) == ("rps_v2", "For tests.")
        _, schema = await calls.get("/schema", "seat=player_1")
        assert schema["seats"] == ["player_0", "player_1"]
        assert space_in(schema["action"]["properties"]["value"]) == RockPaperScissors.action_spaces["player_1"]
        status, answer = await calls.get("/schema", "seat=me")
        assert (status, answer["detail"]) == (422, "seat: expected one of 'player_0', 'player_1'; got 'me'")
        assert (await calls.get("/openapi.json"))[1]["info"]["version"] == "1.0.0"
        state = {"episode_id": None, "step_count": 0, "trial": "", "seat": "", "phase": "new"}
        assert await calls.get("/state") == (200, state)


async def test_calls_without_a_session() -> None:
    async with running(Walk()) as (application, _):
        calls = Calls(application)
        status, answer = await calls.post("/reset", '{"seed": 3}')
        assert (status, answer["done"]) == (200, False)
        assert await calls.post("/reset", '{"seed": 3}') == (200, answer)
        assert (await calls.post("/reset"))[0] == 200
        status, stepped = await calls.post("/step", '{"action": {"value": 1}, "timeout_s": 20}')
        assert (status, stepped["reward"]) == (200, 0.1)


async def test_calls_that_are_refused() -> None:
    config = OpenEnvConfig(max_sockets=1)
    async with running(Walk(), config=config) as (application, nursery):
        calls = Calls(application)

        async def refused(path: str, content: str) -> tuple[int, str]:
            status, found = await calls.post(path, content)
            assert found.keys() >= {"detail", "code"}
            return status, found["detail"]

        assert await refused("/reset", "{") == (400, (await refused("/reset", "{"))[1])
        assert (await refused("/reset", '{"seed": "x"}'))[0] == 422
        assert "trial: expected none" in (await refused("/reset", '{"trial": "t"}'))[1]
        assert (await refused("/step", "{}"))[0] == 422
        assert "expected -1 to 1, got 5" in (await refused("/step", '{"action": {"value": 5}}'))[1]
        assert (await refused("/reset", json.dumps({"options": {"n": 2**70}})))[0] == 422
        socket = Socket()
        nursery.start_soon(socket.serve, application)
        socket.say("state")
        await socket.hear()
        assert (await refused("/reset", "{}"))[0] == 503


async def test_a_game_of_several_needs_sockets() -> None:
    async with running(RockPaperScissors()) as (application, _):
        status, answer = await Calls(application).post("/reset", "{}")
        assert (status, "nobody sits at 'player_1'" in answer["detail"]) == (422, True)


async def test_a_call_takes_no_longer_than_it_may(autojump_clock: MockClock) -> None:
    async def asleep(_session: EnvironmentSession[Any, Any, Any]) -> None:
        await trio.sleep_forever()

    async with running(Walk(), implementation=asleep) as (application, _):
        status, answer = await Calls(application).post("/step", '{"action": {"value": 1}, "timeout_s": 5}')
        assert (status, answer["detail"]) == (409, "expected the trial's answer within 5 s")


async def test_mcp_is_json_rpc() -> None:
    async with running(Walk()) as (application, _):
        for content, code in (("{}", -32600), ("{", -32600), ('{"jsonrpc": "2.0", "method": "x"}', -32601)):
            status, answer = await Calls(application).post("/mcp", content)
            assert (status, answer["error"]["code"]) == (200, code)
