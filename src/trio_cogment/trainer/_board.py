"""The runs in memory, and the way of their changes into the storage and to those who watch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import trio

from trio_cogment.access import Sources
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import CogmentError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from trio_cogment.trainer._commits import Commits
from trio_cogment.trainer._control import tell_state
from trio_cogment.trainer._entries import Entry
from trio_cogment.trainer._messages import record_of
from trio_cogment.trainer._telemetry import Telemetry, TelemetryLog
from trio_cogment.trainer._watching import Events
from trio_cogment.trainer.run_config import RunConfig
from trio_cogment.trainer.runs import Cause, Run, RunState, follow, with_checkpoint
from trio_cogment.trainer.storage import Batch, Kind, Row, RunWrite, StoredRun, TelemetryRows

_log = logging.getLogger(__name__)

#: How long to wait before a change that must be stored is tried again.
RETRY_SECONDS = 1.0


class Board:
    """All runs.

    Args:
        write: writes to the storage.
        wall_clock: returns the time of the day in nanoseconds since the epoch.
        config: limits.
        on_shown: is called when a new or changed run is stored.

    Attributes:
        commits: the queue of what is to be stored.
        events: the changes that are stored; set when the storage was read.
        active: the runs that have not ended, by their numbers in the storage.
        store_again: is called with what was kept and could not be stored; set before the first write.
    """

    events: Events
    store_again: Callable[[Entry, Kind, Telemetry], None]

    def __init__(
        self,
        write: Callable[[Batch], Awaitable[None]],
        wall_clock: Callable[[], int],
        config: TrainerConfig,
        on_shown: Callable[[Entry, RunWrite], None],
    ) -> None:
        self.commits = Commits(write, self, config)
        self._wall_clock = wall_clock
        self._config = config
        self._on_shown = on_shown
        self._entries: dict[str, Entry] = {}
        self._by_number: dict[int, Entry] = {}
        self.active: dict[int, Entry] = {}
        self._next_number = 1

    def entry(self, run_id: str) -> Entry:
        """Return a run.

        Raises:
            InvalidArgumentError: there is no id.
            NotFoundError: there is no such run.
        """
        if not run_id:
            raise InvalidArgumentError("run_id: expected the id of a run, got nothing")
        found = self._entries.get(run_id)
        if found is None:
            raise NotFoundError(f"run_id: there is no run {run_id[:80]!r}")
        return found

    def find(self, run_id: str) -> Entry | None:
        """Return a run, None if there is none."""
        return self._entries.get(run_id)

    def all(self) -> list[Entry]:
        """Return all runs, in the order in which they were submitted."""
        return list(self._entries.values())

    def add(
        self,
        number: int,
        run: Run,
        config: RunConfig | None,
        last: dict[Kind, int],
        marks: dict[Kind, dict[str, int]],
    ) -> Entry:
        """Add a run, a new or a stored one."""
        logs = {kind: TelemetryLog(kind, number, last[kind], marks[kind], self._config.recent_rows) for kind in Kind}
        entry = Entry(number, run, config, logs)
        self._entries[run.run_id] = self._by_number[number] = self.active[number] = entry
        self._next_number = max(self._next_number, number + 1)
        return entry

    def restore(self, stored: StoredRun, config: RunConfig | None) -> None:
        """Add a run that was found in the storage."""
        entry = self.add(stored.number, stored.run, config, stored.last, stored.marks)
        entry.shown = stored.run
        if stored.run.ended:
            del self.active[stored.number]
            entry.started.set()
            entry.stopped.set()

    def forget(self, entry: Entry) -> None:
        """Forget a run that has ended."""
        self._entries.pop(entry.run_id, None)
        self._by_number.pop(entry.number, None)

    def create(self, run_id: str, digest: str, config: RunConfig, owner: str = "", sources: Sources = ()) -> Entry:
        """Add a run that an account has submitted, and queue it for the storage."""
        now = self._wall_clock()
        run = Run(
            run_id=run_id,
            digest=digest,
            external=config.external,
            created_ns=now,
            updated_ns=now,
            run_name=config.run_name,
            owner=owner,
            sources=sources,
        )
        last, marks = dict.fromkeys(Kind, 0), {kind: dict[str, int]() for kind in Kind}
        entry = self.add(self._next_number, run, config, last, marks)
        self._store(entry, config.with_run_id(run_id))
        return entry

    def change(self, entry: Entry, cause: Cause, reason: str = "", detail: str = "") -> int:
        """Follow a cause; return the position in the queue of commits at which the run's last change is.

        Raises:
            FailedPreconditionError: the state of the run does not allow it.
        """
        before = entry.latest
        after = follow(before, cause, self._wall_clock(), reason, detail)
        if after is before:
            return entry.position
        entry.latest = after
        if before.state is RunState.INIT:
            entry.began_at = trio.current_time()
        _log.info("run %s: %s -> %s (%s)", entry.run_id, before.state.name, after.state.name, cause.value)
        self._store(entry)
        tell_state(entry, before.state)
        entry.changed.unpark_all()
        return entry.position

    def _store(self, entry: Entry, config: str | None = None) -> None:
        entry.latest = run = self.with_heartbeat(entry, entry.latest)
        seq = self.events.take_number()
        event = Row(seq, record_of(run, seq).SerializeToString())
        entry.position = self.commits.put_run(RunWrite(entry.number, run, event, config))

    def with_heartbeat(self, entry: Entry, run: Run) -> Run:
        """Return a state of a run with the time at which its workers were heard last."""
        if not entry.was_heard:
            return run
        ago = trio.current_time() - entry.heard_at
        return replace(run, heartbeat_ns=self._wall_clock() - round(ago * 1e6) * 1000)

    async def report(self, entry: Entry, cause: Cause, reason: str = "", detail: str = "") -> Run:
        """Follow a cause that nobody can take back, and return when that is stored, however often it has to be tried.

        Raises:
            FailedPreconditionError: the state of the run does not allow it.
        """
        while True:
            self.change(entry, cause, reason, detail)
            if await self._stored(entry, cause.value):
                return entry.latest

    async def link(self, entry: Entry, checkpoint: str) -> None:
        """Take note of a version of a model that a run has saved, as `model@version`, and return when it is stored.

        Raises:
            FailedPreconditionError: the run has ended.
        """
        while True:
            after = with_checkpoint(entry.latest, checkpoint)
            if after is not entry.latest:
                entry.latest = after
                self._store(entry)
            if await self._stored(entry, f"checkpoint {checkpoint}"):
                return

    async def keep_rate(self, entry: Entry, done: trio.Event) -> None:
        """Store the rate that controllers allow a run, however often it has to be tried; then set `done`."""
        try:
            # A new run that could not be stored is not there any more.
            while self._entries.get(entry.run_id) is entry:
                if entry.latest.max_rate_hz != entry.max_rate_hz:
                    entry.latest = replace(self.with_heartbeat(entry, entry.latest), max_rate_hz=entry.max_rate_hz)
                    entry.position = self.commits.put_run(RunWrite(entry.number, entry.latest))
                if await self._stored(entry, "rate"):
                    break
        finally:
            done.set()

    async def _stored(self, entry: Entry, what: str) -> bool:
        """Wait until a change of a run is stored; after a failure, wait a while and return False."""
        try:
            await self.commits.wait(entry.position)
        except CogmentError as error:
            _log.warning("run %s: its %s is not stored yet: %s", entry.run_id, what, error)
            await trio.sleep(RETRY_SECONDS)
            return False
        return True

    async def report_if_possible(
        self, entry: Entry, cause: Cause, reason: str = "", done: trio.Event | None = None
    ) -> None:
        """Follow a cause as `report` does, or note that the state of the run does not allow it.

        Args:
            entry: the run.
            cause: what has happened.
            reason: why.
            done: is set at the end.
        """
        try:
            await self.report(entry, cause, reason)
        except FailedPreconditionError as error:
            _log.info("%s", error)
        finally:
            if done is not None:
                done.set()

    def on_stored(self, batch: Batch) -> None:
        """See `Owner.on_stored`."""
        now = trio.current_time()
        for rows in batch.telemetry:
            entry = self._by_number[rows.number]
            entry.figures.note_accepted(len(rows.data), now)
            entry.logs[rows.kind].on_stored(rows)
        for write in batch.runs:
            self._show(self._by_number[write.number], write)
        for rows in batch.telemetry:
            self._by_number[rows.number].logs[rows.kind].changed.unpark_all()

    def _show(self, entry: Entry, write: RunWrite) -> None:
        entry.shown = write.run
        if write.event is not None:
            self.events.on_stored(write.event)
        if write.run.ended and self.active.pop(entry.number, None) is not None:
            for log in entry.logs.values():
                log.changed.unpark_all()
        self._on_shown(entry, write)
        entry.changed.unpark_all()

    def on_failed(self, batches: Sequence[Batch]) -> None:
        """See `Owner.on_failed`."""
        self.events.on_failed()
        telemetry = [rows for batch in batches for rows in batch.telemetry]
        for rows in telemetry:
            self._take_back(self._by_number[rows.number], rows)
        for batch in batches:
            for write in batch.runs:
                self._undo(write)
        for rows in telemetry:
            for message in rows.kept:
                self.store_again(self._by_number[rows.number], rows.kind, message)

    def _take_back(self, entry: Entry, rows: TelemetryRows) -> None:
        entry.logs[rows.kind].on_failed()
        for worker_id, count in Counter(rows.workers).items():
            entry.workers[worker_id].ledger.take_back(count)

    def _undo(self, write: RunWrite) -> None:
        entry = self._by_number.get(write.number)
        if entry is None:
            return  # it was new, and another write of it failed as well
        if entry.shown is None:
            del self._by_number[write.number], self.active[write.number], self._entries[entry.run_id]
        else:
            entry.latest = entry.shown
            entry.position = 0
            entry.changed.unpark_all()

    def hear(self, entry: Entry, now: float) -> None:
        """Take note that a worker of a run lives; now and then that is stored, too."""
        entry.heard(now)
        if entry.heard_at - entry.heartbeat_stored_at >= self._config.heartbeat_store_seconds and not entry.over:
            entry.heartbeat_stored_at = entry.heard_at
            entry.latest = self.with_heartbeat(entry, entry.latest)
            self.commits.put_run(RunWrite(entry.number, entry.latest))
