"""The file of registrations: its format, and when it is read and written; `_documents` says where it is."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import field
from functools import partial
from typing import Any

from trio_cogment.access import Sources, sources_of
from trio_cogment.base.errors import FailedPreconditionError, InvalidArgumentError
from trio_cogment.base.host.blocking import Runner
from trio_cogment.base.host.files import Files, LockedError
from trio_cogment.base.records import record
from trio_cogment.servers.directory._documents import document_of
from trio_cogment.servers.directory._entries import SALT_BYTES, Entries, Entry, Hasher
from trio_cogment.servers.directory._requests import Service, checked_service

# The format of the file of registrations. The file of the reference implementation is read, but never written.
#
# The file is one JSON object:
#
# - `trio-cogment-directory`: the version of the format, 1; - `salt`: the salt of the digests, in hexadecimal; -
# `writer`: who has written it, at random, where nothing is locked (see `_documents`); - `services`: a list, the oldest
# registration first. `token` and `secret` are digests, `owner` is an account, `reach` is where its host may lead (null:
# anywhere), `sources` are the ids of the access tokens with which it ends; the other
# members are those of the API's messages, with enums as numbers.
#
# The reference's file is a JSON object too, with the ids as names. It has tokens and secrets in plain text.

VERSION = 1
_VERSION_KEY = "trio-cogment-directory"
_DIGEST_BYTES = 32
_WRITER_BYTES = 16
_MAX_ID = 2**64 - 1
#: The size limit applies to new registrations; those in the file are kept.
_ANY_SIZE = sys.maxsize


class FormatError(Exception):
    """A file, or one registration in it, does not follow the format; the text says where."""


@record(kw_only=True)
class Content:
    """The content of a file.

    Attributes:
        entries: the registrations.
        hasher: makes digests with the file's salt.
        foreign: whether the reference implementation wrote it.
        dropped: for each registration that was left out, what is wrong with it.
    """

    entries: Entries
    hasher: Hasher
    foreign: bool
    dropped: list[str] = field(default_factory=list)


def encode(entries: Entries, hasher: Hasher, writer: str = "") -> bytes:
    """Return the content of a file.

    Args:
        entries: the registrations.
        hasher: has the salt.
        writer: makes the content unlike what any other directory writes; empty: it need not be.
    """
    said = {"writer": writer} if writer else {}
    head = json.dumps({_VERSION_KEY: VERSION, "salt": hasher.salt.hex(), **said})
    # One line for each registration: readable, and ten times as fast to write as with an indent.
    lines = ",\n".join(json.dumps(_members(entry), ensure_ascii=False) for entry in entries)
    return f'{head[:-1]}, "services": [\n{lines}\n]}}\n'.encode()


def _members(entry: Entry) -> dict[str, Any]:
    service = entry.service
    return {
        "service_id": entry.service_id,
        "permanent": entry.permanent,
        "token": entry.token.hex(),
        "secret": entry.secret.hex(),
        "owner": entry.owner,
        "reach": entry.reach,
        "sources": entry.sources,
        "type": service.kind,
        "protocol": service.protocol,
        "host": service.host,
        "port": service.port,
        "properties": dict(service.properties),
    }


def decode(data: bytes, new_salt: Callable[[], bytes]) -> Content:
    """Parse the content of a file.

    Args:
        data: the content.
        new_salt: returns a salt, for a file that has none.

    Raises:
        FormatError: the data is not such a file, or is of a later version.
    """
    if not data.strip():
        return Content(entries=Entries(), hasher=Hasher(new_salt()), foreign=True)  # the reference makes such files
    try:
        root = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not JSON: {error}") from None
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
                raise FormatError(f"service {entry.service_id} appears twice")
        except (FormatError, InvalidArgumentError) as error:
            dropped.append(str(error))
        except UnicodeEncodeError:  # JSON can hold half of a surrogate pair
            dropped.append("expected valid Unicode text")
        else:
            found[entry.service_id] = entry
    return Content(entries=Entries(found.values()), hasher=hasher, foreign=foreign, dropped=dropped)


def _entry(item: Any) -> Entry:
    fields = _mapping(item, "services")
    return Entry(
        service_id=_number(fields, "service_id", least=1),
        service=_service(fields, fields),
        permanent=_take(fields, "permanent", bool, False),
        token=_bytes(fields, "token", _DIGEST_BYTES),
        secret=_bytes(fields, "secret", _DIGEST_BYTES),
        owner=_take(fields, "owner", str, ""),
        reach=_take(fields, "reach", str, "") if fields.get("reach") is not None else None,
        sources=_sources(fields),
    )


def _sources(fields: dict[str, Any]) -> Sources:
    try:
        return sources_of(_take(fields, "sources", list, []))
    except (ValueError, TypeError):
        raise FormatError("sources: expected access tokens") from None


def _decode_foreign(root: dict[str, Any], hasher: Hasher) -> Content:
    def registered(item: Any) -> int:
        moment = item.get("RegisterTimestamp") if isinstance(item, dict) else None
        return moment if isinstance(moment, int) else 0

    if root and not any(isinstance(item, dict) and "Endpoint" in item for item in root.values()):
        raise FormatError("not a file of a directory")
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
        raise FormatError("properties: expected strings as values")
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
    if type(value) is not int or not least <= value <= _MAX_ID:  # not isinstance: True is an int
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


_log = logging.getLogger(__name__)


class StateFile:
    """Reads the registrations once, and writes them whenever they have changed.

    Args:
        path: the file; or `s3://bucket/key`, `postgresql://host/database`; empty: nothing is stored.
        files: the file system.
        run: runs blocking functions.
        random_bytes: the source of the salt.

    Attributes:
        hasher: makes digests with the file's salt; valid after `load`.

    Raises:
        InvalidArgumentError, MissingExtraError: the address is wrong, or an extra is missing.
    """

    def __init__(self, path: str, files: Files, run: Runner, random_bytes: Callable[[int], bytes]) -> None:
        self.hasher = Hasher(random_bytes(SALT_BYTES))
        self._writer = random_bytes(_WRITER_BYTES).hex()
        self._document = document_of(path, files) if path else None
        self._run = run

    async def load(self) -> tuple[Entries, bool]:
        """Return the registrations, and whether they should be written at once.

        What cannot be parsed is put aside, and there are no registrations. A file stays locked until `close`, which the
        caller must call.

        Raises:
            FailedPreconditionError: another directory uses the file, or it cannot be read or put aside.
        """
        document = self._document
        if document is None:
            return Entries(), False
        try:
            entries, current = await self._run(self._load)
        except LockedError as error:
            raise FailedPreconditionError(
                f"persistence file {document.name}: it is in use by another directory{error.who}. "
                "Stop that one, or name another file"
            ) from error
        except OSError as error:
            raise FailedPreconditionError(
                f"persistence file {document.name}: {error}. Correct that, move the file away, or name another one"
            ) from error
        # What nothing locks is written, so that a directory that was forgotten elsewhere learns that it is not the one.
        return entries, not current or not document.locked

    def close(self) -> None:
        """Release the locks. May be called again."""
        if self._document is not None:
            self._document.close()

    async def save(self, entries: Entries) -> None:
        """Write the registrations; when this returns, they are durable.

        Raises:
            OSError: the write failed; either the old or the new registrations are in the file. Or somebody else has
                put another file there, which was not touched. A file that is gone is written again.
        """
        if self._document is not None:
            # Nothing else touches the copy until this returns, so the thread may read it.
            await self._run(self._save, entries)

    def _save(self, entries: Entries) -> None:
        assert self._document is not None
        self._document.replace(encode(entries, self.hasher, "" if self._document.locked else self._writer))

    def _load(self) -> tuple[Entries, bool]:
        document = self._document
        assert document is not None
        data = document.open()
        if data is None:
            return Entries(), False
        try:
            content = decode(data, lambda: self.hasher.salt)
        except FormatError as error:
            aside = document.put_aside()
            _log.warning(
                "persistence file %s: %s; it was renamed to %s, and there are no registrations",
                document.name,
                error,
                aside,
            )
            return Entries(), False
        for problem in content.dropped:
            _log.warning("persistence file %s: left out a registration: %s", document.name, problem)
        self.hasher = content.hasher
        return content.entries, not content.foreign
