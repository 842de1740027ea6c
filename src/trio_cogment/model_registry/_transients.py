"""Versions that are not archived: in memory, so many and so many bytes of them. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo

#: Pieces smaller than this are joined, so that a client that sends crumbs costs no more than its bytes.
_PIECE_BYTES = 256 * 1024


class Payload:
    """Bytes that grow; reading begins when they are whole."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._rest = bytearray()

    def append(self, data: bytes) -> None:
        """Add some more."""
        self.size += len(data)
        if not self._rest and len(data) >= _PIECE_BYTES:
            self._pieces.append(data)
            return
        self._rest += data
        if len(self._rest) >= _PIECE_BYTES:
            self.finish()

    def finish(self) -> None:
        """Say that there is no more."""
        if self._rest:
            self._pieces.append(bytes(self._rest))
            self._rest = bytearray()

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield all bytes, in chunks of that size; nothing where there is nothing."""
        kept = b""
        for piece in self._pieces:
            start = 0
            if kept:
                start = size - len(kept)
                kept += piece[:start]
                if len(kept) < size:
                    continue
                yield kept
                kept = b""
            if start == 0 and len(piece) == size:
                yield piece
                continue
            while len(piece) - start >= size:
                yield piece[start : start + size]
                start += size
            kept = piece[start:]
        if kept:
            yield kept


class Transient:
    """A version that is not archived.

    Attributes:
        owner: the model, as whoever keeps it names it.
        info: what is said about it.
        payload: its bytes.
    """

    __slots__ = ("info", "owner", "payload")

    def __init__(self, owner: object, info: ModelVersionInfo, payload: Payload) -> None:
        self.owner = owner
        self.info = info
        self.payload = payload


class TransientCache:
    """Keeps versions until there are too many; what was used last stays longest, the newest of a model longest of all.

    Args:
        max_items: how many it keeps.
        max_bytes: how many bytes they may have together.
    """

    def __init__(self, max_items: int, max_bytes: int) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.bytes = 0
        self._versions: OrderedDict[Transient, None] = OrderedDict()
        self._newest: dict[object, Transient] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, version: Transient) -> list[Transient]:
        """Keep the newest version of its model; return those that had to go for it."""
        self._versions[version] = None
        self._newest[version.owner] = version
        self.bytes += version.payload.size
        evicted = []
        while len(self._versions) > self.max_items or self.bytes > self.max_bytes:
            oldest = next((one for one in self._versions if self._newest.get(one.owner) is not one), None)
            evicted.append(oldest or next(iter(self._versions)))
            self.remove(evicted[-1])
        return evicted

    def touch(self, version: Transient) -> None:
        """Say that a version is used."""
        if version in self._versions:
            self._versions.move_to_end(version)

    def remove(self, version: Transient) -> None:
        """Forget a version, if it is here still."""
        if version in self._versions:
            del self._versions[version]
            self.bytes -= version.payload.size
            if self._newest.get(version.owner) is version:
                del self._newest[version.owner]
