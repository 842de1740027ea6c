"""Access to an OpenEnv server, and what one connection's failure does to the others."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
from trio_websocket import ConnectionClosed, ConnectionRejected, WebSocketConnection, wrap_client_stream
from wsproto.connection import Connection as WsprotoConnection

from tests.gateways.openenv.games import RockPaperScissors, Walk, served
from tests.gateways.openenv.test_server import Client, client, error, observation
from trio_cogment.access import AccessControl, Grant, Keys, Role, Rules
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.gateways.openenv.server import OpenEnvServer
from trio_cogment.sdk import Controller

EVIL = "https://evil.example"


@asynccontextmanager
async def socket_to(
    server: OpenEnvServer, path: str = "/ws", *, host: str = "localhost", **fields: str
) -> AsyncIterator[Client]:
    pairs = [(name.encode(), text.encode()) for name, text in fields.items()]
    async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream, trio.open_nursery() as nursery:
        opened: WebSocketConnection | None = None
        refused: ConnectionRejected | None = None
        try:
            opened = await wrap_client_stream(nursery, stream, host, path, extra_headers=pairs)
        except ConnectionRejected as error:
            refused = error
        if opened is None:
            assert refused is not None
            raise refused
        yield Client(opened)
        nursery.cancel_scope.cancel()


async def refusal(server: OpenEnvServer, path: str = "/ws", **options: str) -> int:
    """Return the status with which a WebSocket is refused."""
    status = 0
    try:
        async with socket_to(server, path, **options):
            pass
    except* ConnectionRejected as errors:
        (rejected,) = [each for each in errors.exceptions if isinstance(each, ConnectionRejected)]
        status = rejected.status_code
    return status


# Origins and hosts


async def test_pages_of_other_origins_take_nobodys_seat() -> None:
    async with served(RockPaperScissors) as (server, platform), client(server) as one:
        await one.say("reset", trial="duel", seat="player_0")
        assert await refusal(server, origin=EVIL) == 403
        assert await refusal(server, origin="null") == 403
        assert await refusal(server, host="evil.example") == 403
        async with httpx.AsyncClient(base_url=server.url) as http:
            plain = {"content-type": "text/plain", "origin": EVIL}
            for path in ("/reset", "/step", "/mcp"):
                assert (await http.post(path, content="{}", headers=plain)).status_code == 403
                # What a page may send without asking first is not taken from anybody.
                assert (await http.post(path, content="{}", headers={"content-type": "text/plain"})).status_code == 415
                assert (await http.post(path, content="{}", headers={"host": "evil.example"})).status_code == 403
            for path in ("/schema", "/metadata", "/state", "/openapi.json", "/health"):
                assert (await http.get(path, headers={"origin": EVIL})).status_code == 403
            asks = {"origin": EVIL, "access-control-request-method": "POST"}
            assert (await http.options("/reset", headers=asks)).status_code == 403
        assert not await platform.controller.trial_infos()
        # The seat is free for the one it is for.
        async with client(server) as two:
            await two.reset(trial="duel", seat="player_1")
            assert observation(await one.hear())["metadata"] == {"seat": "player_0"}


async def test_pages_that_are_allowed() -> None:
    fine = "https://lab.example"
    async with served(Walk, origins=[fine], hosts=["gym.example"]) as (server, _):
        async with socket_to(server, host="gym.example", origin=fine) as socket:
            assert not (await socket.reset())["done"]
        # A page of this machine, which has found the server as this machine.
        async with socket_to(server, origin="http://localhost:3000") as socket:
            assert not (await socket.reset())["done"]
        async with httpx.AsyncClient(base_url=server.url, headers={"origin": fine}) as http:
            asked = await http.options("/reset", headers={"access-control-request-method": "POST"})
            assert (asked.status_code, asked.headers["access-control-allow-methods"]) == (204, "POST")
            answer = await http.post("/reset", json={})
            assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, fine)


# Tokens and roles


async def test_who_may_play_where_callers_are_asked() -> None:
    ids = map(str, itertools.count())
    access = AccessControl(Rules(keys=Keys((b"k" * 32,))), wall_clock=lambda: 1, new_id=lambda: next(ids))

    def token(*roles: Role) -> str:
        return access.mint(Grant(name="ann", roles=frozenset(roles)), 1000.0, ())

    good, other = token(Role.PARTICIPANT), token(Role.OBSERVER)
    async with served(Walk, access=access) as (server, _), httpx.AsyncClient(base_url=server.url) as http:
        assert await refusal(server) == 401
        assert await refusal(server, f"/~{other}/ws") == 403
        assert await refusal(server, "/~nonsense/ws") == 401
        for path in (f"/~{good}/ws", f"/~{token(Role.OPERATOR)}/ws"):
            async with socket_to(server, path) as socket:
                assert not (await socket.reset())["done"]
        async with socket_to(server, authorization=f"Bearer {good}") as socket:
            assert not (await socket.reset())["done"]
        for method, path in (("POST", "/reset"), ("POST", "/step"), ("GET", "/schema"), ("GET", "/metadata")):
            assert (await http.request(method, path)).status_code == 401
            assert (await http.request(method, f"/~{other}{path}")).status_code == 403
            assert (await http.request(method, f"/~{good}{path}")).status_code in (200, 422)
        # A supervisor's probe has no token.
        assert (await http.get("/health")).json() == {"status": "healthy"}


# Failures of one connection


async def broken_frame(monkeypatch: pytest.MonkeyPatch, server: OpenEnvServer) -> None:
    """Have the parser of WebSockets raise what nobody expects, in the task of one connection."""
    parse: Callable[..., None] = WsprotoConnection.receive_data
    async with client(server) as bad:
        await bad.reset()
        servers = [False]

        def planted(self: WsprotoConnection, data: bytes | None) -> None:
            if not self.client and not servers[0]:
                servers[0] = True
                raise RuntimeError("planted")
            parse(self, data)

        monkeypatch.setattr(WsprotoConnection, "receive_data", planted)
        await bad.say("state")
        with trio.fail_after(30), pytest.raises(ConnectionClosed):
            await bad.socket.get_message()
        assert servers[0]


async def broken_start(monkeypatch: pytest.MonkeyPatch, server: OpenEnvServer) -> None:
    """Have the start of one trial raise it, in the task that is the server's."""
    async with client(server) as bad:

        async def planted(*_args: Any, **_options: Any) -> str:
            raise RuntimeError("planted")

        with monkeypatch.context() as patched:
            patched.setattr(Controller, "start_trial", planted)
            patched.setattr(Controller, "start_trial_nowait", lambda *_args, **_options: None)
            code, text = error(await bad.ask("reset"))
        assert (code, text) == ("EXECUTION_ERROR", "the server failed: RuntimeError")


