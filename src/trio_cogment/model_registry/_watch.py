"""Who wants to know about new versions of a model."""

from __future__ import annotations

from collections import deque

import trio

from trio_cogment.api.model_registry_pb2 import ModelVersionInfo


class VersionWatch:
    """One follower's view of a model: versions in order, each newer than all before.

    Iterating raises what `end` was given, at once; what waited then is lost.

    Args:
        limit: versions that may wait; with more the oldest go.
    """

    def __init__(self, limit: int) -> None:
        self._waiting: deque[ModelVersionInfo] = deque(maxlen=limit)
        self._seen = 0
        self._end: Exception | None = None
        self._lot = trio.lowlevel.ParkingLot()

    def offer(self, info: ModelVersionInfo) -> None:
        """Tell of a new version."""
        self._waiting.append(info)
        self._lot.unpark()

    def offer_first(self, info: ModelVersionInfo) -> None:
        """Tell of the newest version there was at the beginning, which was looked up meanwhile."""
        if len(self._waiting) < (self._waiting.maxlen or 0):  # else newer ones have come, more than enough
            self._waiting.appendleft(info)

    def end(self, error: Exception) -> None:
        """There will be no more."""
        self._end = error
        self._lot.unpark_all()

    def __aiter__(self) -> VersionWatch:
        return self

    async def __anext__(self) -> ModelVersionInfo:
        while True:
            if self._end is not None:
                raise self._end
            while self._waiting:
                info = self._waiting.popleft()
                if info.version_number > self._seen:
                    self._seen = info.version_number
                    return info
            await self._lot.park()
