"""The server over real sockets, with a client that knows nothing of it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, wrap_client_stream

from tests.gateways.openenv.games import RockPaperScissors, TakingTurns, Walk, Wide, game_of, served
from trio_cogment.api.common_pb2 import TrialState
from trio_cogment.base.config import OpenEnvConfig
from trio_cogment.gateways.openenv.server import OpenEnvServer, serve_game
from trio_cogment.gateways.openenv.session import MAX_WAITING_MESSAGES


class Client:
    """A client of OpenEnv's WebSocket: one answer for each message."""

    def __init__(self, socket: WebSocketConnection) -> None:
        self.socket = socket

    async def ask(self, kind: str, **data: Any) -> dict[str, Any]:
        await self.say(kind, **data)
        return await self.hear()

    async def say(self, kind: str, **data: Any) -> None:
        message = {"type": kind, "data": data} if kind in ("reset", "step", "mcp") else {"type": kind}
        await self.socket.send_message(json.dumps(message))

    async def hear(self) -> dict[str, Any]:
        with trio.fail_after(30):
            found: dict[str, Any] = json.loads(await self.socket.get_message())
        return found

    async def reset(self, **data: Any) -> dict[str, Any]:
        return observation(await self.ask("reset", **data))

    async def step(self, value: Any) -> dict[str, Any]:
        return observation(await self.ask("step", value=value))

    async def state(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.ask("state"))["data"]
        return found


def observation(answer: dict[str, Any]) -> dict[str, Any]:
    assert answer["type"] == "observation", answer
    found: dict[str, Any] = answer["data"]
    return found


def error(answer: dict[str, Any]) -> tuple[str, str]:
    assert answer["type"] == "error", answer
    return answer["data"]["code"], answer["data"]["message"]


@asynccontextmanager
async def client(server: OpenEnvServer) -> AsyncIterator[Client]:
    # A stream of its own, because trio-websocket leaves it open if the server is the first to close.
    async with (
        await trio.open_tcp_stream("127.0.0.1", server.port) as stream,
        trio.open_nursery() as nursery,
    ):
        yield Client(await wrap_client_stream(nursery, stream, "127.0.0.1", "/ws"))
        nursery.cancel_scope.cancel()


async def walk_to_the_end(walker: Client) -> tuple[int, dict[str, Any]]:
    for steps in range(1, 100):
        told = await walker.step(1)
        if told["done"]:
            return steps, told
    raise AssertionError("there is no end")


async def test_episodes_of_one_agent() -> None:
    async with served(Walk) as (server, platform), client(server) as walker:
        first = await walker.reset(seed=7)
        assert first["reward"] is None
        begin = first["observation"]["value"][0]
        assert first["observation"]["value"][1] == "Infinity"
        steps, last = await walk_to_the_end(walker)
        assert steps == 3 - begin
        assert last["reward"] == 0.1  # 64 bits
        assert last["observation"]["terminated"] is True
        assert last["observation"]["truncated"] is False
        assert last["observation"]["info"] == {"place": 3}
        state = await walker.state()
        assert (state["step_count"], state["seat"], state["phase"]) == (steps, "player_0", "over")
        # An episode that goes on with the generator, and the same one again.
        second = await walker.reset()
        assert (await walker.state())["episode_id"] != state["episode_id"]
        assert await walker.reset(seed=7) == first
        assert await walker.reset() == second
        assert error(await walker.ask("step", value=2))[0] == "VALIDATION_ERROR"
        assert (await walker.step(0))["observation"]["value"] == second["observation"]["value"]
        infos = await platform.controller.trial_infos()
        assert [info.state for info in infos].count(TrialState.RUNNING) == 1


async def test_two_sockets_in_one_trial() -> None:
    async with served(RockPaperScissors) as (server, _), client(server) as one, client(server) as two:
        for _ in range(2):
            await one.say("reset", trial="duel", seat="player_1")
            assert (await two.reset(trial="duel"))["metadata"] == {"seat": "player_0"}
            assert observation(await one.hear())["metadata"] == {"seat": "player_1"}
            states = [await each.state() for each in (one, two)]
            assert states[0]["episode_id"] == states[1]["episode_id"]
            for played in range(1, 6):
                await one.say("step", value=1)
                mine = await two.step(0)
                theirs = observation(await one.hear())
                assert (mine["observation"]["value"], theirs["observation"]["value"]) == (1, 0)
                assert (mine["reward"], theirs["reward"]) == (-1.0, 1.0)
                assert mine["done"] == theirs["done"] == mine["observation"]["truncated"] == (played == 5)


