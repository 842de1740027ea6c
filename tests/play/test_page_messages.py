"""Messages of a page: every kind with the limits of its fields, and how much may be said."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.play.page_messages import Act, Allowance, Hello, PageMessage, Ping, Rate, Ready, Resign, Say, parse


def said(**message: Any) -> PageMessage:
    return parse(json.dumps(message).encode())


def deep(levels: int, *, lists: bool = False) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value] if lists else {"x": value}
    return value


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"type": "act", "tick": 0, "action": None}, Act(0, None)),
        ({"type": "act", "tick": 7, "action": {"a": [1]}}, Act(7, {"a": [1]})),
        ({"type": "act", "tick": 7}, Act(7, None)),
        ({"type": "reward", "to": "env", "value": 2}, Rate("env", 2.0)),
        ({"type": "reward", "to": "", "value": -0.5}, Rate("", -0.5)),
        ({"type": "message", "to": "bob", "text": "x" * 4000}, Say("bob", "x" * 4000)),
        ({"type": "ping", "sent": 12.5}, Ping(12.5, None)),
        ({"type": "ping", "sent": 0, "took": 3}, Ping(0.0, 3.0)),
        ({"type": "ping", "sent": 0, "took": None}, Ping(0.0, None)),
        ({"type": "resign"}, Resign()),
        ({"type": "hello", "ticket": "t" * 64}, Hello("t" * 64, False)),
        ({"type": "hello", "ticket": "", "automated": True}, Hello("", True)),
        ({"type": "hello", "ticket": "", "automated": 1}, Hello("", False)),
        ({"type": "ready"}, Ready()),
    ],
)
def test_what_is_read(message: dict[str, Any], expected: PageMessage) -> None:
    assert said(**message) == expected


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({}, "type: expected one of act, reward, message, ping, resign, hello, ready$"),
        ({"type": "leave"}, "type: expected one of"),
        ({"type": ["act"]}, "type: expected one of"),
        ({"type": "act"}, "tick: expected a number from 0 on$"),
        ({"type": "act", "tick": -1}, "tick: expected a number from 0 on$"),
        ({"type": "act", "tick": True}, "tick: expected a number from 0 on$"),
        ({"type": "act", "tick": 1.0}, "tick: expected a number from 0 on$"),
        ({"type": "act", "tick": "1"}, "tick: expected a number from 0 on$"),
        ({"type": "act", "tick": 2**64}, "tick: expected a number from 0 on$"),
        ({"type": "reward", "to": "env"}, "value: expected a number$"),
        ({"type": "reward", "to": "env", "value": True}, "value: expected a number$"),
        ({"type": "reward", "to": "env", "value": "1"}, "value: expected a number$"),
        ({"type": "reward", "to": "env", "value": 1e300}, "value: expected a number$"),
        ({"type": "reward", "to": "env", "value": -1e300}, "value: expected a number$"),
        ({"type": "reward", "value": 1}, "to: expected a text of"),
        ({"type": "reward", "to": 1, "value": 1}, "to: expected a text of"),
        ({"type": "message", "to": "bob", "text": "x" * 4001}, "text: expected a text of 4000 characters at most$"),
        ({"type": "message", "to": "bob", "text": "\ud800"}, "text: expected a text$"),
        ({"type": "message", "to": "b" * 10_000, "text": ""}, "to: expected a text of"),
        ({"type": "ping"}, "sent: expected a number$"),
        ({"type": "ping", "sent": 1, "took": "2"}, "took: expected a number$"),
        ({"type": "hello", "ticket": "t" * 65}, "ticket: expected a text of 64 characters at most$"),
        ({"type": "hello"}, "ticket: expected a text of 64 characters at most$"),
    ],
)
def test_what_is_refused(message: dict[str, Any], expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{expected}"):
        said(**message)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "expected JSON$"),
        (b"\xff", "expected JSON$"),
        (b"[" * 100_000, "expected JSON$"),
        (b"[]", "expected a JSON object$"),
    ],
)
def test_what_is_no_message(data: bytes, expected: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"^{expected}"):
        parse(data)


@pytest.mark.parametrize("lists", [True, False])
def test_an_action_is_only_so_deep(lists: bool) -> None:
    deepest = next(levels for levels in range(1000) if not _taken(deep(levels + 1, lists=lists)))
    assert deepest > 3
    assert _taken(deep(deepest, lists=lists))
    # As deep in one place of many.
    assert not _taken({"a": 1, "b": [deep(deepest, lists=lists)]})


def _taken(action: Any) -> bool:
    try:
        said(type="act", tick=1, action=action)
    except InvalidArgumentError as error:
        return "action: expected depth" not in str(error)
    return True


def test_an_allowance_is_as_much_as_it_holds_and_fills_with_time() -> None:
    allowance = Allowance(2, 3, now=100)
    assert [allowance.take(100) for _ in range(4)] == [True, True, True, False]
    assert [allowance.take(100.5), allowance.take(100.5)] == [True, False]
    assert not allowance.take(100.75)
    assert allowance.take(101)
    assert [allowance.take(200) for _ in range(4)] == [True, True, True, False]
