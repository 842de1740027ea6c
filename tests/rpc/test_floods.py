"""Floods against a running server: the connection that floods is ended, and a call on another one does not notice."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    PING,
    PREFACE,
    RST,
    WINDOW_UPDATE,
    RawPeer,
    frame,
    message,
    request_headers,
    settings,
)
from tests.rpc.test_limits import ANSWER, GOOD
from tests.rpc.test_limits import FLOODS as FRAMES
from trio_cogment.api.common_pb2 import Action
from trio_cogment.base.config import RpcConfig
from trio_cogment.rpc import Channel, RunningServer, ServerCall, open_listeners, serve
from trio_cogment.rpc._floods import RateLimit
from trio_cogment.rpc._frames import ConnectionFaultError, ErrorCode
from trio_cogment.testing.conformance.channel import COUNT, ECHO, WAIT, CheckService

PATH = b"/trio_cogment.testing.Check/"
CANCEL = b"\0\0\0\x08"
CALM = 11
LIMITED = RpcConfig(
    max_resets=20,
    max_pings=20,
    max_settings=20,
    max_empty_frames=20,
    flood_interval_seconds=1,
    max_concurrent_streams=5,
)

Flood = Callable[[RawPeer, int, int], list[bytes]]


def calls(body: bytes, flags: int = 0, path: bytes = b"Wait", **changes: bytes | None) -> Flood:
    """Calls with this body; nothing is said after it."""

    def flood(peer: RawPeer, first: int, count: int) -> list[bytes]:
        headers = sorted(request_headers(path=PATH + path, **changes), key=lambda pair: pair[0][:1] != b":")
        return [
            piece
            for number in range(first, first + 2 * count, 2)
            for piece in (peer.headers(number, headers), frame(DATA, flags, number, body))
        ]

    return flood


def beyond_the_limit(peer: RawPeer, first: int, count: int) -> list[bytes]:
    """Four calls that stay, beside the one that is there; then each is one too many."""
    wait = request_headers(path=PATH + b"Wait")
    kept = [peer.headers(number, wait) for number in range(3, 11, 2)] if first == 3 else []
    return kept + [peer.headers(number, wait) for number in range(first + 8, first + 8 + 2 * count, 2)]


def on_closed_streams(peer: RawPeer, first: int, count: int) -> list[bytes]:
    closed = [peer.headers(3, request_headers()), frame(RST, 0, 3, CANCEL)] if first == 3 else []
    return [*closed, *[peer.headers(3, request_headers())] * (count - len(closed) // 2)]


def updates(stream: int, increment: int) -> Flood:
    def flood(peer: RawPeer, first: int, count: int) -> list[bytes]:
        closed = [peer.headers(3, request_headers()), frame(RST, 0, 3, CANCEL)] if first == 3 else []
        # What our few frames may bring about is free.
        free = 0 if first == 3 else 500
        return [*closed, *[frame(WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))] * (count + free)]

    return flood


RESET = b"too many calls reset"
EMPTY = b"without content"
FLOODS: list[tuple[str, Flood, bytes]] = [
    *FRAMES,
    ("calls beyond the limit", beyond_the_limit, RESET),
    ("HEADERS on a closed stream", on_closed_streams, RESET),
    ("WINDOW_UPDATE on a closed stream", updates(3, 100_000), EMPTY),
    ("tiny WINDOW_UPDATE, stream", updates(1, 1), EMPTY),
    ("tiny WINDOW_UPDATE, connection", updates(0, 1), EMPTY),
    ("compressed without encoding", calls(message(b"x", 1)), RESET),
    ("flag 2", calls(message(b"x", 2)), RESET),
    ("too long by its prefix", calls(b"\0\x7f\xff\xff\xff"), RESET),
    ("ends inside a message", calls(message(b"xyz")[:-1], END_STREAM), RESET),
    ("GET", calls(b"", END_STREAM, method=b"GET"), RESET),
]


def test_events_count_for_one_interval_each() -> None:
    """The oldest are forgotten first, one by one: in no interval there are more than the limit."""
    now = 0.0
    limit = RateLimit(3, 10, lambda: now, "too many")
    faults = set()

    def admitted(time: float) -> bool:
        nonlocal now
        now = time
        try:
            limit.count()
        except ConnectionFaultError as error:
            faults.add((error.code, str(error)))
            return False
        return True

    assert [admitted(time) for time in (0, 4, 9)] == [True] * 3
    assert [admitted(time) for time in (9, 10, 10.5, 10.5)] == [False, False, True, False]
    assert [admitted(time) for time in (14, 14.5, 14.5, 19, 19.5, 19.5)] == [False, True, False, False, True, False]
    assert [admitted(30) for _ in range(4)] == [True, True, True, False]
    assert faults == {(ErrorCode.ENHANCE_YOUR_CALM, "too many")}


@asynccontextmanager
async def served(service: CheckService, config: RpcConfig | None = None) -> AsyncIterator[RunningServer]:
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            listeners = await open_listeners("127.0.0.1")

            async def run(task_status: Any) -> None:
                await serve([service.service()], listeners, config=config, task_status=task_status)

            yield await nursery.start(run)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(serving: RunningServer) -> AsyncIterator[RawPeer]:
    stream = await trio.open_tcp_stream("127.0.0.1", serving.port)
    peer = RawPeer(stream)
    await peer.send(PREFACE, settings())
    yield peer
    await trio.aclose_forcefully(stream)


@asynccontextmanager
async def neighbour(serving: RunningServer) -> AsyncIterator[Callable[[], Any]]:
    """A call on a connection of its own; what is returned uses it."""
    async with Channel("127.0.0.1", serving.port) as channel, channel.call(ECHO) as call:

        async def check() -> None:
            await call.send(Action(tick_id=7))
            assert (await call.receive()).tick_id == 7

        await check()
        yield check
        await check()


async def ended(peer: RawPeer) -> tuple[int, bytes]:
    """Read to the end; return what the last GOAWAY says."""
    await peer.until(lambda: False)
    payloads = [payload for kind, _, _, payload in peer.frames if kind == GOAWAY]
    return int.from_bytes(payloads[-1][4:8], "big"), payloads[-1][8:]


@pytest.mark.parametrize(("flood", "text"), [f[1:] for f in FLOODS], ids=[f[0] for f in FLOODS])
async def test_a_flood_is_its_own_connections_end(flood: Flood, text: bytes) -> None:
    async with (
        served(CheckService(), LIMITED) as serving,
        neighbour(serving) as check,
        connected(serving) as peer,
    ):
        await peer.send(peer.headers(1, request_headers()))
        assert await peer.echo(1, GOOD) == ANSWER
        await peer.send(*flood(peer, 3, 15))
        assert await peer.echo(1, GOOD) == ANSWER  # as much as is allowed
        assert peer.goaway is None
        await check()
        began = trio.current_time()
        await peer.send(*flood(peer, 1001, 25))
        code, why = await ended(peer)
        assert code == CALM
        assert text in why
        assert trio.current_time() - began < 10
        await check()


def resident() -> int:
    """Return the process's resident memory in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Handlers(CheckService):
    """Counts those of `Wait` that run."""

    def __init__(self) -> None:
        super().__init__()
        self.running = self.most = self.begun = 0

    async def wait(self, call: ServerCall) -> None:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            if call.metadata.first("answer"):
                await call.send_initial_metadata()
            await trio.sleep_forever()
        finally:
            self.running -= 1


