"""A page: what it is sent, in which order, and what is dropped for one that does not read."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.play.pages import read_message
from trio_cogment.base.config import PlayConfig
from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.page import Page
from trio_cogment.play.views import page_message


def sent(page: Page) -> list[dict[str, Any]]:
    found = []
    while (data := page.take()) is not None:
        message = read_message(data)
        assert not message.pop("blob")
        found.append(message)
    return found


def noticed(*numbers: int, most: int = 3) -> Page:
    page = Page(PlayConfig(max_notices=most))
    for number in numbers:
        page.notify({"type": "message", "number": number})
    return page


def test_notices_are_sent_each_in_order() -> None:
    page = noticed(1, 2, 3)
    assert [message["number"] for message in sent(page)] == [1, 2, 3]
    assert sent(page) == []


def test_the_oldest_of_too_many_are_dropped_and_counted() -> None:
    lost, *rest = sent(noticed(1, 2, 3, 4, 5))
    assert lost == {"type": "lost", "count": 2}
    assert [message["number"] for message in rest] == [3, 4, 5]


def test_only_the_newest_state_is_sent_and_before_the_notices() -> None:
    page = noticed(1)
    for tick in range(3):
        page.refresh(lambda _, tick=tick: page_message({"type": "seat", "tick": tick}))  # type: ignore[misc]  # of a default no type is inferred
    assert sent(page) == [{"type": "seat", "tick": 2}, {"type": "message", "number": 1}]


def test_what_a_greeting_has_is_no_notice_any_more() -> None:
    page = Page(PlayConfig())
    old, new = {"type": "message", "number": 1}, {"type": "message", "number": 2}
    for notice in (old, new):
        page.notify(notice)
    page.welcome({"history": [old]})
    assert page.greeting == {"history": [old]}
    assert sent(page) == [new]


def test_a_form_is_new_when_it_differs() -> None:
    page = Page(PlayConfig())
    assert [page.new_form(form) for form in ({"a": 1}, {"a": 1}, {"a": 2}, {"a": 1})] == [True, False, True, True]


# Its connection


class Wire:
    """A WebSocket of a test: what the page has said waits in a queue."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self._say, self._said = trio.open_memory_channel[bytes](1000)

    def says(self, *messages: Any) -> None:
        for message in messages:
            self._say.send_nowait(message if isinstance(message, bytes) else json.dumps(message).encode())

    async def send(self, data: bytes) -> None:
        await trio.lowlevel.checkpoint()
        message = read_message(data)
        message.pop("blob")
        self.sent.append(message)

    async def receive(self) -> bytes:
        return await self._said.receive()


ACT = {"type": "act", "tick": 3, "action": {"value": "1"}}


async def test_what_it_says_is_taken_and_pings_are_answered(autojump_clock: MockClock) -> None:
    page, wire, taken = Page(PlayConfig()), Wire(), list[Any]()
    wire.says({"type": "ping", "sent": 12.5, "took": 250}, ACT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(page.serve, wire, taken.append)
        await wait_all_tasks_blocked()
        assert wire.sent == [{"type": "pong", "sent": 12.5}]
        assert page.latency_seconds == 0.25
        assert [(message.tick_id, message.answer) for message in taken] == [(3, {"value": "1"})]
        page.notify({"type": "message", "number": 1})
        page.close()
    assert wire.sent[1:] == [{"type": "message", "number": 1}]


async def test_what_is_refused_is_told_and_only_nonsense_is_counted(autojump_clock: MockClock) -> None:
    def refuse(_: Any) -> None:
        raise InvalidArgumentError("no" * 1000)

    page, wire = Page(PlayConfig(page_burst=1000)), Wire()
    wire.says(*[ACT] * 30)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(page.serve, wire, refuse)
        await wait_all_tasks_blocked()
        assert [message["reason"] for message in wire.sent if message["type"] == "refused"][:1] == ["no" * 250]
        wire.says(*[b"{"] * 19, ACT)
        await wait_all_tasks_blocked()
        assert nursery.child_tasks
        wire.says(b"x" * 2_000_000)
        with trio.fail_after(1):
            await wait_all_tasks_blocked()
        assert not nursery.child_tasks


async def test_one_that_is_not_heard_of_or_says_too_much_is_gone(autojump_clock: MockClock) -> None:
    config = PlayConfig(page_silence_seconds=30, page_burst=5, page_messages_per_second=1)
    began = trio.current_time()
    await Page(config).serve(Wire(), lambda _: None)
    assert trio.current_time() - began == pytest.approx(30)
    page, wire, taken = Page(config), Wire(), list[Any]()
    wire.says(*[ACT] * 20)
    await page.serve(wire, taken.append)
    assert len(taken) == 5
