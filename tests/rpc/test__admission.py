"""The descriptor that a server has in reserve, and what a refused client is told."""

from __future__ import annotations

import math
import os
import resource
import ssl

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import GOAWAY
from trio_cogment.access import anonymous
from trio_cogment.base.config import RpcConfig
from trio_cogment.base.errors import ResourceExhaustedError
from trio_cogment.rpc import _admission
from trio_cogment.rpc._admission import (
    Admission,
    ReserveDescriptor,
    _descriptor,
    _most_descriptors,
    _refusal,
)

#: This many clients may take the time to read why they are refused.
AT_ONCE = 16


def lowest_free() -> int:
    """Return the number that the next descriptor gets: the lowest one that is free."""
    descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)
    return descriptor


def test_a_descriptor_is_held_in_reserve_and_given_up_for_a_block() -> None:
    number = lowest_free()
    reserve = ReserveDescriptor()
    assert lowest_free() > number
    for _ in range(2):
        with reserve.given_up():
            assert lowest_free() == number
        assert lowest_free() > number
    reserve.close()
    assert lowest_free() == number


def test_it_is_held_again_when_the_block_fails() -> None:
    number = lowest_free()
    reserve = ReserveDescriptor()
    with pytest.raises(ZeroDivisionError), reserve.given_up():
        raise ZeroDivisionError
    assert lowest_free() > number
    reserve.close()


def test_closing_it_twice_closes_nothing_of_others() -> None:
    reserve = ReserveDescriptor()
    reserve.close()
    other = os.open(os.devnull, os.O_RDONLY)
    reserve.close()
    os.close(other)  # fails if it is closed already


def test_one_that_somebody_else_has_taken_is_taken_back_at_the_next_opportunity(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    number = lowest_free()
    reserve = ReserveDescriptor()
    real = os.open

    def none_left(*_: object) -> int:
        raise OSError(24, "Too many open files")

    with reserve.given_up():
        monkeypatch.setattr(os, "open", none_left)
    monkeypatch.setattr(os, "open", real)
    assert lowest_free() == number
    with reserve.given_up():
        assert lowest_free() == number
    assert lowest_free() > number
    reserve.close()


def test_a_refusal_is_one_goaway_that_says_why() -> None:
    reason = "max_connections: there are enough" * 20
    told = _refusal(reason)
    assert int.from_bytes(told[:3], "big") == len(told) - 9
    assert told[3:9] == bytes([GOAWAY, 0, 0, 0, 0, 0])
    assert told[9:13] == bytes(4)  # no call was looked at
    assert int.from_bytes(told[13:17], "big") == 11  # ENHANCE_YOUR_CALM
    assert told[17:].decode() == reason


async def test_the_descriptor_of_a_connection_is_that_of_its_socket() -> None:
    """Below TLS, and TLS in it, too; any other stream has none."""
    ours, theirs = trio.socket.socketpair()
    with ours, theirs:
        stream: trio.abc.Stream = trio.SocketStream(ours)
        for _ in range(3):
            assert _descriptor(stream) == ours.fileno()
            stream = trio.SSLStream(stream, ssl.create_default_context(), server_hostname="here")
    memory, _ = trio.testing.memory_stream_pair()
    assert _descriptor(memory) == -1


async def test_the_last_descriptors_are_not_for_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = trio.socket.socketpair()
    number = ours.fileno()
    with ours, theirs:
        for most, admitted in ((number + 11, True), (number + 10, False), (number + 9, False)):
            monkeypatch.setattr(_admission, "_most_descriptors", lambda most=most: most)
            admission = Admission(RpcConfig(reserved_descriptors=10))
            if admitted:
                admission.admit(trio.SocketStream(ours), anonymous("ipv4:192.0.2.1:4711")).close()
            else:
                with pytest.raises(ResourceExhaustedError, match="the last 10 are not for connections"):
                    admission.admit(trio.SocketStream(ours), anonymous("ipv4:192.0.2.1:4711"))
        memory, _ = trio.testing.memory_stream_pair()
        admission.admit(memory, anonymous("stream")).close()  # which has none


def test_how_many_descriptors_there_are_is_what_the_system_says_now(monkeypatch: pytest.MonkeyPatch) -> None:
    for limits, most in (((100, 200), 100), ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), math.inf)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limits=limits: limits)
        assert _most_descriptors() == most


async def test_refused_clients_are_told_a_few_at_a_time(autojump_clock: trio.testing.MockClock) -> None:
    """They have half a second to read it; who comes meanwhile is only closed."""
    admission = Admission(RpcConfig())
    began = trio.current_time()
    reason = ResourceExhaustedError("max_connections: there are enough")

    async def refuse(far: trio.abc.Stream) -> None:
        await admission.refuse(far, reason)

    pairs = [trio.testing.lockstep_stream_pair() for _ in range(AT_ONCE + 3)]
    async with trio.open_nursery() as nursery:
        for _, far in pairs:
            nursery.start_soon(refuse, far)
            await trio.testing.wait_all_tasks_blocked()
        assert trio.current_time() == began
        assert len(nursery.child_tasks) == AT_ONCE
        for near, _ in pairs[AT_ONCE:]:
            assert await near.receive_some() == b""
        assert b"max_connections" in await pairs[0][0].receive_some()
    assert trio.current_time() == began + 0.5
    async with trio.open_nursery() as nursery:  # all of them may be told again
        near, far = trio.testing.lockstep_stream_pair()
        nursery.start_soon(refuse, far)
        assert b"max_connections" in await near.receive_some()
        assert await near.receive_some() == b""


async def test_what_a_refused_client_still_sends_is_read_or_it_would_not_learn_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[object] = []

    class Noting:
        async def send_all(self, data: bytes) -> None:
            done.append(b"max_connections" in data)

        async def linger(self, limit: int) -> None:
            done.append(limit)

        async def aclose(self) -> None:
            done.append("closed")

    monkeypatch.setattr(_admission, "byte_stream_over", lambda _: Noting())
    _, far = trio.testing.memory_stream_pair()
    await Admission(RpcConfig()).refuse(far, ResourceExhaustedError("max_connections: there are enough"))
    assert done == [True, _admission._TOLD_BYTES, "closed"]


@pytest.mark.parametrize("said", [b"", b"x", bytes(30_000)], ids=len)
async def test_a_refused_client_can_read_why_though_nobody_reads_what_it_has_said(said: bytes) -> None:
    """Closing a socket with unread input would reset the connection, and the reason with it."""
    with trio.fail_after(20):
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        async with listener, trio.open_nursery() as nursery:
            client = await trio.open_tcp_stream("127.0.0.1", listener.socket.getsockname()[1])
            accepted = await listener.accept()
            if said:
                await client.send_all(said)
                await trio.lowlevel.wait_readable(accepted.socket)
            nursery.start_soon(Admission(RpcConfig()).refuse, accepted, ResourceExhaustedError("there are enough"))
            told = b""
            while data := await client.receive_some():
                told += data
            assert told == _refusal("there are enough")
            await client.aclose()


async def test_a_refused_client_that_has_gone_is_no_trouble() -> None:
    near, far = trio.testing.memory_stream_pair()
    await near.aclose()
    await Admission(RpcConfig()).refuse(far, ResourceExhaustedError("max_connections: there are enough"))
    with pytest.raises(trio.ClosedResourceError):
        await far.receive_some()
