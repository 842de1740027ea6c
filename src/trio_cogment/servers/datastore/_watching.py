"""Watches of a storage that is used by one process only."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import trio


class StoreWatch:
    """Implements `storage.Watch`."""

    def __init__(self) -> None:
        self._changed = trio.Event()

    async def changed(self) -> None:
        """See `Watch.changed`. After `Cancelled` no change is lost: the next call returns."""
        await self._changed.wait()
        self._changed = trio.Event()

    def notify(self) -> None:
        """Wake the task that waits, or the next one."""
        self._changed.set()


class Watches:
    """The watches of a store: each is either of one trial, or of the creation and the ends of all."""

    def __init__(self) -> None:
        self._of: dict[str | None, dict[StoreWatch, None]] = {}

    @contextmanager
    def open(self, trial_id: str | None) -> Iterator[StoreWatch]:
        """Watch for the time of the block."""
        watch = StoreWatch()
        self._of.setdefault(trial_id, {})[watch] = None
        try:
            yield watch
        finally:
            watches = self._of[trial_id]
            del watches[watch]
            if not watches:
                del self._of[trial_id]

    def trial_ids(self) -> Collection[str]:
        """Return which trials are watched."""
        return frozenset(trial_id for trial_id in self._of if trial_id is not None)

    def notify(self, trial_ids: Collection[str], *, trials: bool) -> None:
        """Wake the watches of what has changed.

        Args:
            trial_ids: the trials that were written to.
            trials: a trial was created, ended, opened again or deleted, or its parameters have changed.
        """
        if not self._of:
            return
        for trial_id in trial_ids:
            for watch in self._of.get(trial_id, ()):
                watch.notify()
        if trials:
            for watch in self._of.get(None, ()):
                watch.notify()

    def notify_all(self) -> None:
        """Wake all watches: anything may have changed."""
        for watches in self._of.values():
            for watch in watches:
                watch.notify()
