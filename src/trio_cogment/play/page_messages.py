"""Messages of a page: JSON objects, each with a `type`; nothing else is let in."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from trio_cogment.base.errors import InvalidArgumentError

_MAX_NAME = 512
_MAX_TICK = 2**53
_MAX_NUMBER = 1e30
#: How deep JSON may be. Python's own parser raises RecursionError only at its limit, which is the caller's, too.
_MAX_DEPTH = 40


@dataclass(frozen=True, slots=True)
class Act:
    """The person's action for a tick, and the time of the page's clock: milliseconds since the epoch, if it says so."""

    tick_id: int
    answer: Any
    at_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Rate:
    """A reward for somebody."""

    to: str
    value: float


@dataclass(frozen=True, slots=True)
class Say:
    """A message for somebody."""

    to: str
    text: str


@dataclass(frozen=True, slots=True)
class Ping:
    """The page measures how long an answer takes, and says how long the last one took."""

    sent: float
    took: float | None


@dataclass(frozen=True, slots=True)
class Resign:
    """The person gives up the seat, or the place in a lobby."""


@dataclass(frozen=True, slots=True)
class Hello:
    """A page of a lobby begins: who it was before it was loaded again, and whether a program sits at it."""

    ticket: str
    automated: bool


@dataclass(frozen=True, slots=True)
class Ready:
    """The person has read what there is to read."""


PageMessage: TypeAlias = Act | Rate | Say | Ping | Resign | Hello | Ready


def parse(data: bytes) -> PageMessage:
    """Return what a page says.

    Raises:
        InvalidArgumentError: it is nothing of that.
    """
    said = object_in(data)
    reader = _READERS.get(str(said.get("type")))
    if reader is None:
        raise InvalidArgumentError(f"type: expected one of {', '.join(_READERS)}")
    return reader(said)


def object_in(data: bytes) -> dict[str, Any]:
    """Return the JSON object that a page sends.

    Raises:
        InvalidArgumentError: it is none.
    """
    try:
        said = json.loads(data)
    except (ValueError, RecursionError):
        raise InvalidArgumentError("expected JSON") from None
    if not isinstance(said, dict):
        raise InvalidArgumentError("expected a JSON object")
    return said


def _act(said: dict[str, Any]) -> Act:
    tick_id = said.get("tick")
    if type(tick_id) is not int or not 0 <= tick_id < _MAX_TICK:
        raise InvalidArgumentError("tick: expected a number from 0 on")
    answer = said.get("action")
    _check_depth(answer)
    return Act(tick_id, answer, None if said.get("at") is None else _number(said, "at"))


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        if not level:
            return
        inner = (each.values() if isinstance(each, dict) else each if isinstance(each, list) else () for each in level)
        level = [one for many in inner for one in many]
    raise InvalidArgumentError(f"action: expected depth {_MAX_DEPTH} at most")


def _number(said: dict[str, Any], name: str) -> float:
    value = said.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= _MAX_NUMBER:
        raise InvalidArgumentError(f"{name}: expected a number")
    return float(value)


def _text(said: dict[str, Any], name: str, most: int) -> str:
    value = said.get(name)
    if not isinstance(value, str) or len(value) > most:
        raise InvalidArgumentError(f"{name}: expected a text of {most} characters at most")
    try:
        value.encode()
    except UnicodeEncodeError:  # half of a character
        raise InvalidArgumentError(f"{name}: expected a text") from None
    return value


def ping_of(said: dict[str, Any]) -> Ping:
    """Return the ping that a page sends.

    Raises:
        InvalidArgumentError: a time is no number.
    """
    return Ping(_number(said, "sent"), None if said.get("took") is None else _number(said, "took"))


_READERS: dict[str, Callable[[dict[str, Any]], PageMessage]] = {
    "act": _act,
    "reward": lambda said: Rate(_text(said, "to", _MAX_NAME), _number(said, "value")),
    "message": lambda said: Say(_text(said, "to", _MAX_NAME), _text(said, "text", 4000)),
    "ping": ping_of,
    "resign": lambda said: Resign(),
    "hello": lambda said: Hello(_text(said, "ticket", 64), said.get("automated") is True),
    "ready": lambda said: Ready(),
}


class Allowance:
    """How much a page may say: a bucket that fills with time.

    Args:
        per_second: how fast it fills.
        burst: how much is in it at most, and at first.
        now: seconds on any clock.
    """

    def __init__(self, per_second: float, burst: float, now: float) -> None:
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._at = now

    def take(self, now: float) -> bool:
        """Take one; return whether there was one."""
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
