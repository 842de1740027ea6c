"""Owners of stored trials: nobody writes over somebody else's.

Trials that come without an owner are open to all who may write: those of servers with open access, and of this process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

import trio

from trio_cogment.base.errors import PermissionDeniedError
from trio_cogment.rpc import ServerCall
from trio_cogment.servers.datastore.storage import StoredTrial, TrialStore


class Owners:
    """Sees to it that a trial is created by one owner.

    Args:
        store: knows whose trials are.
    """

    def __init__(self, store: TrialStore) -> None:
        self._store = store
        self._locks: WeakValueDictionary[str, trio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def writing(self, trial_id: str, owner: str) -> AsyncIterator[StoredTrial | None]:
        """Hold the block in which an owner creates a trial, or changes it: nobody else does meanwhile.

        Args:
            trial_id: of the trial.
            owner: its account; empty: whoever it is, it may.

        Raises:
            PermissionDeniedError: the trial is somebody else's.
        """
        lock = self._locks.get(trial_id)
        if lock is None:
            lock = self._locks[trial_id] = trio.Lock()
        async with lock:
            known = await self._store.trial(trial_id)
            if known is not None and owner and known.owner != owner:
                raise PermissionDeniedError(f"trial {trial_id!r}: it belongs to somebody else")
            yield known


def check_reached(call: ServerCall, trials: Iterable[StoredTrial]) -> None:
    """Refuse a call that would reach trials of others.

    Raises:
        PermissionDeniedError: naming the trial.
    """
    for trial in trials:
        call.identity.check_reaches(call.method.path, trial.owner, f"trial {trial.trial_id!r}")
