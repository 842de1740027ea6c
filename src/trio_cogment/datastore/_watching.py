"""Who waits for news of a storage that one process has for itself."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import trio


class NewsWatch:
    """Implements `storage.Watch`."""

    def __init__(self) -> None:
        self._news = trio.Event()

    async def changed(self) -> None:
        """See `Watch.changed`. Cancelled, it has taken no news away."""
        await self._news.wait()
        self._news = trio.Event()

    def tell(self) -> None:
        """Wake whoever waits, or comes to wait."""
        self._news.set()


class Watches:
    """The watches of a store: each is either of one trial, or of the creation and the ends of all."""

    def __init__(self) -> None:
        self._of: dict[str | None, dict[NewsWatch, None]] = {}

    @contextmanager
    def open(self, trial_id: str | None) -> Iterator[NewsWatch]:
        """Watch for the time of the block."""
        watch = NewsWatch()
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

    def tell(self, trial_ids: Collection[str], *, trials: bool) -> None:
        """Tell of news.

        Args:
            trial_ids: of these trials.
            trials: some of them came into being, ended, opened again, went away, or changed their parameters.
        """
        if not self._of:
            return
        for trial_id in trial_ids:
            for watch in self._of.get(trial_id, ()):
                watch.tell()
        if trials:
            for watch in self._of.get(None, ()):
                watch.tell()
