"""The cache of versions that are not archived, limited by their number and their bytes. No I/O."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo
from trio_cogment.base.recount import Count

#: Smaller pieces are joined, so that a client that sends tiny chunks takes no more memory than its bytes.
_PIECE_BYTES = 256 * 1024


class Payload:
    """The bytes of a version: appended while it is uploaded, read after `finish`."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._rest = bytearray()

    def append(self, data: bytes) -> None:
        """Append bytes."""
        self.size += len(data)
        if not self._rest and len(data) >= _PIECE_BYTES:
            self._pieces.append(data)
            return
        self._rest += data
        if len(self._rest) >= _PIECE_BYTES:
            self.finish()

    def finish(self) -> None:
        """Take note that the bytes are complete."""
        if self._rest:
            self._pieces.append(bytes(self._rest))
            self._rest = bytearray()

    def chunks(self, size: int) -> Iterator[bytes]:
        """Yield all bytes in chunks of a size; the last one may be smaller."""
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
            while len(piece) - start >= size:
                yield piece[start : start + size]
                start += size
            kept = piece[start:]
        if kept:
            yield kept


class Transient:
    """A version that is not archived.

    Attributes:
        owner: its model, any object that identifies it.
        info: its description.
        payload: its bytes.
    """

    __slots__ = ("info", "owner", "payload")

    def __init__(self, owner: object, info: ModelVersionInfo, payload: Payload) -> None:
        self.owner = owner
        self.info = info
        self.payload = payload

    @property
    def counted_bytes(self) -> int:
        """What it counts against its owner's quota."""
        return self.payload.size + self.info.ByteSize()


class TransientCache:
    """An LRU cache of versions that evicts the newest version of a model only when there are no others.

    The account that has most in it loses a version first, so nobody has those of others evicted before its own.

    Args:
        max_items: how many versions it keeps.
        max_bytes: how many bytes they may have together.
        account_of: tells whose the owner of a version is, a model.
    """

    def __init__(self, max_items: int, max_bytes: int, account_of: Callable[[object], str] = lambda _: "") -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self._account_of = account_of
        self.bytes = 0
        self._versions: OrderedDict[Transient, None] = OrderedDict()
        self._newest: dict[object, Transient] = {}

    def __len__(self) -> int:
        return len(self._versions)

    def recount(self) -> Iterator[Count]:
        """See `trio_cogment.base.recount`."""
        size = sum(version.payload.size for version in self._versions)
        yield Count("bytes of versions in the cache", self.bytes, size, None)
        newest = sum(version in self._versions for version in self._newest.values())
        yield Count("newest versions in the cache", len(self._newest), newest, None)

    def add(self, version: Transient) -> list[Transient]:
        """Add the newest version of a model; return the versions that were evicted for it."""
        self._versions[version] = None
        self._newest[version.owner] = version
        self.bytes += version.payload.size
        evicted = []
        while len(self._versions) > self.max_items or self.bytes > self.max_bytes:
            evicted.append(self._next())
            self.remove(evicted[-1])
        return evicted

    def _next(self) -> Transient:
        """Return the version that is evicted next."""
        by_count, amounts = len(self._versions) > self.max_items, Counter[str]()
        for version in self._versions:
            amounts[self._account_of(version.owner)] += 1 if by_count else version.payload.size
        most = max(amounts, key=amounts.__getitem__)
        own = [version for version in self._versions if self._account_of(version.owner) == most]
        return next((version for version in own if self._newest.get(version.owner) is not version), own[0])

    def touch(self, version: Transient) -> None:
        """Take note that a version is used."""
        if version in self._versions:
            self._versions.move_to_end(version)

    def remove(self, version: Transient) -> None:
        """Remove a version, if it is in the cache."""
        if version in self._versions:
            del self._versions[version]
            self.bytes -= version.payload.size
            if self._newest.get(version.owner) is version:
                del self._newest[version.owner]