@pytest.mark.parametrize("answered", [False, True], ids=["unanswered", "answered"])
async def test_3000_resets_of_a_default_server(answered: bool) -> None:
    """On as many connections as it takes: before the first byte of a response, 200 end one; after it they are free."""
    service = Handlers()
    headers = request_headers(path=WAIT.path.encode(), **({"answer": b"1"} if answered else {}))
    resets = connections = 0
    async with served(service) as serving, neighbour(serving) as check:
        await trio.testing.wait_all_tasks_blocked()
        tasks, memory = trio.lowlevel.current_statistics().tasks_living, resident()
        while resets < 3000:
            connections += 1
            async with connected(serving) as peer:
                number = 1
                while resets < 3000 and not peer.eof:
                    batch = range(number, number + 100, 2)
                    number += 100
                    await peer.send(*[peer.headers(one, headers) for one in batch])
                    if answered:
                        last = peer.answer(batch[-1])
                        await peer.until(lambda last=last: bool(last.headers))
                    await peer.send(*[frame(RST, 0, one, CANCEL) for one in batch], frame(PING, 0, 0, bytes(8)))
                    resets += len(batch)
                    before = len(peer.frames)
                    await peer.until(lambda peer=peer, before=before: any(f[0] == PING for f in peer.frames[before:]))
                    assert service.running <= 50
                if peer.eof:
                    assert peer.goaway == CALM
            await check()
        assert connections == 1 if answered else 12 <= connections <= 16
        assert service.begun >= 1000 if answered else True
        assert service.most <= 2 * 1000 + 100
        while trio.lowlevel.current_statistics().tasks_living > tasks:
            await trio.lowlevel.checkpoint()
        assert service.running == 0
        assert resident() - memory < 16 * 2**20


