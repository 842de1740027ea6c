"""Call metadata: ordered (name, value) pairs; a name may repeat, and a name ending in `-bin` carries bytes."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TypeAlias

from trio_cogment.base.errors import InvalidArgumentError

Pairs: TypeAlias = Iterable[tuple[str, str | bytes]]

#: HTTP/2 forbids them (RFC 9113, 8.2.2).
_FORBIDDEN = frozenset(["connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"])
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-.")


class Metadata(tuple[tuple[str, str | bytes], ...]):
    """Immutable metadata, in the order of the wire.

    Made from pairs or from a mapping; names are lower-cased and everything is checked, so that a value which could not
    travel never reaches the wire (gRPC over HTTP/2, "Custom-Metadata").

    Raises:
        InvalidArgumentError: an illegal name, one that HTTP/2 forbids, a reserved `grpc-` name, text that is not
            printable ASCII, or a value of the wrong type (bytes belong to `-bin` names only, and those take nothing
            else).
    """

    __slots__ = ()

    def __new__(cls, pairs: Pairs | Mapping[str, str | bytes] = ()) -> Metadata:  # noqa: D102  see the class
        if isinstance(pairs, Metadata):
            return pairs
        # Asked in this order: testing for an abstract class takes longer than all the rest.
        items = pairs.items() if not isinstance(pairs, (tuple, list)) and isinstance(pairs, Mapping) else pairs
        checked = [(_checked_name(name), value) for name, value in items]
        return super().__new__(cls, [(name, _checked_value(name, value)) for name, value in checked])

    @classmethod
    def from_wire(cls, pairs: Iterable[tuple[str, str | bytes]]) -> Metadata:
        """Wrap pairs that the transport has decoded and checked already."""
        return super().__new__(cls, list(pairs))

    def first(self, name: str) -> str | bytes | None:
        """Return the first value of `name`, or None."""
        for key, value in self:
            if key == name:
                return value
        return None

    def all(self, name: str) -> list[str | bytes]:
        """Return every value of `name`, in order."""
        return [value for key, value in self if key == name]

    def texts(self, name: str) -> list[str]:
        """Return every text value of `name`, in order (names without `-bin` carry only text)."""
        return [value for key, value in self if key == name and isinstance(value, str)]


def basic_auth(username: str, password: str) -> tuple[str, str]:
    """Return the metadata of HTTP basic authentication (RFC 7617), for proxies that ask for it.

    Raises:
        InvalidArgumentError: the user name contains a colon.
    """
    if ":" in username:
        raise InvalidArgumentError("username: expected no colon (RFC 7617)")
    return "authorization", f"Basic {base64.b64encode(f'{username}:{password}'.encode()).decode()}"


@lru_cache(maxsize=256)  # there are few names, and each is in every call
def _checked_name(name: str) -> str:
    lowered = name.lower()
    if not lowered or not _NAME_CHARACTERS.issuperset(lowered):
        raise InvalidArgumentError(f"metadata name {name!r}: expected letters, digits, '_', '-' and '.'")
    if lowered in _FORBIDDEN:
        raise InvalidArgumentError(f"metadata name {name!r}: such fields are not allowed in HTTP/2")
    if lowered.startswith("grpc-"):
        raise InvalidArgumentError(f"metadata name {name!r}: names beginning with 'grpc-' are reserved")
    return lowered


def _checked_value(name: str, value: str | bytes) -> str | bytes:
    if name.endswith("-bin"):
        if not isinstance(value, bytes):
            raise InvalidArgumentError(f"metadata {name!r}: a name ending in '-bin' takes bytes")
        return value
    if not isinstance(value, str):
        raise InvalidArgumentError(f"metadata {name!r}: bytes need a name ending in '-bin'")
    if not (value.isascii() and value.isprintable()):
        raise InvalidArgumentError(f"metadata {name!r}: expected printable ASCII")
    return value.strip(" ")