async def test_turns_add_up_their_rewards_and_who_is_out_may_go_on_elsewhere() -> None:
    async with served(TakingTurns) as (server, platform), client(server) as one, client(server) as two:
        await two.say("reset", trial="t", seat="player_1")
        assert (await one.reset(trial="t", seat="player_0"))["observation"]["action_mask"] == [1, 1]
        await one.say("step", value=0)
        assert observation(await two.hear())["reward"] == 1.0
        await two.say("step", value=0)
        assert observation(await one.hear())["reward"] == 2.0  # of both steps
        # The first is out; its trial goes on without it.
        out = await one.step(1)
        assert (out["done"], out["reward"]) == (True, 1.0)
        trial = (await one.state())["episode_id"]
        await one.say("reset", trial="t")
        told = observation(await two.hear())
        assert (told["done"], told["reward"]) == (False, 2.0)
        assert not (await two.step(0))["done"]
        assert (await two.step(1))["done"]
        outcome = await platform.controller.wait_trial(trial)
        assert not outcome.failed
        # In the next trial it is not the second player's turn until the first has acted.
        await two.say("reset", trial="t")
        assert observation(await one.hear())["metadata"] == {"seat": "player_0"}
        await one.say("step", value=0)
        assert observation(await two.hear())["metadata"] == {"seat": "player_1"}


async def test_a_socket_that_vanishes_ends_its_trial_and_no_other() -> None:
    async with (
        served(RockPaperScissors) as (server, platform),
        client(server) as one,
        client(server) as three,
        client(server) as four,
    ):
        async with client(server) as two:
            await two.say("reset", trial="a")
            await one.reset(trial="a")
            await two.hear()
            trial = (await one.state())["episode_id"]
            await three.say("reset", trial="b")
            await four.reset(trial="b")
            await three.hear()
            await one.say("step", value=0)
        code, text = error(await one.hear())
        assert code == "EXECUTION_ERROR"
        assert trial in text
        assert (await platform.controller.wait_trial(trial, check=False)).failed
        # Those of the other trial have noticed nothing.
        await three.say("step", value=0)
        assert (await four.step(0))["reward"] == 0.0
        await three.hear()
        # And who is left may go on.
        await one.say("reset", trial="c")
        await three.say("close")
        assert error(await four.ask("step", value=0))[0] == "EXECUTION_ERROR"
        await four.reset(trial="c")
        await one.hear()


async def test_a_reset_in_the_middle_ends_the_trial() -> None:
    async with served(RockPaperScissors) as (server, _), client(server) as one, client(server) as two:
        await one.say("reset", trial="a")
        await two.reset(trial="a")
        await one.hear()
        await one.say("reset", trial="a")
        assert error(await two.ask("step", value=1))[0] == "EXECUTION_ERROR"
        await two.reset(trial="a")
        await one.hear()


async def test_a_seat_with_a_default_action_may_vanish() -> None:
    async with served(RockPaperScissors, default_actions={"player_1": 2}) as (server, _), client(server) as one:
        async with client(server) as two:
            await two.say("reset", trial="a", seat="player_1")
            await one.reset(trial="a")
            await two.hear()
        told = await one.step(0)
        assert (told["observation"]["value"], told["reward"]) == (2, 1.0)


async def test_an_environment_that_fails_ends_its_trial_alone() -> None:
    async with served(Walk) as (server, _), client(server) as one, client(server) as two:
        await two.reset(seed=1)
        await one.reset(seed=1, options={"fail": True})
        code, text = error(await one.ask("step", value=1))
        assert code == "EXECUTION_ERROR"
        assert "RuntimeError: the floor is gone" in text
        assert not (await two.step(0))["done"]
        await one.reset(seed=1)
        assert not (await one.step(0))["done"]


async def test_what_is_asked_for_in_vain() -> None:
    async with served(RockPaperScissors) as (server, _), client(server) as one, client(server) as two:
        code, text = error(await one.ask("reset"))
        assert code == "VALIDATION_ERROR"
        assert "nobody sits at 'player_1'" in text
        assert (
            error(await one.ask("reset", seat="me"))[1]
            == "reset: seat: expected one of 'player_0', 'player_1'; got 'me'"
        )
        assert error(await one.ask("step", value=1))[0] == "EXECUTION_ERROR"
        await one.say("reset", trial="a", episode_id="e-1", seed=1)
        assert "seed: expected 1" in error(await two.ask("reset", trial="a", seed=2))[1]
        await two.reset(trial="a")
        await one.hear()
        assert (await two.state())["episode_id"] == "e-1"
        await one.say("reset", trial="b", episode_id="e-1")
        assert "episode_id: expected an id that no trial has" in error(await two.ask("reset", trial="b"))[1]
        assert "episode_id" in error(await one.hear())[1]
        too_large = {"n": 2**70}
        await one.say("reset", trial="b", options=too_large)
        assert error(await two.ask("reset", trial="b"))[0] == "VALIDATION_ERROR"
        await one.hear()


