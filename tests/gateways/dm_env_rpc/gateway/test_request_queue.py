"""Requests of a connection: who answers them, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from trio_cogment.api.dm_env_rpc import dm_env_rpc_pb2 as pb
from trio_cogment.base.errors import UnavailableError
from trio_cogment.gateways.dm_env_rpc.gateway.request_queue import _IN_A_ROW, _MOST_WAITING, Answer, Requests
from trio_cogment.rpc import RpcError, StatusCode


class Peer:
    """A call without a peer: it notes what is sent, if there is room."""

    batch = 0

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.has_room = True
        self._paused = False
        self.flushed = 0
        self.error: RpcError | None = None
        #: How much had been sent each time that it was resumed.
        self.resumed: list[int] = []

    def send_nowait(self, response: pb.EnvironmentResponse) -> None:
        if self.error is not None:
            raise self.error
        if not self.has_room:
            raise trio.WouldBlock
        self.sent.append(response.create_world.world_name)

    def flush_next(self) -> None:
        self.flushed = len(self.sent) + 1

    async def send(self, response: pb.EnvironmentResponse) -> None:
        await trio.lowlevel.checkpoint()
        self.has_room = True
        self.send_nowait(response)

    def is_paused(self) -> bool:
        return self._paused

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self.resumed.append(len(self.sent))


def request(name: str) -> pb.EnvironmentRequest:
    return pb.EnvironmentRequest(join_world=pb.JoinWorldRequest(world_name=name))


def response(name: str) -> pb.EnvironmentResponse:
    return pb.EnvironmentResponse(create_world=pb.CreateWorldResponse(world_name=name))


class Server:
    """Answers names that begin with `now` at once, with `later` when it is told to, and no others."""

    def __init__(self) -> None:
        self.peer = Peer()
        self.later: list[tuple[str, Callable[[Answer], None]]] = []
        self.by_task: list[str] = []
        call: Any = self.peer
        self.requests = Requests(call, self._answer_now)

    def _answer_now(self, message: pb.EnvironmentRequest, send: Callable[[Answer], None]) -> bool:
        name = message.join_world.world_name
        if name.startswith("now"):
            send(response(name))
        elif name.startswith("later"):
            self.later.append((name, send))
        else:
            return False
        return True

    def receive(self, *names: str) -> None:
        for name in names:
            self.requests.on_message(request(name))

    def finish(self) -> None:
        name, send = self.later.pop(0)
        send(response(name))

    async def run(self) -> None:
        while (message := await self.requests.next()) is not None:
            name = message.join_world.world_name
            self.by_task.append(name)
            await self.peer.send(response(name))


async def test_answers_that_need_no_task() -> None:
    server = Server()
    server.receive("now 1", "now 2")
    assert server.peer.sent == ["now 1", "now 2"]
    server.receive("later 3")
    server.finish()
    assert server.peer.sent[2:] == ["later 3"]
    assert server.peer.flushed == 3


async def test_the_order_stays() -> None:
    server = Server()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        server.receive("later 1", "now 2", "slow 3", "now 4")
        await wait_all_tasks_blocked()
        assert server.peer.sent == []
        server.finish()
        await wait_all_tasks_blocked()
        assert server.peer.sent == ["later 1", "now 2", "slow 3", "now 4"]
        server.receive("slow 5", "now 6")
        await wait_all_tasks_blocked()
        assert server.peer.sent[4:] == ["slow 5", "now 6"]
        server.receive("now 7")
        assert server.peer.sent[6:] == ["now 7"]
        server.requests.on_end(None)


async def test_an_answer_that_takes_memory_is_sent_by_the_task_in_its_place() -> None:
    server = Server()
    room = trio.Event()

    async def large(call: Any) -> None:
        await room.wait()
        await call.send(response("large"))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        server.receive("later 1", "now 2")
        _, send = server.later.pop()
        send(large)
        await wait_all_tasks_blocked()
        assert server.peer.sent == []
        room.set()
        await wait_all_tasks_blocked()
        assert server.peer.sent == ["large", "now 2"]
        server.requests.on_end(None)


async def test_the_task_has_its_turn() -> None:
    server = Server()
    names = [f"now {number}" for number in range(3 * _IN_A_ROW)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        await wait_all_tasks_blocked()
        server.receive(*names)
        assert server.peer.sent == names[:_IN_A_ROW]
        await wait_all_tasks_blocked()
        assert server.peer.sent == names
        assert server.by_task == names[_IN_A_ROW:]
        server.requests.on_end(None)


async def test_a_response_waits_for_room() -> None:
    server = Server()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        server.peer.has_room = False
        server.receive("now 1", "now 2")
        await wait_all_tasks_blocked()
        assert server.peer.sent == ["now 1", "now 2"]
        server.requests.on_end(None)


async def test_no_more_is_read_than_can_wait() -> None:
    server = Server()
    server.receive("later 0", *(f"slow {number}" for number in range(1, _MOST_WAITING)))
    assert not server.peer.is_paused()
    server.receive("slow last")
    assert server.peer.is_paused()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        server.finish()
        await wait_all_tasks_blocked()
        assert not server.peer.is_paused()
        assert len(server.peer.sent) == _MOST_WAITING + 1
        # Once, when half of them are answered, so that it does not pause again at the next request.
        assert server.peer.resumed == [_MOST_WAITING // 2]
        server.requests.on_end(None)


async def test_an_orderly_end_comes_after_the_answers() -> None:
    server = Server()
    server.receive("later 1", "slow 2")
    server.requests.on_end(None)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        await wait_all_tasks_blocked()
        server.finish()
    assert server.peer.sent == ["later 1", "slow 2"]


@pytest.mark.parametrize("names", [(), ("later 1", "slow 2")])
async def test_a_lost_client_is_no_longer_answered(names: tuple[str, ...]) -> None:
    server = Server()
    server.receive(*names)
    server.requests.on_end(RpcError(StatusCode.CANCELLED, "gone"))
    with pytest.raises(RpcError, match="gone"):
        await server.run()
    assert server.by_task == []


async def test_a_client_that_is_lost_while_it_is_answered() -> None:
    server = Server()
    server.peer.error = RpcError(StatusCode.CANCELLED, "gone")
    server.receive("now 1")
    assert server.peer.sent == []


@pytest.mark.parametrize("names", [("later 1", "slow 2"), ("later 1",)])
async def test_a_stop_lets_the_request_in_hand_be_answered(names: tuple[str, ...]) -> None:
    server = Server()
    server.receive(*names)
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            with pytest.raises(UnavailableError, match="the gateway is stopping"):
                await server.run()

        nursery.start_soon(run)
        await wait_all_tasks_blocked()
        server.requests.stop()
        server.receive("now 3")
        await wait_all_tasks_blocked()
        server.finish()
    assert server.peer.sent == ["later 1"]


async def test_requests_that_come_one_by_one_never_need_the_task() -> None:
    server = Server()
    for number in range(100):
        server.peer.batch = number
        server.receive(f"now {number}")
    assert len(server.peer.sent) == 100
