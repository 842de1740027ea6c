"""The functions that templates may call; `and` and `or` are evaluated where they stand, since they stop early."""

from __future__ import annotations

import html
import json
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trio_cogment.cli.launching.template._printf import sprintf
from trio_cogment.cli.launching.template._values import TemplateError, Value, described, encoded, is_true, plain


def _sprint(values: Sequence[Value]) -> str:
    """Join values, with a blank between two of which neither is a text."""
    parts: list[str] = []
    for place, value in enumerate(values):
        if place and not isinstance(value, str) and not isinstance(values[place - 1], str):
            parts.append(" ")
        parts.append(plain(value))
    return "".join(parts)


def _printf(*values: Value) -> Value:
    template, *arguments = values
    if not isinstance(template, str):
        raise TemplateError(f"printf: expected a text as the format, got {described(template)}")
    return sprintf(template, arguments)


def _println(*values: Value) -> Value:
    return " ".join(map(plain, values)) + "\n"


def _len(value: Value) -> Value:
    if isinstance(value, str):
        return len(encoded(value))
    if isinstance(value, Mapping):
        return len(value)
    raise TemplateError(f"len: expected a text, got {described(value)}")


def _index(value: Value, *keys: Value) -> Value:
    for key in keys:
        if isinstance(value, Mapping) and isinstance(key, str):
            value = value.get(key, "")
        elif isinstance(value, str) and _is_integer(key):
            value = encoded(value)[_place("index", key, len(encoded(value)) - 1)]
        else:
            raise TemplateError(f"index: {described(key)} is not an index of {described(value)}")
    return value


def _slice(value: Value, *ends: Value) -> Value:
    if not isinstance(value, str):
        raise TemplateError(f"slice: expected a text, got {described(value)}")
    data = encoded(value)
    bounds = [_place("slice", end, len(data)) for end in ends]
    if len(bounds) > 2 or bounds != sorted(bounds):
        raise TemplateError("slice: expected at most two places, the lower one first")
    first, end = (*bounds, *[0, len(data)][len(bounds) :])
    return data[first:end].decode(errors="surrogateescape")


def _place(name: str, value: Value, highest: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= highest:
        raise TemplateError(f"{name}: expected a number from 0 to {highest}, got {described(value)}")
    return value


def _is_integer(value: Value) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _html(*values: Value) -> Value:
    # Python has other names for the two quotes.
    return html.escape(_sprint(values)).replace("&quot;", "&#34;").replace("&#x27;", "&#39;").replace("\0", "\ufffd")


def _js(*values: Value) -> Value:
    special = {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}
    return "".join(special.get(one) or (one if one.isprintable() else _unicode(one)) for one in _sprint(values))


def _unicode(one: str) -> str:
    return "".join(f"\\u{ord(half):04X}" for half in one) if ord(one) < 0x10000 else json.dumps(one)[1:-1].upper()


def _urlquery(*values: Value) -> Value:
    return urllib.parse.quote_plus(encoded(_sprint(values)), safe="")


# Comparisons


def _eq(first: Value, *others: Value) -> Value:
    if not others:
        raise TemplateError("eq: expected two values at least")
    return any(_equal("eq", first, other) for other in others)


def _equal(name: str, first: Value, second: Value) -> bool:
    for value in (first, second):
        if isinstance(value, Mapping):
            raise TemplateError(f"{name}: all variables cannot be compared")
    if first is not None and second is not None and type(first) is not type(second):
        raise _incomparable(name, first, second)
    return first == second


def _less(name: str, first: Value, second: Value) -> bool:
    if type(first) is type(second) and isinstance(first, str | int | float) and not isinstance(first, bool):
        return bool(first < second)  # type: ignore[operator]  # they are of one type
    raise _incomparable(name, first, second)


def _incomparable(name: str, first: Value, second: Value) -> TemplateError:
    # The likely case: `eq .PORT 9000`.
    texts = isinstance(first, str) != isinstance(second, str) and None not in (first, second)
    advice = "; variables are texts: write the other value in quotes" if texts else ""
    return TemplateError(f"{name}: cannot compare {described(first)} with {described(second)}{advice}")


def _le(name: str, first: Value, second: Value) -> bool:
    return _less(name, first, second) or _equal(name, first, second)


#: name -> (fewest arguments, most arguments or None, the function).
FUNCTIONS: dict[str, tuple[int, int | None, Callable[..., Value]]] = {
    "and": (1, None, lambda *values: next((value for value in values if not is_true(value)), values[-1])),
    "or": (1, None, lambda *values: next((value for value in values if is_true(value)), values[-1])),
    "not": (1, 1, lambda value: not is_true(value)),
    "len": (1, 1, _len),
    "index": (1, None, _index),
    "slice": (1, 3, _slice),
    "print": (0, None, lambda *values: _sprint(values)),
    "printf": (1, None, _printf),
    "println": (0, None, _println),
    "html": (0, None, _html),
    "js": (0, None, _js),
    "urlquery": (0, None, _urlquery),
    "eq": (1, None, _eq),
    "ne": (2, 2, lambda first, second: not _equal("ne", first, second)),
    "lt": (2, 2, lambda first, second: _less("lt", first, second)),
    "le": (2, 2, lambda first, second: _le("le", first, second)),
    "gt": (2, 2, lambda first, second: not _le("gt", first, second)),
    "ge": (2, 2, lambda first, second: not _less("ge", first, second)),
}


def call(name: str, arguments: Sequence[Any]) -> Value:
    """Call a function.

    Raises:
        TemplateError: the arguments do not fit.
    """
    fewest, most, function = FUNCTIONS[name]
    if len(arguments) < fewest or (most is not None and len(arguments) > most):
        wanted = f"{fewest}" if fewest == most else f"{fewest} or more" if most is None else f"{fewest} to {most}"
        raise TemplateError(f"{name}: expected {wanted} arguments, got {len(arguments)}")
    return function(*arguments)
