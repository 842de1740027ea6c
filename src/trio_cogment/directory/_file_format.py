"""What the file of registrations looks like; and the file of the reference, which is read but never written.

Ours is one JSON object:

- `trio-cogment-directory`: the version of the format, 1;
- `salt`: what the digests were made with, hexadecimal;
- `services`: a list, the oldest registration first. `token` and `secret` are digests, the other members are those of
  the API's messages, enums by their numbers.

The reference's is an object, too, with the ids as names. It has tokens and secrets as they are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trio_cogment.directory._registry import SALT_BYTES, Entry, Hasher, Registry
from trio_cogment.directory._requests import Service, checked_service
from trio_cogment.errors import InvalidArgumentError

VERSION = 1
_VERSION_KEY = "trio-cogment-directory"
_DIGEST_BYTES = 32
_MAX_ID = 2**64 - 1
#: The limits of a registration are for what comes; what was taken once is kept.
_ANY_SIZE = 2**62


class FormatError(Exception):
    """Says what is wrong with a file, or with one registration in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a file says.

    Attributes:
        registry: the registrations.
        hasher: makes the digests that are in it.
        foreign: it is a file of the reference.
        dropped: what is wrong with registrations that were left out.
    """

    registry: Registry
    hasher: Hasher
    foreign: bool = False
    dropped: list[str] = field(default_factory=list)


def encode(registry: Registry, hasher: Hasher) -> bytes:
    """Return the content of a file."""
    head = json.dumps({_VERSION_KEY: VERSION, "salt": hasher.salt.hex()})
    # A line for each: it can be looked at, and is written ten times as fast as with an indent.
    lines = ",\n".join(json.dumps(_members(entry), ensure_ascii=False) for entry in registry)
    return f'{head[:-1]}, "services": [\n{lines}\n]}}\n'.encode()


def _members(entry: Entry) -> dict[str, Any]:
    service = entry.service
    return {
        "service_id": entry.service_id,
        "permanent": entry.permanent,
        "token": entry.token.hex(),
        "secret": entry.secret.hex(),
        "type": service.kind,
        "protocol": service.protocol,
        "host": service.host,
        "port": service.port,
        "properties": dict(service.properties),
    }


def decode(data: bytes, new_salt: Callable[[], bytes]) -> Content:
    """Return what a file says.

    Args:
        data: its content.
        new_salt: gives a salt, for a file that has none.

    Raises:
        FormatError: it is no such file, or one of a later version.
    """
    if not data.strip():
        return Content(registry=Registry(), hasher=Hasher(new_salt()), foreign=True)  # as the reference makes them
    try:
        root = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it is no JSON: {error}") from None
    root = _mapping(root, "the file")
    if _VERSION_KEY not in root:
        return _decode_foreign(root, Hasher(new_salt()))
    version = root[_VERSION_KEY]
    if type(version) is not int or version != VERSION:
        raise FormatError(f"{_VERSION_KEY}: expected {VERSION}, got {str(version)[:40]}")
    hasher = Hasher(_bytes(root, "salt", SALT_BYTES))
    services = _take(root, "services", list, [])
    return _content(hasher, (partial(_entry, item) for item in services), foreign=False)


def _content(hasher: Hasher, entries: Iterable[Callable[[], Entry]], *, foreign: bool) -> Content:
    found: dict[int, Entry] = {}
    dropped: list[str] = []
    for make in entries:
        try:
            entry = make()
            if entry.service_id in found:
                raise FormatError(f"service {entry.service_id} is there twice")
        except (FormatError, InvalidArgumentError) as error:
            dropped.append(str(error))
        except UnicodeEncodeError:  # JSON can say half a character
            dropped.append("expected texts that are Unicode")
        else:
            found[entry.service_id] = entry
    return Content(registry=Registry(found.values()), hasher=hasher, foreign=foreign, dropped=dropped)


def _entry(item: Any) -> Entry:
    fields = _mapping(item, "services")
    return Entry(
        service_id=_number(fields, "service_id", least=1),
        service=_service(fields, fields),
        permanent=_take(fields, "permanent", bool, False),
        token=_bytes(fields, "token", _DIGEST_BYTES),
        secret=_bytes(fields, "secret", _DIGEST_BYTES),
    )


def _decode_foreign(root: dict[str, Any], hasher: Hasher) -> Content:
    def registered(item: Any) -> int:
        moment = item.get("RegisterTimestamp") if isinstance(item, dict) else None
        return moment if isinstance(moment, int) else 0

    if root and not any(isinstance(item, dict) and "Endpoint" in item for item in root.values()):
        raise FormatError("it is no file of a directory")
    items = sorted(root.items(), key=lambda pair: registered(pair[1]))
    return _content(hasher, (partial(_foreign_entry, name, item, hasher) for name, item in items), foreign=True)


def _foreign_entry(name: str, item: Any, hasher: Hasher) -> Entry:
    fields = _mapping(item, f"service {name}")
    if not (name.isascii() and name.isdigit() and len(name) <= len(str(_MAX_ID))):
        raise FormatError(f"expected the number of a service, got {name[:40]!r}")
    details = _mapping(fields.get("Details"), "Details")
    return Entry(
        service_id=_number({"id": int(name)}, "id", least=1),
        service=_service(_mapping(fields.get("Endpoint"), "Endpoint"), details),
        permanent=_take(fields, "Permanent", bool, False),
        token=hasher.digest(_take(fields, "AuthenticationToken", str, "")),
        secret=hasher.digest(_take(fields, "Secret", str, "")),
    )


def _service(endpoint: dict[str, Any], details: dict[str, Any]) -> Service:
    properties = _take(details, "properties", dict, {})
    if not all(isinstance(text, str) for text in properties.values()):
        raise FormatError("properties: expected texts")
    service = Service(
        kind=_number(details, "type"),
        protocol=_number(endpoint, "protocol"),
        host=_take(endpoint, "host", str, ""),
        port=_number(endpoint, "port"),
        properties=properties,
    )
    return checked_service(service, max_bytes=_ANY_SIZE)


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise FormatError(f"{name}: expected an object")
    return value


def _take(fields: dict[str, Any], name: str, kind: type, default: Any) -> Any:
    value = fields.get(name, default)
    if not isinstance(value, kind):
        raise FormatError(f"{name}: expected another type of value")
    return value


def _number(fields: dict[str, Any], name: str, least: int = 0) -> int:
    value = fields.get(name, 0)
    if type(value) is not int or not least <= value <= _MAX_ID:  # True is an int, too
        raise FormatError(f"{name}: expected an integer from {least}")
    return value


def _bytes(fields: dict[str, Any], name: str, length: int) -> bytes:
    try:
        value = bytes.fromhex(_take(fields, name, str, ""))
    except ValueError:
        value = b""
    if len(value) != length:
        raise FormatError(f"{name}: expected {length} bytes, hexadecimal")
    return value
