"""Refusals are counted, and logged once a second at most."""

from __future__ import annotations

import logging

import pytest
import trio

from trio_cogment.budget.refusals import refusals
from trio_cogment.rpc import open_listeners, serve

Clock = trio.testing.MockClock
_log = logging.getLogger("trio_cogment.test")


async def test_a_flood_is_a_line_a_second(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for number in range(1000):
        refusals().add("knocks", _log, "knock %d", number)
        refusals().add("rings", _log, "ring %d", number)
        await trio.sleep(0.01)
    await trio.sleep(3)
    knocks = [message for message in caplog.messages if "knock" in message]
    assert len(knocks) in (10, 11, 12)
    assert knocks[0] == "knock 0"
    assert knocks[1].startswith("knocks: ")
    assert knocks[-1].endswith("the last: knock 999")
    counted = [int(message.split()[1]) for message in knocks[1:]]
    assert sum(counted) == 999
    assert refusals().counts == {"knocks": 1000, "rings": 1000}
    refusals().add("knocks", _log, "knock again")
    assert caplog.messages[-1] == "knock again"


async def test_one_is_one_line(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    refusals().add("knocks", _log, "knock %s", "once")
    await trio.sleep(10)
    assert caplog.messages == ["knock once"]


async def test_what_is_not_logged_is_counted(autojump_clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for _ in range(5):
        refusals().add("knocks", _log, "knock")
        await trio.sleep(0.3)
    await trio.sleep(3)
    assert not caplog.messages
    assert refusals().counts["knocks"] == 5


async def test_peers_that_speak_nonsense_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """The attack: as many connections as one likes, each of them good for a line."""
    caplog.set_level(logging.INFO)
    async with trio.open_nursery() as nursery:
        running = await nursery.start(serve, [], await open_listeners("127.0.0.1"))
        for _ in range(50):
            async with await trio.open_tcp_stream("127.0.0.1", running.port) as stream:
                await stream.send_all(b"GET /\x1b[2J HTTP/1.1\r\n\r\n" * 10)
                with trio.move_on_after(5):
                    while await stream.receive_some():
                        pass
        nursery.cancel_scope.cancel()
    assert refusals().counts["protocol errors"] == 50
    assert len([message for message in caplog.messages if "connection with" in message]) < 10