async def test_a_reset_waits_for_the_others_so_long() -> None:
    config = OpenEnvConfig(gather_seconds=0.05)
    async with served(RockPaperScissors, config=config) as (server, _), client(server) as one:
        code, text = error(await one.ask("reset", trial="a"))
        assert (code, "nobody came for 'player_1'" in text) == ("EXECUTION_ERROR", True)
        # The seat is free again.
        async with client(server) as two:
            await two.say("reset", trial="a", seat="player_0")
            await one.reset(trial="a", seat="player_1")
            await two.hear()


async def test_more_sockets_than_there_may_be() -> None:
    async with served(Walk, config=OpenEnvConfig(max_sockets=1)) as (server, _), client(server) as one:
        await one.reset()
        async with client(server) as two:
            answer = await two.hear()
            assert answer["data"] == {
                **answer["data"],
                "code": "CAPACITY_REACHED",
                "active_sessions": 1,
                "max_sessions": 1,
            }
            with pytest.raises(ConnectionClosed) as closed:
                await two.hear()
            assert closed.value.reason is not None
            assert closed.value.reason.code == 1013
        await one.step(0)


async def test_more_sockets_of_one_client_than_there_may_be() -> None:
    """Programs on this machine are one; who has another address, or a token, has a share of its own."""
    async with served(Walk, config=OpenEnvConfig(max_sockets=3, max_peer_sockets=1)) as (server, _):
        async with client(server) as one:
            await one.reset()
            async with client(server) as two:
                answer = await two.hear()
                assert answer["data"]["code"] == "CAPACITY_REACHED"
                assert "max_peer_sockets: you have 1 sockets, and 1 are allowed" in answer["data"]["message"]
            await one.step(0)
        async with client(server) as two:
            await two.reset()


async def test_a_socket_that_says_too_much() -> None:
    async with served(RockPaperScissors, config=OpenEnvConfig(max_message_bytes=1000)) as (server, _):
        async with client(server) as loud:
            await loud.socket.send_message("x" * 2000)
            with pytest.raises(ConnectionClosed) as closed:
                await loud.hear()
            assert closed.value.reason is not None
            assert closed.value.reason.code == 1009
        async with client(server) as hasty:
            for _ in range(MAX_WAITING_MESSAGES + 2):
                await hasty.say("reset", trial="never")
            assert error(await hasty.hear())[0] == "SESSION_ERROR"


async def test_bodies_are_no_longer_and_no_slower_than_they_may_be() -> None:
    config = OpenEnvConfig(max_message_bytes=100, send_seconds=0.2)
    async with served(Walk, config=config) as (server, _), httpx.AsyncClient(base_url=server.url) as client:
        answer = await client.post("/reset", content="x" * 200)
        assert (answer.status_code, answer.json()["message"]) == (413, "expected a body of 100 bytes at most")
        assert (await client.post("/reset", json={})).status_code == 200
        async with await trio.open_tcp_stream("127.0.0.1", server.port) as slow:
            await slow.send_all(b"POST /reset HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
            with trio.fail_after(30):
                assert b"408" in await slow.receive_some(12)


async def test_an_address_that_is_taken_is_an_error_of_its_own() -> None:
    async with served(Walk) as (server, platform):
        with pytest.raises(OSError, match="in use"):
            await serve_game(game_of(Walk()), platform, port=server.port)


async def test_who_reads_nothing_does_not_keep_the_server_from_ending() -> None:
    config = OpenEnvConfig(send_seconds=0.2)
    async with await open_deaf_stream() as stream, served(Wide, config=config) as (server, _):
        await stream.socket.connect(("127.0.0.1", server.port))
        await stream.send_all(b"POST /reset HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n")
        # Some of the body is here, so the server is sending the rest.
        with trio.fail_after(30):
            received = 0
            while received < 1000:
                received += len(await stream.receive_some(1000))


async def open_deaf_stream() -> trio.SocketStream:
    """Return a stream that is not connected yet, and that holds little that is not read."""
    own = trio.socket.socket()
    own.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, 4096)
    return trio.SocketStream(own)


async def test_bytes_and_nonsense() -> None:
    async with served(Walk) as (server, _), client(server) as one:
        await one.socket.send_message(b'{"type": "state"}')
        assert (await one.hear())["type"] == "state"
        for text, code in (("{", "INVALID_JSON"), (b"\xff\x00", "INVALID_JSON"), ("{}", "UNKNOWN_TYPE")):
            await one.socket.send_message(text)
            assert error(await one.hear())[0] == code
        assert (await one.ask("mcp", jsonrpc="2.0", method="tools/list", id=1))["data"]["result"] == {"tools": []}
        await one.say("close")
        with pytest.raises(ConnectionClosed):
            await one.hear()