async def test_a_handler_that_never_reads_holds_little() -> None:
    """Eight calls push sixty MiB each, in messages of 1 KiB and of 1 MiB, as windows allow."""
    service = Handlers()
    async with served(service) as serving, neighbour(serving) as check, connected(serving) as peer:
        await trio.testing.wait_all_tasks_blocked()
        memory = resident()
        headers = request_headers(path=WAIT.path.encode())
        numbers = range(3, 19, 2)
        await peer.send(peer.headers(1, request_headers()), *[peer.headers(one, headers) for one in numbers])
        assert await peer.echo(1, GOOD) == ANSWER
        left = dict.fromkeys(numbers, 60 * 2**20)
        windows = {0: 65_535 - len(message(GOOD)), **dict.fromkeys(numbers, 65_536)}
        small = message(bytes(1019)) * 16
        large = message(bytes(2**20 - 5))
        at = dict.fromkeys(numbers, 0)
        seen = 0
        while True:
            for kind, _, where, payload in peer.frames[seen:]:
                if kind == WINDOW_UPDATE and where in windows:
                    windows[where] += int.from_bytes(payload, "big")
            seen = len(peer.frames)
            sent = False
            for number in numbers:
                body = small if number < 11 else large
                room = min(windows[0], windows[number], 16_384, left[number])
                if room:
                    piece = (body[at[number] :] + body)[:room]
                    at[number] = (at[number] + room) % len(body)
                    await peer.send(frame(DATA, 0, number, piece))
                    for where in (0, number):
                        windows[where] -= room
                    left[number] -= room
                    sent = True
            if not sent:
                await peer.send(frame(PING, 0, 0, bytes(8)))
                await peer.until(lambda seen=seen: any(one[0] == PING for one in peer.frames[seen:]))
                if not any(one[0] == WINDOW_UPDATE for one in peer.frames[seen:]):
                    break
        accepted = sum(60 * 2**20 - rest for rest in left.values())
        assert accepted <= 4 * 65_536 + 4 * (2**20 + 65_536)
        assert resident() - memory < 24 * 2**20
        assert await peer.echo(1, GOOD) == ANSWER  # the call beside them, too
        await check()
        assert service.running == len(numbers)


async def test_refusals_while_draining_are_no_flood() -> None:
    """Who has not heard of the drain opens calls still; they are refused, and those that run go on."""
    async with served(CheckService(), LIMITED) as serving, connected(serving) as peer, trio.open_nursery() as nursery:
        await peer.send(peer.headers(1, request_headers()))
        assert await peer.echo(1, GOOD) == ANSWER
        nursery.start_soon(serving.drain, 60)
        await peer.until(lambda: any(frame[0] == 6 for frame in peer.frames))
        await peer.send(frame(6, 1, 0, next(frame[3] for frame in peer.frames if frame[0] == 6)))
        await peer.until(lambda: sum(frame[0] == GOAWAY for frame in peer.frames) == 2)
        for number in range(3, 203, 2):
            await peer.send(peer.headers(number, request_headers()))
        assert (await peer.until_over(201)).reset == 7
        assert await peer.echo(1, GOOD) == ANSWER
        await peer.send(frame(DATA, END_STREAM, 1))
        assert (await peer.until_over(1)).status == 0
        await trio.aclose_forcefully(peer.stream)


@pytest.mark.parametrize("to", [0, 1])
@pytest.mark.parametrize(("increment", "is_flood"), [(1, True), (1023, True), (1024, False), (5000, False)])
async def test_credits_below_a_kibibyte_are_counted(to: int, increment: int, is_flood: bool) -> None:
    """Larger ones get a peer to its largest window before they become many."""
    async with served(CheckService(), LIMITED) as serving, connected(serving) as peer:
        await peer.send(peer.headers(1, request_headers()))
        assert await peer.echo(1, GOOD) == ANSWER
        one = frame(WINDOW_UPDATE, 0, to, increment.to_bytes(4, "big"))
        await peer.send(*[one] * (LIMITED.max_empty_frames + 500), frame(PING, 0, 0, bytes(8)))
        await peer.until(lambda: any(kind in (PING, GOAWAY) for kind, _, _, _ in peer.frames))
        assert any(kind == GOAWAY for kind, _, _, _ in peer.frames) is is_flood


async def test_small_credits_for_what_was_sent_are_no_flood() -> None:
    """A peer may credit every small message on its own, twice, however many they are."""
    count = 20_000
    async with served(CheckService(), LIMITED) as serving, connected(serving) as peer:
        await peer.send(peer.headers(1, request_headers(path=COUNT.path.encode()), END_HEADERS))
        await peer.send(frame(DATA, END_STREAM, 1, message(Action(tick_id=count).SerializeToString())))
        credited = 0
        answer = peer.answer(1)
        while not answer.ended and not peer.eof:
            await peer.pump()
            sizes = [len(payload) for kind, _, _, payload in peer.frames[credited:] if kind == DATA and payload]
            credited = len(peer.frames)
            increments = [size.to_bytes(4, "big") for size in sizes]
            await peer.send(*[frame(WINDOW_UPDATE, 0, where, one) for one in increments for where in (0, 1)])
        assert answer.status == 0
        assert sum(kind == DATA for kind, _, _, _ in peer.frames) > 1000
