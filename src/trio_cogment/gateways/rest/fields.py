"""Reading the objects of requests: what each field must be, and errors that name it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from trio_cogment.base.errors import InvalidArgumentError

_DIGITS = re.compile(r"-?[0-9]{1,19}\Z")
_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
#: A list of rewards or of messages in one request.
_MOST_ITEMS = 10_000


def fields_of(value: Any, known: Collection[str], where: str) -> Mapping[str, Any]:
    """Return an object's fields.

    Args:
        value: as JSON.
        known: the names that there are.
        where: names the object in errors; empty for the body itself.

    Raises:
        InvalidArgumentError: it is not an object, or has a field of another name.
    """
    if not isinstance(value, dict):
        raise InvalidArgumentError(f"{where or 'body'}: expected an object")
    for name in value:
        if name not in known:
            raise InvalidArgumentError(f"{_path(where, name)[:200]}: there is no such field; expected {_listed(known)}")
    return value


def _listed(names: Collection[str]) -> str:
    return ", ".join(names)


def _path(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def text(fields: Mapping[str, Any], name: str, where: str = "") -> str:
    """Return a text; empty without one."""
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"{_path(where, name)}: expected a text")
    return value or ""


def number(fields: Mapping[str, Any], name: str, default: float, where: str = "") -> float:
    """Return a number."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgumentError(f"{_path(where, name)}: expected a number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise InvalidArgumentError(f"{_path(where, name)}: expected a finite number")
    return found


def integer(fields: Mapping[str, Any], name: str, default: int, where: str = "") -> int:
    """Return an integer of 64 bits: its digits as a text, as the reference has it, or a number."""
    return as_integer(fields.get(name, default), _path(where, name))


def as_integer(value: Any, what: str) -> int:
    """Return an integer of 64 bits.

    Raises:
        InvalidArgumentError: it is something else; the text begins with `what`.
    """
    if isinstance(value, str) and _DIGITS.match(value):
        value = int(value)
    if type(value) is not int or not _LOWEST <= value <= _HIGHEST:
        raise InvalidArgumentError(f"{what}: expected an integer as a text")
    return value


def items(fields: Mapping[str, Any], name: str) -> list[Any]:
    """Return a list; an empty one without it."""
    value = fields.get(name)
    if value is not None and not isinstance(value, list):
        raise InvalidArgumentError(f"{name}: expected a list")
    if value is not None and len(value) > _MOST_ITEMS:
        raise InvalidArgumentError(f"{name}: expected {_MOST_ITEMS} at most")
    return value or []
