"""Checks of a JSON document that find all that is wrong with it, not only the first. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from trio_cogment.base.errors import InvalidArgumentError

#: The largest integer that all readers of JSON understand; where there is no other limit.
LARGE = 2**53 - 1
#: Of a value that is shown in an error.
_SHOWN_CHARACTERS = 60


class Missing:
    """Stands for a key that is not there."""


MISSING = Missing()


class Findings:
    """What is wrong with a document, in the order in which it was found."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, path: str, expected: str, value: object) -> None:
        """Note that a value is not what was expected."""
        self.texts.append(f"{path}: expected {expected}, got {shown(value)}")

    def text(self, path: str, value: object, least: int = 0, most: int | None = None) -> str:
        """Return a text; the empty one after noting that it is none, or of the wrong length."""
        if isinstance(value, str) and least <= len(value) and (most is None or len(value) <= most):
            return value
        length = f" of {least} to {most} characters" if most is not None else " that is not empty" if least else ""
        self.add(path, f"a text{length}", value)
        return ""

    def choice(self, path: str, value: object, *choices: str) -> str:
        """Return one of some texts; the first after noting that it is none of them."""
        if isinstance(value, str) and value in choices:
            return value
        self.add(path, f"one of {', '.join(choices)}", value)
        return choices[0]

    def integer(self, path: str, value: object, least: int, most: int) -> int:
        """Return an integer within a range; the least after noting that it is none."""
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        expected = f"an integer from {least} to {most}"
        if most == LARGE and not (isinstance(value, int) and value > most):
            expected = f"an integer, {least} or more"
        self.add(path, expected, value)
        return least

    def flag(self, path: str, value: object) -> bool:
        """Return a boolean; False after noting that it is none."""
        if isinstance(value, bool):
            return value
        self.add(path, "true or false", value)
        return False

    def texts_of(self, path: str, value: object) -> tuple[str, ...]:
        """Return a list of texts, without what is no text, which is noted."""
        if not isinstance(value, list):
            self.add(path, "a list of texts", value)
            return ()
        return tuple(self.text(f"{path}[{number}]", item) for number, item in enumerate(value))

    def table(self, path: str, value: object) -> dict[str, Any]:
        """Return an object; an empty one after noting that it is none."""
        if isinstance(value, dict):
            return value
        self.add(path, "an object", value)
        return {}

    def record(
        self, path: str, value: object, required: tuple[str, ...], defaults: Mapping[str, object] | None = None
    ) -> dict[str, Any]:
        """Return the values of an object with known keys: `MISSING` for a required one that is not there."""
        found = self.table(path, value)
        known = (*required, *(defaults or {}))
        prefix = f"{path}." if path else ""
        for name in sorted(found.keys() - set(known)):
            self.texts.append(f"{prefix}{name}: expected one of {', '.join(known)}; there is no such key")
        if isinstance(value, dict):
            for name in required:
                if name not in found:
                    self.texts.append(f"{prefix}{name}: expected a value, got none")
        values = {name: found.get(name, MISSING) for name in required}
        return values | {name: found.get(name, default) for name, default in (defaults or {}).items()}


def shown(value: object) -> str:
    """Return a value as JSON, shortened; for the text of an error."""
    text = json.dumps(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def parse_json(name: str, text: str) -> Any:
    """Return what a JSON text says.

    Raises:
        InvalidArgumentError: it is none; it has a key twice; or it has a number that is not finite.
    """
    try:
        found = json.loads(text, object_pairs_hook=_unique, parse_constant=_not_finite)
        # What could not be written again: a number too large for a float, half of a surrogate pair.
        json.dumps(found, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{name}: expected JSON: {error}") from error
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {shown(name)} is there twice")
        found[name] = value
    return found


def _not_finite(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
