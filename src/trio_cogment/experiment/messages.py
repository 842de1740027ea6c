"""Messages of a participant's page: JSON objects, each with a `type`; nothing else is let in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from trio_cogment.base.errors import InvalidArgumentError
from trio_cogment.experiment.definition import MAX_ANSWER_CHARACTERS
from trio_cogment.play.page_messages import Ping, object_in, ping_of

#: Of a link's parameters so much is kept; platforms put tokens with signatures into links, of a kilobyte or more.
MAX_PARAMETERS = 32
MAX_PARAMETER_CHARACTERS = 4096
_MAX_PARAMETERS_CHARACTERS = 16_384
_MAX_NAME = 64
_MAX_ANSWERS = 200
_MAX_PIXELS = 100_000


@dataclass(frozen=True, slots=True)
class Enter:
    """A page begins.

    Attributes:
        ticket: by which the server knows the browser again; empty: it has none.
        parameters: of the link, all that there are; `kept_parameters` says which of them are kept.
        code: that the person has typed.
        tab: an id of the tab or window, which stays when its page is loaded again; empty: it says none.
        again: it was let in before, and has lost its connection since.
        width, height: of the page, in CSS pixels.
    """

    ticket: str
    parameters: Mapping[str, str]
    code: str
    tab: str
    again: bool
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Turn:
    """The person is done with a page.

    Attributes:
        page: its name.
        answers: to its questions.
        agrees: to a page of consent.
        at_ms: the time of the page's clock, in milliseconds since the epoch.
    """

    page: str
    answers: Mapping[str, Any]
    agrees: bool
    at_ms: float | None


@dataclass(frozen=True, slots=True)
class GoOn:
    """The person has seen how a trial has ended.

    Attributes:
        at_ms: see `Turn`.
    """

    at_ms: float | None


@dataclass(frozen=True, slots=True)
class WayOut:
    """The person is tired of waiting."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The person leaves for good."""


Message: TypeAlias = Enter | Turn | GoOn | WayOut | Leave | Ping


def parse(data: bytes) -> Message:
    """Return what a page says.

    Raises:
        InvalidArgumentError: it is nothing of that.
    """
    said = object_in(data)
    reader = _READERS.get(str(said.get("type")))
    if reader is None:
        raise InvalidArgumentError(f"type: expected one of {', '.join(_READERS)}")
    return reader(said)


def text_of(value: Any, name: str, most: int) -> str:
    """Return a text of a message.

    Raises:
        InvalidArgumentError: it is none, is too long, or has what no text has.
    """
    if not isinstance(value, str) or len(value) > most or "\0" in value:
        raise InvalidArgumentError(f"{name}: expected a text of {most} characters at most")
    return _whole(value, name)


def kept_parameters(
    parameters: Mapping[str, str], keeps: Callable[[str], bool]
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what is kept of a link's parameters, and the names of those which would be, and are too long or many.

    Args:
        parameters: of the link.
        keeps: returns whether a parameter is kept.
    """
    kept: dict[str, str] = {}
    left_out = []
    room = _MAX_PARAMETERS_CHARACTERS
    for name, value in parameters.items():
        if not keeps(name):
            continue
        size = len(name) + len(value)
        fits = len(name) <= _MAX_NAME and len(value) <= MAX_PARAMETER_CHARACTERS and size <= room
        if not fits or len(kept) == MAX_PARAMETERS or "\0" in name + value:
            left_out.append(name[:_MAX_NAME].replace("\0", ""))
        else:
            kept[name] = value
            room -= size
    return kept, tuple(left_out[:MAX_PARAMETERS])


def _whole(value: Any, name: str) -> str:
    try:
        if isinstance(value, str):
            value.encode()
            return value
    except UnicodeEncodeError:  # half of a character
        pass
    raise InvalidArgumentError(f"{name}: expected a text")


def _object(said: dict[str, Any], name: str) -> dict[str, Any]:
    value = said.get(name, {})
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"{name}: expected an object")
    return value


def _pixels(said: dict[str, Any], name: str) -> int:
    value = said.get(name, 0)
    if type(value) is not int or not 0 <= value <= _MAX_PIXELS:
        raise InvalidArgumentError(f"{name}: expected a number of pixels")
    return value


def _enter(said: dict[str, Any]) -> Enter:
    # One that is too long is left out later: it is the platform's, and keeps nobody away.
    parameters = {
        _whole(name, "parameters"): _whole(value, f"parameters: {name[:_MAX_NAME]}")
        for name, value in _object(said, "parameters").items()
    }
    ticket, code = text_of(said.get("ticket", ""), "ticket", 128), text_of(said.get("code", ""), "code", 128)
    tab = text_of(said.get("tab", ""), "tab", 128)
    again = said.get("again") is True
    return Enter(ticket, parameters, code.strip(), tab, again, _pixels(said, "width"), _pixels(said, "height"))


def _turn(said: dict[str, Any]) -> Turn:
    answers = _object(said, "answers")
    if len(answers) > _MAX_ANSWERS:
        raise InvalidArgumentError(f"answers: expected {_MAX_ANSWERS} names at most")
    for name, value in answers.items():
        _check_answer(name, value)
    return Turn(text_of(said.get("page"), "page", _MAX_NAME), answers, said.get("agrees") is True, _at_ms(said))


def _at_ms(said: dict[str, Any]) -> float | None:
    at_ms = said.get("at")
    if at_ms is None:
        return None
    if isinstance(at_ms, bool) or not isinstance(at_ms, int | float) or not abs(at_ms) < 1e15:
        raise InvalidArgumentError("at: expected milliseconds")
    return at_ms


def _check_answer(name: str, value: Any) -> None:
    """Refuse what is no answer to any question; whether it is one to this question comes later."""
    several = value if isinstance(value, list) else [value]
    if len(several) > _MAX_ANSWERS:
        raise InvalidArgumentError(f"answers: {name[:_MAX_NAME]}: expected {_MAX_ANSWERS} values at most")
    for each in several:
        if isinstance(each, str):
            text_of(each, f"answers: {name[:_MAX_NAME]}", MAX_ANSWER_CHARACTERS)
        elif each is not None and not isinstance(each, bool | int | float):
            raise InvalidArgumentError(
                f"answers: {name[:_MAX_NAME]}: expected a text, a number, a truth value or a list"
            )


_READERS: dict[str, Callable[[dict[str, Any]], Message]] = {
    "ping": ping_of,
    "enter": _enter,
    "turn": _turn,
    "go on": lambda said: GoOn(_at_ms(said)),
    "way out": lambda said: WayOut(),
    "leave": lambda said: Leave(),
}
