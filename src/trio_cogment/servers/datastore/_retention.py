"""Retention: deletes the trials that ended first, when more have ended than may be kept."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

import trio

from trio_cogment.base.errors import CogmentError
from trio_cogment.servers.datastore.storage import StoredTrial, TrialEnd, TrialStore

_log = logging.getLogger(__name__)

#: Trials are looked through, and deleted, at most this many at a time.
_PAGE = 500
#: How long trials may end before they are counted.
_PAUSE_SECONDS = 1.0
#: When the storage fails, how long to wait before trying again.
_RETRY_SECONDS = 5.0


class Retention:
    """Deletes ended trials beyond a number, the oldest first. A trial that has not ended does not count, and stays.

    A storage does not say when trials ended. So those that had ended when this began count as if they had ended in the
    order of their creation, before all others.

    Args:
        store: where the trials are.
        keep: how many ended trials are kept.
    """

    def __init__(self, store: TrialStore, keep: int) -> None:
        self._store = store
        self._keep = keep
        self._last = 0
        # Their numbers by their ids: an id may be deleted and created again.
        self._open: dict[str, int] = {}
        self._ended: dict[str, int] = {}

    def forget(self, trial_ids: Collection[str]) -> None:
        """Take note that trials have been deleted by somebody else."""
        for trial_id in trial_ids:
            self._open.pop(trial_id, None)
            self._ended.pop(trial_id, None)

    async def run(self) -> None:
        """Delete what is too much, indefinitely; a storage that fails is tried again."""
        async with self._store.watch() as watch:
            while True:
                try:
                    await self.look()
                except CogmentError as error:
                    _log.warning("old trials cannot be deleted, which is tried again: %s", error)
                except Exception:  # noqa: BLE001  a storage may be foreign code
                    _log.exception("old trials cannot be deleted, which is tried again")
                else:
                    await watch.changed()
                    await trio.sleep(_PAUSE_SECONDS)
                    continue
                await trio.sleep(_RETRY_SECONDS)

    async def look(self) -> None:
        """Count the trials, and delete those that are too many.

        Raises:
            CogmentError: of the storage.
        """
        await self._look_for_ends()
        await self._look_for_new()
        await self._look_for_those_that_run_again()
        while len(self._ended) > self._keep:
            oldest = list(self._ended)[: min(_PAGE, len(self._ended) - self._keep)]
            deleted = await self._delete(oldest)
            if deleted:
                _log.info("keep_trials is %d: deleted %d trials that ended before", self._keep, deleted)

    async def _look_for_new(self) -> None:
        while True:
            page = await self._store.trials(after=self._last, limit=_PAGE)
            for trial in page:
                self._note(trial)
                self._last = trial.number
            if len(page) < _PAGE:
                return

    async def _look_for_ends(self) -> None:
        for ids in _in_pages(list(self._open)):
            numbers = {trial_id: self._open.get(trial_id) for trial_id in ids}
            found = await self._found(ids)
            for trial_id, number in numbers.items():
                trial = found.get(trial_id)
                if trial is None or trial.number != number:
                    self._open.pop(trial_id, None)  # if there is another one of this id, it is still to come
                elif trial.end != TrialEnd.OPEN:
                    self._note(trial)

    async def _look_for_those_that_run_again(self) -> None:
        # Under their ids, by their data logs: nobody is told of that, and they do not count until they end once more.
        for trial_id in await self._store.open_logged():
            number = self._ended.pop(trial_id, None)
            if number is not None:
                self._open[trial_id] = number

    def _note(self, trial: StoredTrial) -> None:
        self.forget([trial.trial_id])
        (self._open if trial.end == TrialEnd.OPEN else self._ended)[trial.trial_id] = trial.number

    async def _delete(self, ids: list[str]) -> int:
        found, doomed = await self._found(ids), []
        for trial_id in ids:
            trial = found.get(trial_id)
            if trial is None or trial.number != self._ended.get(trial_id):
                self._ended.pop(trial_id, None)  # somebody else has deleted it
            elif trial.end == TrialEnd.OPEN:  # it is run again under its id
                self._note(trial)
            else:
                doomed.append(trial_id)
        numbers = {found[trial_id].number for trial_id in doomed}
        # One that is run again meanwhile stays, and is looked for among the open ones before the next time.
        deleted = await self._store.delete(doomed, numbers=numbers, ended=True) if doomed else []
        self.forget(deleted)
        return len(deleted)

    async def _found(self, ids: Collection[str]) -> dict[str, StoredTrial]:
        return {trial.trial_id: trial for trial in await self._store.trials(after=0, limit=len(ids), ids=ids)}


def _in_pages(ids: list[str]) -> Iterable[list[str]]:
    return (ids[first : first + _PAGE] for first in range(0, len(ids), _PAGE))
