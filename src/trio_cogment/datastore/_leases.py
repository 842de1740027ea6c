"""A trial that a data log writes, and whose data log has gone away for good, comes to an end all the same."""

from __future__ import annotations

import logging

import trio

from trio_cogment.config import DatastoreConfig
from trio_cogment.datastore._group_commit import Writer
from trio_cogment.datastore.storage import EndWrite, TrialEnd, TrialStore
from trio_cogment.errors import CogmentError, NotFoundError

_log = logging.getLogger(__name__)

#: When the storage fails, how long to wait before trying again.
_RETRY_SECONDS = 5.0
#: How many are ended together.
_MOST_AT_ONCE = 500


class Leases:
    """Which trials have a stream, and until when those without one are waited for.

    Args:
        store: tells which trials were open when we came.
        writer: through which a trial is ended.
        config: how long a trial may be without a stream.
    """

    def __init__(self, store: TrialStore, writer: Writer, config: DatastoreConfig) -> None:
        self._store = store
        self._writer = writer
        self._config = config
        self._streams: dict[str, int] = {}
        self._deadlines: dict[str, float] = {}
        self._news = trio.lowlevel.ParkingLot()

    def enter(self, trial_id: str) -> None:
        """A stream for this trial is there."""
        self._streams[trial_id] = self._streams.get(trial_id, 0) + 1
        self._deadlines.pop(trial_id, None)

    def leave(self, trial_id: str, *, ended: bool) -> None:
        """It has gone; whether it brought the trial to its end."""
        left = self._streams.pop(trial_id) - 1
        if left:
            self._streams[trial_id] = left
        elif not ended:
            self._wait_for(trial_id, self._config.abandoned_after_seconds)

    async def load(self) -> None:
        """Wait for the data logs of all trials that are open.

        Raises:
            CogmentError: of the storage.
        """
        for trial_id in await self._store.open_logged():
            if trial_id not in self._streams:
                self._wait_for(trial_id, self._config.abandoned_after_start_seconds)

    async def run(self) -> None:
        """End what is due, for ever."""
        while True:
            if not self._deadlines:
                await self._news.park()
                continue
            first = min(self._deadlines.values())
            # A deadline that is set meanwhile may be nearer: who has just left is waited for less long than others.
            with trio.move_on_at(first):
                await self._news.park()
            now = trio.current_time()
            due = [trial_id for trial_id, deadline in self._deadlines.items() if deadline <= now]
            await self._end(due[:_MOST_AT_ONCE])

    def _wait_for(self, trial_id: str, seconds: float) -> None:
        self._deadlines[trial_id] = trio.current_time() + seconds
        self._news.unpark()

    async def _end(self, trial_ids: list[str]) -> None:
        for trial_id in trial_ids:
            del self._deadlines[trial_id]
        async with trio.open_nursery() as nursery:
            for trial_id in trial_ids:
                nursery.start_soon(self._end_one, trial_id)

    async def _end_one(self, trial_id: str) -> None:
        try:
            trial = await self._store.trial(trial_id)
            if trial is None or trial.end != TrialEnd.OPEN:
                return
            # Should it have come to its end by itself meanwhile, it stays as it is.
            await self._writer.write(EndWrite(trial_id, TrialEnd.ABNORMAL))
        except NotFoundError:
            return
        except CogmentError as error:
            _log.warning("trial %s: cannot be marked as given up: %s", trial_id, error)
            if trial_id not in self._streams:
                self._wait_for(trial_id, _RETRY_SECONDS)
        else:
            _log.warning("trial %s: its data log did not come back in time", trial_id)