async def broken_end(monkeypatch: pytest.MonkeyPatch, server: OpenEnvServer) -> None:
    """Have the end of one trial raise it, in the task that is the server's."""
    raised = trio.Event()

    async def planted(*_args: Any, **_options: Any) -> None:
        raised.set()
        raise RuntimeError("planted")

    with monkeypatch.context() as patched:
        patched.setattr(Controller, "terminate_trial", planted)
        async with client(server) as bad:
            await bad.reset()
        with trio.fail_after(30):
            await raised.wait()


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("break_one", [broken_frame, broken_start, broken_end])
async def test_what_fails_in_one_connection_ends_no_other(monkeypatch: pytest.MonkeyPatch, break_one: Any) -> None:
    async with served(Walk) as (server, _), client(server) as other:
        await other.reset(seed=1)
        await break_one(monkeypatch, server)
        assert not (await other.step(0))["done"]
        async with client(server) as later:
            assert not (await later.reset())["done"]


async def test_sockets_are_told_that_the_server_goes() -> None:
    async with trio.open_nursery() as nursery:
        async with served(Walk, config=OpenEnvConfig(shutdown_seconds=5.0)) as (server, _):
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            socket = await wrap_client_stream(nursery, stream, "localhost", "/ws")
            await socket.send_message(json.dumps({"type": "reset"}))
            await socket.get_message()
        with trio.fail_after(30), pytest.raises(ConnectionClosed) as closed:
            await socket.get_message()
        assert closed.value.reason is not None
        assert closed.value.reason.code == 1001
        nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(stream)
