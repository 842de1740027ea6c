"""Leases: a trial whose data log has gone away is given some time, and then marked as ended abnormally."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable

import trio
from trio_util import AsyncValue

from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import CogmentError, NotFoundError
from trio_cogment.base.taking_up import why_not
from trio_cogment.servers.datastore._group_commit import GroupCommit, WriteStream
from trio_cogment.servers.datastore._owners import Owners
from trio_cogment.servers.datastore.storage import RELEASED, EndWrite, StoredTrial, TrialEnd, TrialStore, TrialWrite

_log = logging.getLogger(__name__)

#: When the storage fails, how long to wait before trying again.
_RETRY_SECONDS = 5.0
#: How many trials are ended at a time.
_MOST_AT_ONCE = 500


class Leases:
    """Which trials have a stream, and the deadlines of those that have none.

    Args:
        store: where the open trials are read at the start.
        writer: marks a trial as ended.
        owners: see to it that no data log takes a trial up meanwhile.
        config: how long a trial may be without a stream.

    Attributes:
        take_up: is asked before a trial is ended whose data log has not come back; True: somebody goes on with it.
        waiting: how many orchestrators elsewhere wait for trials to go on with.
        changes: grows whenever a trial may be without an orchestrator that had one.
    """

    def __init__(self, store: TrialStore, writer: GroupCommit, owners: Owners, config: DatastoreConfig) -> None:
        self._store = store
        self._writer = writer
        self._owners = owners
        self._config = config
        self._streams: dict[str, int] = {}
        self._deadlines: dict[str, float] = {}
        #: Until when trials that were abandoned are kept for an orchestrator elsewhere that goes on with them.
        self._kept: dict[str, float] = {}
        #: Why samples of trials could not be stored; they are waited for.
        self._troubles: dict[str, str] = {}
        self._writes: dict[str, WriteStream] = {}
        self._changed = trio.lowlevel.ParkingLot()
        self.take_up: Callable[[str], Awaitable[bool]] | None = None
        self.waiting = 0
        self.changes = AsyncValue(0)

    @property
    def lease_seconds(self) -> float:
        """How long a trial without a stream is its attempt's, whatever happens to this process meanwhile."""
        return min(self._config.abandoned_after_seconds, self._config.abandoned_after_start_seconds)

    def enter(self, trial_id: str) -> None:
        """Take note that a stream of this trial has opened: it has no deadline."""
        self._streams[trial_id] = self._streams.get(trial_id, 0) + 1
        self._deadlines.pop(trial_id, None)
        self._kept.pop(trial_id, None)

    def has_stream(self, trial_id: str) -> bool:
        """Whether a data log writes a trial now."""
        return trial_id in self._streams

    def taken_over(self, trial_id: str) -> None:
        """Take note that a trial was taken over: its data log comes in time, or whoever has it ends it."""
        self._kept.pop(trial_id, None)
        if trial_id not in self._streams:
            self._set_deadline(trial_id, self._config.abandoned_after_seconds)

    def adopt(self, trial_ids: Iterable[str]) -> None:
        """Take trials of another datastore, which is gone: their data logs have time to come back, wherever that is."""
        for trial_id in trial_ids:
            self.taken_over(trial_id)
        self.changes.value += 1

    def writing(self, trial_id: str, writes: WriteStream) -> None:
        """Take note of what the stream of a trial writes to: once some of it is durable, there is room again."""
        self._writes[trial_id] = writes

    def trouble_of(self, trial_id: str) -> str:
        """Return why samples of a trial could not be stored, if its data log is waited for; empty: nothing is wrong."""
        writes = self._writes.get(trial_id)
        return "" if writes is not None and writes.durable else self._troubles.get(trial_id, "")

    def leave(self, trial_id: str, *, ended: bool, trouble: str = "") -> None:
        """Take note that a stream has closed; unless the trial has ended or has another one, its deadline begins.

        Args:
            trial_id: of the trial.
            ended: it has ended, and that is stored.
            trouble: why its samples could not be stored; empty: that was not why.
        """
        self._writes.pop(trial_id, None)
        if trouble and not ended:
            self._troubles[trial_id] = trouble
        else:
            self._troubles.pop(trial_id, None)
        left = self._streams.pop(trial_id) - 1
        if left:
            self._streams[trial_id] = left
        elif not ended:
            self._set_deadline(trial_id, self._config.abandoned_after_seconds)
            self.changes.value += 1

    async def load(self) -> None:
        """Give the data logs of all open trials time to come back.

        Raises:
            CogmentError: of the storage.
        """
        for trial_id in await self._store.open_logged():
            if trial_id not in self._streams:
                self._set_deadline(trial_id, self._config.abandoned_after_start_seconds)

    async def run(self) -> None:
        """End trials at their deadlines, indefinitely."""
        while True:
            if not self._deadlines:
                await self._changed.park()
                continue
            first = min(self._deadlines.values())
            # A deadline that is set meanwhile may be earlier: the time after a start is longer than the usual one.
            with trio.move_on_at(first):
                await self._changed.park()
            now = trio.current_time()
            due = [trial_id for trial_id, deadline in self._deadlines.items() if deadline <= now]
            await self._end(due[:_MOST_AT_ONCE])

    def _set_deadline(self, trial_id: str, seconds: float) -> None:
        self._deadlines[trial_id] = trio.current_time() + seconds
        self._changed.unpark()

    async def _end(self, trial_ids: list[str]) -> None:
        for trial_id in trial_ids:
            del self._deadlines[trial_id]
            self._troubles.pop(trial_id, None)
        async with trio.open_nursery() as nursery:
            for trial_id in trial_ids:
                nursery.start_soon(self._end_one, trial_id)

    async def _keep(self, trial: StoredTrial) -> bool:
        """Keep a trial for any orchestrator elsewhere that goes on with trials; False: nobody does, or has in time."""
        if trial.samples_count and why_not(trial.params):
            return False
        if trial.trial_id not in await self._store.open_logged():
            self._kept.pop(trial.trial_id, None)
            return True  # another datastore has it by now
        now = trio.current_time()
        until = self._kept.setdefault(trial.trial_id, now + self._config.resumable_seconds)
        if until <= now:
            del self._kept[trial.trial_id]
            return False
        if trial.endpoint != RELEASED:
            about = trial.trial_id, trial.user_id, trial.params, True, trial.owner, RELEASED, trial.attempt
            await self._writer.write(TrialWrite(*about))
            self.changes.value += 1
            _log.warning(
                "trial %s: its data log did not come back in time: any orchestrator may have it", trial.trial_id
            )
        self._set_deadline(trial.trial_id, until - now)
        return True

    def _try_again(self, trial_id: str) -> None:
        if trial_id not in self._streams:
            self._set_deadline(trial_id, _RETRY_SECONDS)

    async def _end_one(self, trial_id: str) -> None:
        try:
            if self.take_up is not None and trial_id not in self._streams and await self.take_up(trial_id):
                return
            async with self._owners.writing(trial_id, "") as trial:
                if trial is None or trial.end != TrialEnd.OPEN or trial_id in self._streams:
                    self._kept.pop(trial_id, None)
                    return
                if trial.attempt and self.take_up is None and await self._keep(trial):
                    return
                # A data log that comes back now finds it ended, and opens it again.
                await self._writer.write(EndWrite(trial_id, TrialEnd.ABNORMAL, trial.attempt))
        except NotFoundError:
            return
        except CogmentError as error:
            _log.warning("trial %s: cannot be marked as ended abnormally: %s", trial_id, error)
            self._try_again(trial_id)
        except Exception:  # noqa: BLE001  the boundary of a trial
            _log.exception("trial %s: cannot be marked as ended abnormally", trial_id)
            self._try_again(trial_id)
        else:
            _log.warning("trial %s: marked as ended abnormally, its data log did not come back in time", trial_id)
