"""The descriptor that a server has in reserve, and what a refused client is told."""

from __future__ import annotations

import os
import ssl

import pytest
import trio
import trio.testing

from tests.rpc.raw_peer import GOAWAY
from trio_cogment.rpc._admission import ReserveDescriptor, _descriptor, _refusal


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
