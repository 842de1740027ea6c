"""Channels that several users share, and that are closed when nobody has used them for a while."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

import trio
from trio_util import AsyncValue

from trio_cogment.rpc.calls import CallOpener

Key = TypeVar("Key", bound=Hashable)

#: A channel nobody uses is kept this long: the next trial usually goes to the same place.
IDLE_CHANNEL_SECONDS = 30.0


class SharedChannels(Generic[Key]):
    """Lends channels. They live in `nursery`, shielded: `abandon` must follow a cancel.

    Args:
        nursery: where the channels' tasks run.
        make: makes the channel of a key.
    """

    def __init__(self, nursery: trio.Nursery, make: Callable[[Key], AbstractAsyncContextManager[CallOpener]]) -> None:
        self._nursery = nursery
        self._make = make
        self._channels: dict[Key, _SharedChannel] = {}
        self._abandoned_at = math.inf

    @asynccontextmanager
    async def open(self, key: Key, name: str) -> AsyncIterator[CallOpener]:
        """Lend the channel of a key for the time of an `async with` block.

        Args:
            key: which channel.
            name: where it leads, for the name of its task.
        """
        shared = self._channels.get(key)
        if shared is None:
            shared = self._channels[key] = _SharedChannel()
            if self._abandoned_at < math.inf:
                shared.abandon(self._abandoned_at)
            self._nursery.start_soon(self._keep, key, shared, name=f"channel to {name}")
        shared.users.value += 1
        try:
            await shared.ready.wait()
            assert shared.channel is not None
            yield shared.channel
        finally:
            shared.users.value -= 1

    async def _keep(self, key: Key, shared: _SharedChannel) -> None:
        # Shielded, so that what is said in a farewell can leave when the host cancels.
        with shared.shield:
            async with self._make(key) as channel:
                shared.channel = channel
                shared.ready.set()
                idle = False
                while not idle:
                    kept = IDLE_CHANNEL_SECONDS if self._abandoned_at == math.inf else 0
                    with trio.CancelScope() as shared.patience:
                        await shared.users.wait_value(0, held_for=kept)
                        # Somebody may have come in the very turn in which the wait was over.
                        idle = shared.users.value == 0
                del self._channels[key]

    def abandon(self, deadline: float) -> None:
        """The host cancels: channels are closed when nobody uses them any more, and at the deadline at the latest."""
        self._abandoned_at = min(self._abandoned_at, deadline)
        for shared in self._channels.values():
            shared.abandon(self._abandoned_at)


class _SharedChannel:
    def __init__(self) -> None:
        self.shield = trio.CancelScope(shield=True)
        self.patience = trio.CancelScope()  # of the wait for somebody to use it again
        self.channel: CallOpener | None = None
        self.ready = trio.Event()
        self.users = AsyncValue(0)

    def abandon(self, deadline: float) -> None:
        self.shield.deadline = deadline
        self.patience.cancel()
