"""The application without a network: sockets in memory on a virtual clock, and the HTTP routes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.rl.openenv.games import RockPaperScissors, Walk, game_of
from trio_cogment.config import OpenEnvConfig
from trio_cogment.platform import open_platform
from trio_cogment.rl.environments.base import Environment
from trio_cogment.rl.environments.serving import environment
from trio_cogment.rl.openenv.app import Application
from trio_cogment.rl.openenv.schemas import space_in
from trio_cogment.rl.openenv.trials import Trials
from trio_cogment.rl.spec import RL_SPEC
from trio_cogment.sdk import EnvironmentSession, Participants


class Socket:
    """A WebSocket as ASGI has it; `reads` is whether the client takes what it is sent."""

    def __init__(self, *, reads: bool = True) -> None:
        self.messages_in, self._incoming = trio.open_memory_channel[dict[str, Any]](100)
        self._outgoing, self.messages_out = trio.open_memory_channel[dict[str, Any]](100 if reads else 0)
        self.messages_in.send_nowait({"type": "websocket.connect"})

    async def serve(self, application: Application) -> None:
        scope: dict[str, Any] = {
            "type": "websocket",
            "path": "/ws",
            "headers": [],
            "query_string": b"",
            "subprotocols": [],
        }
        await application.asgi(scope, self._receive, self._send)
        self._outgoing.close()

    async def _receive(self) -> MutableMapping[str, Any]:
        return await self._incoming.receive()

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await self._outgoing.send(dict(message))

    def say(self, kind: str, **data: Any) -> None:
        text = json.dumps({"type": kind, "data": data})
        self.messages_in.send_nowait({"type": "websocket.receive", "text": text})

    def hang_up(self) -> None:
        self.messages_in.send_nowait({"type": "websocket.disconnect", "code": 1006})

    async def hear(self) -> dict[str, Any]:
        """Return the next answer; a closing of the socket as `{"close": code}`."""
        while True:
            message = await self.messages_out.receive()
            if message["type"] == "websocket.close":
                return {"close": message["code"]}
            if message["type"] == "websocket.send":
                found: dict[str, Any] = json.loads(message["text"])
                return found


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
        assert (await deaf.messages_out.receive())["type"] == "websocket.accept"
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
        await deaf.messages_out.receive()
        for _ in range(40):
            deaf.say("state")
        await trio.sleep(1)
        # What waits for it is sent, and then it is over.
        answers = [message async for message in deaf.messages_out]
        assert 10 < len(answers) < 40


async def test_a_connection_that_is_being_closed_is_no_error() -> None:
    """Hypercorn raises this when a client closes while it is sent something."""

    async def send(message: MutableMapping[str, Any]) -> None:
        if message["type"] != "websocket.accept":
            raise trio.BusyResourceError("another task is closing it")

    async with running(Walk()) as (application, nursery):
        socket = Socket()
        socket._send = send  # type: ignore[method-assign]  # the one thing that differs
        nursery.start_soon(socket.serve, application)
        socket.say("reset")
        socket.hang_up()
        with pytest.raises(trio.EndOfChannel):
            await socket.hear()


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


@asynccontextmanager
async def http(application: Application) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(application.asgi)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        yield client


async def test_what_the_server_says_of_itself() -> None:
    async with running(RockPaperScissors()) as (application, _), http(application) as client:
        assert (await client.get("/health")).json() == {"status": "healthy"}
        metadata = (await client.get("/metadata")).json()
        assert (metadata["name"], metadata["description"]) == ("rps_v2", "For tests.")
        schema = (await client.get("/schema", params={"seat": "player_1"})).json()
        assert schema["seats"] == ["player_0", "player_1"]
        assert space_in(schema["action"]["properties"]["value"]) == RockPaperScissors.action_spaces["player_1"]
        answer = await client.get("/schema", params={"seat": "me"})
        assert (answer.status_code, answer.json()["detail"]) == (
            422,
            "seat: expected one of 'player_0', 'player_1'; got 'me'",
        )
        document = (await client.get("/openapi.json")).json()
        assert document["info"]["version"] == "1.0.0"
        state = (await client.get("/state")).json()
        assert state == {"episode_id": None, "step_count": 0, "trial": "", "seat": "", "phase": "new"}
        assert (await client.get("/reset")).status_code == 405


async def test_calls_without_a_session() -> None:
    async with running(Walk()) as (application, _), http(application) as client:
        answer = await client.post("/reset", json={"seed": 3})
        assert answer.status_code == 200
        assert answer.json() == (await client.post("/reset", json={"seed": 3})).json()
        assert answer.json()["done"] is False
        assert (await client.post("/reset")).status_code == 200
        stepped = await client.post("/step", json={"action": {"value": 1}, "timeout_s": 20})
        assert (stepped.status_code, stepped.json()["reward"]) == (200, 0.1)


async def test_calls_that_are_refused() -> None:
    config = OpenEnvConfig(max_sockets=1)
    async with running(Walk(), config=config) as (application, nursery), http(application) as client:

        async def refused(path: str, content: str) -> tuple[int, str]:
            answer = await client.post(path, content=content)
            found = answer.json()
            assert found.keys() >= {"detail", "code"}
            return answer.status_code, found["detail"]

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
    async with running(RockPaperScissors()) as (application, _), http(application) as client:
        answer = await client.post("/reset", json={})
        assert (answer.status_code, "nobody sits at 'player_1'" in answer.json()["detail"]) == (422, True)


async def test_a_call_takes_no_longer_than_it_may(autojump_clock: MockClock) -> None:
    async def asleep(_session: EnvironmentSession[Any, Any, Any]) -> None:
        await trio.sleep_forever()

    async with running(Walk(), implementation=asleep) as (application, _), http(application) as client:
        answer = await client.post("/step", json={"action": {"value": 1}, "timeout_s": 5})
        assert (answer.status_code, answer.json()["detail"]) == (409, "expected the trial's answer within 5 s")


async def test_mcp_is_json_rpc() -> None:
    async with running(Walk()) as (application, _), http(application) as client:
        for content, code in (("{}", -32600), ("{", -32600), ('{"jsonrpc": "2.0", "method": "x"}', -32601)):
            answer = await client.post("/mcp", content=content)
            assert (answer.status_code, answer.json()["error"]["code"]) == (200, code)
