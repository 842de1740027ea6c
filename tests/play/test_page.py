"""A page: what it is sent, in which order, and what is dropped for one that does not read."""

from __future__ import annotations

from typing import Any

from tests.play.pages import read_message
from trio_cogment.base.config import PlayConfig
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
