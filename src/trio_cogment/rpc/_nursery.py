"""A nursery that belongs to an object, not to a block of somebody's code."""

from __future__ import annotations

from types import TracebackType

import trio


class OwnNursery:
    """The nursery of an object that is an asynchronous context manager itself.

    Trio wraps what a nursery's block raises in a group. The block here is the user's, who cannot know that a nursery is
    behind it: an exception that is theirs alone goes on as it is. (Tasks in the nursery that raise still make a group.)
    """

    async def __aenter__(self) -> trio.Nursery:
        self._manager = trio.open_nursery()
        return await self._manager.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            return bool(await self._manager.__aexit__(kind, value, traceback))
        except BaseExceptionGroup as group:
            if value is not None and group.exceptions == (value,):
                return False
            raise
