"""A model in memory: its versions and their numbers, its watches, and the lock of changes on disk.

Version numbers are drawn here; `_archive.add` makes a version durable.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

import trio

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo
from trio_cogment.base.errors import NotFoundError, ResourceExhaustedError
from trio_cogment.servers.model_registry._archive_layout import MAX_NUMBER
from trio_cogment.servers.model_registry._version_cache import Transient

# Watches that follow the new versions of a model.


class VersionWatch:
    """Follows a model: iterating returns versions in order, each newer than all before.

    After `end` iterating raises its error at once; versions that were queued are dropped.

    Args:
        limit: how many versions are queued; of more, the oldest are dropped.
    """

    def __init__(self, limit: int) -> None:
        self._queued: deque[ModelVersionInfo] = deque(maxlen=limit)
        self._seen = 0
        self._end: Exception | None = None
        self._lot = trio.lowlevel.ParkingLot()

    def offer(self, info: ModelVersionInfo) -> None:
        """Queue a new version."""
        self._queued.append(info)
        self._lot.unpark()

    def offer_first(self, info: ModelVersionInfo) -> None:
        """Queue the newest version there was at the beginning, which was looked up meanwhile, before all others."""
        if len(self._queued) < (self._queued.maxlen or 0):  # else the queue is full of newer ones
            self._queued.appendleft(info)

    def end(self, error: Exception) -> None:
        """End the iteration with an error."""
        self._end = error
        self._lot.unpark_all()

    def __aiter__(self) -> VersionWatch:
        return self

    async def __anext__(self) -> ModelVersionInfo:
        while True:
            if self._end is not None:
                raise self._end
            while self._queued:
                info = self._queued.popleft()
                if info.version_number > self._seen:
                    self._seen = info.version_number
                    return info
            await self._lot.park()


class Model:
    """A model and the numbers of its versions.

    Args:
        model_id: its id.
        folder: where its archived versions are.
        numbers: the numbers of these, in order.
        last: the highest number it has given.
        owner: the account that it belongs to; empty: nobody's.

    Attributes:
        owner: see above.
        bytes: what it takes; None: nobody has asked yet.
        numbers: the versions there are, in order.
        transients: those of them that are not archived.
        lock: held while numbers are given and while it is changed or deleted.
        watches: of its followers.
        deleted: it is deleted; `check` raises for callers that still hold it.
    """

    def __init__(
        self, model_id: str, folder: str, numbers: list[int] | None = None, last: int = 0, owner: str = ""
    ) -> None:
        self.model_id = model_id
        self.folder = folder
        self.numbers = numbers or []
        self.last = last
        self.owner = owner
        self.bytes: int | None = None
        self.transients: dict[int, Transient] = {}
        self.lock = trio.Lock()
        self.watches: dict[VersionWatch, None] = {}
        self.deleted = False

    def check(self) -> None:
        """Raise NotFoundError if it is deleted."""
        if self.deleted:
            raise NotFoundError(f"model_id: model {shown(self.model_id)} is deleted")

    def next_number(self) -> int:
        """Return a number that has never been given; it is not given again, whether it is used or not.

        Raises:
            ResourceExhaustedError: there are no more.
        """
        if self.last >= MAX_NUMBER:
            raise ResourceExhaustedError(f"model {shown(self.model_id)}: the version numbers are used up")
        self.last += 1
        return self.last

    def find(self, wanted: int) -> int | None:
        """Return the number of a version there is: itself, or the k-th newest for -k. None if there is none."""
        if wanted < 0:
            return self.numbers[wanted] if -wanted <= len(self.numbers) else None
        at = bisect_left(self.numbers, wanted)
        return wanted if at < len(self.numbers) and self.numbers[at] == wanted else None

    def missing(self, wanted: int) -> NotFoundError:
        """Return the error for a version that is not there."""
        count = f"; it has {len(self.numbers)}" if wanted < 0 else ""
        return NotFoundError(f"model {shown(self.model_id)} has no version {wanted}{count}")

    def since(self, number: int) -> list[int]:
        """Return the versions from a number on."""
        return self.numbers[bisect_left(self.numbers, number) :]

    def grow(self, size: int) -> None:
        """Count this many bytes more, or less."""
        if self.bytes is not None:
            self.bytes += size

    def add(self, info: ModelVersionInfo) -> None:
        """Add a new version, newer than all others, and offer it to the watches."""
        self.numbers.append(info.version_number)
        for watch in self.watches:
            watch.offer(info)

    def drop(self, number: int) -> None:
        """Remove a version; its number is not given again."""
        version = self.transients.pop(number, None)
        if version is not None:
            self.grow(-version.counted_bytes)
        at = bisect_left(self.numbers, number)
        if at < len(self.numbers) and self.numbers[at] == number:
            del self.numbers[at]

    def end(self, error: Exception) -> None:
        """End all watches with an error."""
        for watch in self.watches:
            watch.end(error)


def shown(model_id: str) -> str:
    """Return an id as it is shown in texts, shortened if it is long."""
    return repr(model_id if len(model_id) <= 80 else model_id[:80] + "…")
