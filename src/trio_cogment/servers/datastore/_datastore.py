"""The trial datastore: what it takes, what it serves, and its tasks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Final, NoReturn

import trio

from trio_cogment.api.common_pb2 import EndOfTrial
from trio_cogment.api.trial_datastore_pb2 import RetrieveSamplesRequest
from trio_cogment.base.config import DatastoreConfig
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.rpc import OwnNursery
from trio_cogment.servers.datastore._following import Follower, SampleReader, find_trials
from trio_cogment.servers.datastore._group_commit import GroupCommit
from trio_cogment.servers.datastore._intake import Intake
from trio_cogment.servers.datastore._leases import Leases
from trio_cogment.servers.datastore._owners import Owners
from trio_cogment.servers.datastore._retention import Retention
from trio_cogment.servers.datastore._selection import Selection
from trio_cogment.servers.datastore.storage import (
    ELSEWHERE,
    RELEASED,
    EndWrite,
    OutcomeWrite,
    StoredTrial,
    TrialEnd,
    TrialStore,
    TrialWrite,
)

#: How long after trials have begun or ended the next look for those without an orchestrator is.
LEFT_PAUSE_SECONDS: Final = 0.1


class Datastore:
    """A trial datastore for the time of an `async with` block.

    Entering reads which trials a data log was writing when the storage was left: their data logs have
    `abandoned_after_start_seconds` to come back. Leaving writes what streams have handed over, for `farewell_seconds`
    at most; what was confirmed to anybody is durable in any case. Serve its
    `datastore_services` within the block.

    Args:
        store: where everything is kept; it is not closed.
        config: limits and times.

    Raises:
        CogmentError: on entering, of the storage.
    """

    def __init__(self, store: TrialStore, *, config: DatastoreConfig | None = None) -> None:
        self.store = store
        self.config = config or DatastoreConfig()
        self.writer = GroupCommit(store, self.config)
        self.owners = Owners(store)
        self.retention = Retention(store, self.config.keep_trials)
        self._leases = Leases(store, self.writer, self.owners, self.config)
        if (adopts := getattr(store, "adopts", None)) is not None:
            adopts(self._leases.adopt)
        self._tasks = OwnNursery()
        self._writing = trio.CancelScope(shield=True)

    @property
    def stored_samples(self) -> int:
        """How many samples have been made durable so far; one that was delivered twice counts twice."""
        return self.writer.stored_samples

    def figures(self) -> dict[str, float]:
        """Return what metrics show of it; see `trio_cogment.base.metrics.services`."""
        writes, size = self.writer.queued
        return {
            "samples_stored": self.stored_samples,
            "writes_refused": self.writer.refused_writes,
            "queued_writes": writes,
            "queued_write_bytes": size,
        }

    def sink(self, *, max_unconfirmed: int | None = None, endpoint: str = "", resumes: bool = False) -> Intake:
        """Return where an orchestrator of this process writes samples: it has the shape of its `SampleSink`.

        The samples are taken as the objects they are, and only read. A sample is confirmed when it is durable, and the
        stream breaks when one cannot be stored, so that those not confirmed are written again.

        Args:
            max_unconfirmed: how many samples of a trial may be under way: what the orchestrator keeps of them
                (`max_queued_samples`).
            endpoint: where that orchestrator is reached by others; empty: nowhere.
            resumes: that orchestrator goes on with interrupted trials: nobody begins one anew under its id.
        """
        most_actors = self.config.max_trial_actors
        limits = most_actors, max_unconfirmed
        return Intake(self.store, self.writer, self._leases, self.owners, *limits, endpoint=endpoint, resumes=resumes)

    def trouble_of(self, trial_id: str) -> str:
        """Return why the last samples of a trial could not be stored, while they wait at its orchestrator; or empty."""
        return self._leases.trouble_of(trial_id)

    # For orchestrators that go on with trials

    def on_abandoned(self, take_up: Callable[[StoredTrial], Awaitable[bool]] | None) -> None:
        """Set who is asked before a trial is ended whose data log has not come back; True: somebody goes on with it."""
        self._leases.take_up = None if take_up is None else partial(self._take_up, take_up)
        self._say_whether_released()

    async def _take_up(self, take_up: Callable[[StoredTrial], Awaitable[bool]], trial_id: str) -> bool:
        if trial_id not in await self.store.open_logged():
            return False  # another process has it
        trial = await self.store.trial(trial_id)
        return trial is not None and await take_up(trial)

    @contextmanager
    def waited_elsewhere(self) -> Iterator[None]:
        """Hand over trials whose data logs have not come back, for an orchestrator elsewhere waits for such trials."""
        self._leases.waiting += 1
        self._say_whether_released()
        try:
            yield
        finally:
            self._leases.waiting -= 1
            self._say_whether_released()

    def _say_whether_released(self) -> None:
        release = getattr(self.store, "release_abandoned", None)
        if release is not None:
            release(self._leases.take_up is not None or self._leases.waiting > 0)

    async def tell_left(self, endpoint: str, found: Callable[[StoredTrial], None]) -> NoReturn:
        """Tell of the trials that `left_open` returns, again and again, for an orchestrator of this process.

        Raises:
            CogmentError: of the storage.
        """
        async with self.store.watch() as watch:
            while True:
                for trial in await self.left_open(endpoint):
                    found(trial)
                await watch.changed()
                await trio.sleep(LEFT_PAUSE_SECONDS)

    async def left_changed(self, seen: int) -> int:
        """Wait until a trial may be without an orchestrator that had one, in this process; return a number for `seen`.

        Args:
            seen: what was returned last; -1 returns at once.
        """
        changes = self._leases.changes
        await changes.wait_value(lambda value: value != seen)
        return int(changes.value)

    async def left_open(self, endpoint: str, *, elsewhere: bool = False) -> list[StoredTrial]:
        """Return the trials that nobody runs, as far as that is certain: they can be taken over at once.

        Those were handed over, or run at an endpoint that is the caller's now, or were in a database that one process
        has to itself when it was left, and run by an orchestrator of that process.

        Args:
            endpoint: where the caller is reached; empty: nowhere.
            elsewhere: the caller is an orchestrator in another process.
        """
        own = ELSEWHERE + endpoint if elsewhere and endpoint else endpoint
        found = []
        alone = bool(getattr(self.store, "exclusive", False)) and not elsewhere
        ids = [trial_id for trial_id in await self.store.open_logged() if not self._leases.has_stream(trial_id)]
        for trial in await self.store.trials(after=0, limit=len(ids), ids=ids) if ids else ():
            if not trial.attempt or trial.end is not TrialEnd.OPEN:
                continue
            was_here = alone and not trial.endpoint.startswith(ELSEWHERE)
            if was_here or trial.endpoint == RELEASED or (own and trial.endpoint == own):
                found.append(trial)
        return found

    async def take_over(self, trial: StoredTrial, endpoint: str) -> int | None:
        """Take a trial over; return the number of the attempt that has it now. None: somebody else has it, or it ended.

        Args:
            trial: as it was when it was found that nobody runs it.
            endpoint: where the orchestrator is reached that goes on with it; with `ELSEWHERE` for one that is in
                another process.

        Raises:
            CogmentError: of the storage; it may be taken over nevertheless.
        """
        attempt = trial.attempt + 1
        about = trial.trial_id, trial.user_id, trial.params, True, trial.owner, endpoint
        try:
            await self.writer.write(TrialWrite(*about, attempt, takes_over=True))
        except FailedPreconditionError:
            return None
        self._leases.taken_over(trial.trial_id)
        return attempt

    async def give_up(self, trial_id: str, attempt: int, end: EndOfTrial) -> None:
        """End a trial that was taken over and cannot be gone on with; the second time nothing happens.

        Raises:
            CogmentError: of the storage.
        """
        outcome = OutcomeWrite(trial_id, end.SerializeToString(), attempt)
        with suppress(FailedPreconditionError):
            await self.writer.write(outcome, EndWrite(trial_id, TrialEnd.ABNORMAL, attempt))

    async def release(self, trial_id: str, attempt: int) -> None:
        """Hand a trial over that was taken over and has not started here; see `Intake.release`.

        Raises:
            CogmentError: of the storage, or another attempt has it.
        """
        await self.sink().counted(attempt).release(trial_id)

    @asynccontextmanager
    async def reading(self, request: RetrieveSamplesRequest) -> AsyncIterator[SampleReader]:
        """Read samples in this process, without a call, for the time of the block.

        Args:
            request: which, as over a call.

        Raises:
            InvalidArgumentError: it names a field that does not exist.
            NotFoundError: a trial is not there.
        """
        selection = Selection(request)
        trials = await find_trials(self.store, request)
        with self.writer.followed(trials):
            async with Follower(self.store, selection, self.config, trials) as follower:
                yield SampleReader(follower, selection)

    async def __aenter__(self) -> Datastore:
        """Start its tasks."""
        await self._leases.load()
        nursery = await self._tasks.__aenter__()
        nursery.start_soon(self._write)
        nursery.start_soon(self._leases.run)
        if self.config.keep_trials:
            nursery.start_soon(self.retention.run)
        self._nursery = nursery
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Write what is left, and stop."""
        with trio.move_on_after(self.config.farewell_seconds, shield=True):
            await self.writer.drain()
        self._writing.cancel()
        self._nursery.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, value, traceback)

    async def _write(self) -> None:
        # What was handed over is written though everything around is cancelled; `__aexit__` sets the limit to that.
        with self._writing:
            await self.writer.run()
