"""Watches that follow the new versions of a model."""

from __future__ import annotations

from collections import deque

import trio

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo


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
