"""Names in generated code: identifiers that are valid, and each given once."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable


class Names:
    """The names of a module that are taken.

    Args:
        reserved: those that are taken from the start.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken = set(reserved)

    def take(self, wanted: str, *suffixes: str) -> str:
        """Return a name that is free together with each of its suffixes: the wanted one, or with a number."""
        number, name = 1, wanted
        while any(f"{name}{suffix}" in self._taken for suffix in suffixes or ("",)):
            number += 1
            name = f"{wanted}{number}"
        self._taken.update(f"{name}{suffix}" for suffix in suffixes or ("",))
        return name


def identifier(text: str) -> str:
    """Return a text as an identifier of Python and of JavaScript."""
    name = re.sub(r"[^0-9A-Za-z_]", "_", text)
    return f"_{name}" if not name or name[0].isdigit() or keyword.iskeyword(name) else name


def pascal_case(text: str) -> str:
    """Return a text as the name of a class: `smart_player` as `SmartPlayer`."""
    words = re.findall(r"[0-9A-Za-z]+", text)
    return identifier("".join(word[0].upper() + word[1:] for word in words))


def is_plain(dotted: str) -> bool:
    """Return whether each part of a dotted name can be written as it is."""
    return all(part.isidentifier() and not keyword.iskeyword(part) for part in dotted.split("."))


def module_name(proto: str) -> str:
    """Return the dotted name of a proto's module, as protoc names it."""
    return f"{proto.removesuffix('.proto').replace('-', '_').replace('/', '.')}_pb2"
