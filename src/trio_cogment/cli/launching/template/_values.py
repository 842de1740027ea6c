"""The values of templates, how Go writes them, and the error of what is wrong."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import TypeAlias

from trio_cogment.base.errors import InvalidArgumentError

# The error of templates.


class TemplateError(InvalidArgumentError):
    """A template is wrong, or cannot be evaluated with these data; the text quotes the part in question."""


#: None is a variable that is not there, or `nil`.
Value: TypeAlias = str | int | float | bool | Mapping[str, str] | None

_ESCAPES = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    "\\": r"\\",
}


def type_name(value: Value) -> str:
    """Return Go's name of a value's type."""
    if value is None:
        return "<nil>"
    if isinstance(value, Mapping):
        return "map[string]string"
    return {bool: "bool", int: "int", float: "float64", str: "string"}[type(value)]


def described(value: Value) -> str:
    """Return a value for errors."""
    if isinstance(value, str):
        return f"the text {value!r}"
    if isinstance(value, Mapping):
        return "all variables"
    return "nothing" if value is None else f"{type_name(value)} {plain(value)}"


def is_true(value: Value) -> bool:
    """Tell whether a value counts as true: it is not empty, zero, false or absent."""
    return bool(value)


def plain(value: Value) -> str:
    """Return a value as `%v` has it."""
    if value is None:
        return "<nil>"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return shortest(value)
    if isinstance(value, Mapping):
        return f"map[{' '.join(f'{name}:{value[name]}' for name in sorted(value))}]"
    return str(value)


def shortest(value: float) -> str:
    """Return a float with as many digits as tell it from all others, as Go's `%g` has it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign = "-" if math.copysign(1, value) < 0 else ""
    number = Decimal(repr(abs(value))).normalize() if value else Decimal(0)
    exponent = number.adjusted()
    # Python changes to exponents later.
    if value and not -4 <= exponent < 6:
        digits = "".join(map(str, number.as_tuple().digits))
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    return f"{sign}{number:f}"


def quoted(text: str) -> str:
    """Return a text in double quotes with escapes, as `%q` has it."""
    parts = []
    for one in text:
        if one == '"':
            parts.append('\\"')
        elif one in _ESCAPES:
            parts.append(_ESCAPES[one])
        elif "\udc80" <= one <= "\udcff":  # a byte that is not UTF-8
            parts.append(f"\\x{ord(one) - 0xDC00:02x}")
        elif one.isprintable():
            parts.append(one)
        elif one < "\x80":
            parts.append(f"\\x{ord(one):02x}")
        else:
            parts.append(f"\\u{ord(one):04x}" if ord(one) < 0x10000 else f"\\U{ord(one):08x}")
    return f'"{"".join(parts)}"'


def encoded(text: str) -> bytes:
    """Return the bytes of a text; the environment may have some that are not UTF-8."""
    return text.encode(errors="surrogateescape")
