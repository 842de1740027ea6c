"""`Trainer`: runs and their states, put together with the storage, the dispatcher and those who watch and control."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from types import TracebackType

import trio

from trio_cogment.access import AccessControl, Sources, lasting_sources
from trio_cogment.api.trainer.trainer_pb2 import RunRecord
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import (
    AlreadyExistsError,
    CogmentError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from trio_cogment.base.host import Host, Runner
from trio_cogment.base.metrics import TrainerGauges
from trio_cogment.rpc import OwnNursery, ServerCall
from trio_cogment.trainer._board import Board
from trio_cogment.trainer._chores import Chores
from trio_cogment.trainer._commanding import Commanding
from trio_cogment.trainer._control import Grants
from trio_cogment.trainer._entries import Entry
from trio_cogment.trainer._messages import record_of, status_name
from trio_cogment.trainer._publishing import STOPPING, Intake
from trio_cogment.trainer._reports import Reports
from trio_cogment.trainer._run_tasks import RunTasks
from trio_cogment.trainer._watching import Events
from trio_cogment.trainer.config_check import parse_config
from trio_cogment.trainer.credits import ClassShare, GrantTurns
from trio_cogment.trainer.dispatching import Dispatcher
from trio_cogment.trainer.run_config import check_run_id
from trio_cogment.trainer.runs import Cause, RunState, ending
from trio_cogment.trainer.storage import Batch, Database, Kind, Row, RunWrite

# New ids of runs: ULIDs, which sort by the time at which they were made. Pure.

#: Crockford's base 32: no I, L, O and U.
_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_LENGTH = 26
#: What a ULID has beside its time.
RANDOM_BYTES = 10


def new_ulid(wall_ns: int, random_bytes: bytes) -> str:
    """Return a ULID.

    Args:
        wall_ns: the time of the day in nanoseconds since the epoch.
        random_bytes: `RANDOM_BYTES` of them.
    """
    if len(random_bytes) != RANDOM_BYTES:
        raise ValueError(f"random_bytes: expected {RANDOM_BYTES} bytes, got {len(random_bytes)}")
    value = (wall_ns // 1_000_000 % (1 << 48)) << 80 | int.from_bytes(random_bytes, "big")
    return "".join(_DIGITS[value >> 5 * place & 31] for place in reversed(range(_LENGTH)))


class Trainer:
    """A trainer, as an asynchronous context manager; serve its `trainer_services` inside the block.

    On leaving, and after `Cancelled`, all that was accepted is stored, if that takes no longer than
    `farewell_seconds`. The dispatcher ends what it has started before that.

    Args:
        database: where runs are kept; it is used by this trainer alone, and closed by the caller.
        run_writer: runs what writes to it, one at a time.
        run_reader: runs what reads from it, one at a time.
        config: limits and timeouts.
        host: gives the time of the day, ids and tokens.
        dispatcher: starts workers and trials; None: only external runs are possible.

    Attributes:
        board: the runs.
        grants: gives credits to workers.
        intake: takes steps and episodes.
        commanding: what controllers can do.
        reports: what workers and the dispatcher can tell.
        started_ns: when it was made, in nanoseconds since the epoch.
    """

    def __init__(
        self,
        database: Database,
        run_writer: Runner,
        run_reader: Runner,
        *,
        config: TrainerConfig | None = None,
        host: Host | None = None,
        dispatcher: Dispatcher | None = None,
        access: AccessControl | None = None,
    ) -> None:
        self.config = config = config or TrainerConfig()
        self._database = database
        self._run_writer = run_writer
        self._run_reader = run_reader
        self._host = host or Host()
        self._dispatcher = dispatcher
        self._streams: set[trio.CancelScope] = set()
        self._stopping = False
        self._tasks = OwnNursery()
        self.started_ns = self._host.wall_clock()
        self.board = board = Board(self._write, self._host.wall_clock, config, self._on_shown)
        shares = {
            "interactive": ClassShare(weight=config.interactive_weight, rate_hz=config.interactive_rate_hz),
            "batch": ClassShare(weight=config.batch_weight, rate_hz=config.batch_rate_hz),
        }
        self.grants = Grants(GrantTurns(shares, chunk=config.credit_low, capacity=config.credit_high))
        self.intake = Intake(board.commits, self.grants, config, self._begin_telemetry, self._end_telemetry)
        board.store_again = self.intake.store_again
        self._run_tasks = run_tasks = RunTasks(board)
        self.commanding = Commanding(board, run_tasks, config)
        self.reports = Reports(board, self.intake, self.commanding, config, self._host)
        clock = self._host.wall_clock
        self._chores = Chores(board, run_tasks, database, run_writer, config, dispatcher, self.reports, clock, access)

    async def __aenter__(self) -> Trainer:
        """Read the storage, begin, and end the runs that a previous process has left behind."""
        stored_runs = await self._run_reader(self._database.runs)
        first, last = await self._run_reader(self._database.event_range)
        self.board.events = Events(first, last, self._database, self._run_reader, self.config.kept_events)
        for stored in stored_runs:
            config = None
            if not stored.run.ended:
                text = await self._run_reader(self._database.config, stored.number)
                config = parse_config(text, max_characters=max(len(text), 1))
            self.board.restore(stored, config)
        self._nursery = self._run_tasks.nursery = await self._tasks.__aenter__()
        self._nursery.start_soon(self.board.commits.run, name="trainer: commits")
        self._nursery.start_soon(self.grants.run, name="trainer: grants")
        self._chores.begin(self._nursery)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """Stop."""
        self.stop()
        if self._dispatcher is not None:
            with trio.CancelScope(shield=True):
                await self._dispatcher.close()
        with trio.move_on_after(self.config.farewell_seconds, shield=True):
            await self.board.commits.drain()
        self._nursery.cancel_scope.cancel()
        return await self._tasks.__aexit__(kind, value, traceback)

    def stop(self) -> None:
        """Take no more runs, and end all streams, so that a draining server need not wait for them."""
        self._stopping = True
        for scope in self._streams:
            scope.cancel()

    @contextmanager
    def until_stopped(self) -> Iterator[None]:
        """Serve a stream within the block.

        Raises:
            UnavailableError: the trainer is stopping.
        """
        if self._stopping:
            raise UnavailableError(STOPPING)
        scope = trio.CancelScope()
        self._streams.add(scope)
        try:
            with scope:
                yield
        finally:
            self._streams.discard(scope)
        if scope.cancelled_caught:
            raise UnavailableError(STOPPING)

    @property
    def healthy(self) -> bool:
        """Whether the last write succeeded, and the trainer is not stopping."""
        return self.board.commits.healthy and not self._stopping

    # Runs

    def records(self, statuses: frozenset[int], run_ids: Collection[str] = ()) -> list[RunRecord]:
        """Return the runs in some states, as they are stored, in the order in which they were submitted.

        Args:
            statuses: these states.
            run_ids: only these runs, with all that is known of them; none: all runs.
        """
        wanted = frozenset(run_ids)
        return [
            record_of(self.board.with_heartbeat(entry, entry.shown), detailed=bool(wanted))
            for entry in self.board.all()
            if entry.shown is not None and entry.shown.state in statuses and (not wanted or entry.run_id in wanted)
        ]

    async def submit(self, run_id: str, config_json: str, owner: str = "", sources: Sources = ()) -> tuple[str, str]:
        """Take a run; return its id and the digest of its configuration. The id is that of a run that goes on already,
        if that has the same configuration, and no other id was asked for.

        Args:
            run_id: the id to use; empty: that in the configuration, or a new one.
            config_json: the configuration.
            owner: the account that submits it; empty: that is not known.
            sources: the token of who submits it, and what that was derived from: the worker's ends when they are
                revoked.

        Raises:
            InvalidArgumentError: the configuration or the id is not valid.
            AlreadyExistsError: another run has the id, or one that has ended.
            FailedPreconditionError: nothing can start it.
            ResourceExhaustedError: there is not what it asks for. The run is there, and has failed.
        """
        if self._stopping:
            raise UnavailableError(STOPPING)
        config = parse_config(config_json, max_characters=self.config.max_config_characters)
        if run_id and config.run_id and run_id != config.run_id:
            raise InvalidArgumentError(
                f"run_id: expected {config.run_id!r}, as in metadata.worker.config.run_id, got {run_id[:80]!r}"
            )
        if run_id:
            check_run_id("run_id", run_id)
        digest = config.digest
        entry = self._same(run_id or config.run_id, digest)
        if entry is None:
            if not config.external and self._dispatcher is None:
                raise FailedPreconditionError("entry_point: expected 'external': this trainer starts no workers")
            new_id = run_id or config.run_id or self._new_id()
            entry = self.board.create(new_id, digest, config, owner, lasting_sources(sources))
        await self.board.commits.wait(entry.position)
        await entry.started.wait()
        if entry.refusal is not None:
            raise entry.refusal
        return entry.run_id, digest

    def _same(self, run_id: str, digest: str) -> Entry | None:
        if run_id:
            entry = self.board.find(run_id)
            if entry is not None and entry.latest.digest != digest:
                raise AlreadyExistsError(f"run_id: there is another run {run_id!r}, with another configuration")
            if entry is not None and entry.latest.outcome is not None:
                # Its id would look like that of a run that goes on.
                raise AlreadyExistsError(f"run_id: run {run_id!r} has ended{ending(entry.latest)}; expected a new id")
            return entry
        same = (entry for entry in self.board.active.values() if entry.latest.digest == digest and not entry.over)
        return next(same, None)

    def _new_id(self) -> str:
        return new_ulid(self._host.wall_clock(), self._host.secret_bytes(RANDOM_BYTES))

    async def cancel(self, run_id: str) -> None:
        """Cancel a run; return when its processes and trials have ended, or after `cancel_seconds`.

        Raises:
            NotFoundError: there is no such run.
            CogmentError: it could not be stored. The run is ended all the same, and storing it is tried again.
        """
        entry = self.board.entry(run_id)
        try:
            await self.board.commits.wait(self.board.change(entry, Cause.CANCEL, "user_cancel"))
        except CogmentError:
            # Perhaps its own worker has filled the disk. It ends now, and the storage learns of it later.
            self._run_tasks.start(
                entry, "cancellation", self.board.report_if_possible, entry, Cause.CANCEL, "user_cancel"
            )
            with trio.move_on_after(self.config.cancel_seconds):
                await self._chores.end(entry)
            raise
        with trio.move_on_after(self.config.cancel_seconds):
            await entry.stopped.wait()

    def heartbeat(self, run_id: str) -> None:
        """Take note that a worker of a run lives.

        Raises:
            NotFoundError: there is no such run.
        """
        self.board.hear(self.board.entry(run_id), trio.current_time())

    def figures(self, run_id: str) -> dict[str, float]:
        """Return the measurements of a run, as `RunFigures` has them.

        Raises:
            NotFoundError: there is no such run.
        """
        entry = self.board.entry(run_id)
        return asdict(entry.counts())

    def gauges(self) -> TrainerGauges:
        """Return the measurements of all runs, for metrics."""
        runs = dict.fromkeys(map(status_name, RunState), 0)
        for entry in self.board.all():
            runs[status_name(entry.latest.state)] += 1
        return TrainerGauges(runs, {entry.run_id: entry.counts() for entry in self.board.active.values()})

    def _begin_telemetry(self, entry: Entry) -> None:
        """Take note that steps or episodes are about to be stored."""
        self.board.hear(entry, trio.current_time())
        if entry.latest.state is RunState.READY or not entry.latest.published:
            self.board.change(entry, Cause.TELEMETRY)

    def _end_telemetry(self, entry: Entry, kind: Kind) -> None:
        """Take note that one will be: it may be the last one that the run is allowed."""
        limit = entry.most_steps
        if limit is not None and kind is Kind.STEPS and entry.logs[kind].accepted >= limit and not entry.over:
            self.board.change(entry, Cause.LIMIT, "schedule limit")
            self._run_tasks.start(entry, "limit", self.board.report_if_possible, entry, Cause.LIMIT, "schedule limit")

    async def _write(self, batch: Batch) -> None:
        await self._run_writer(self._database.write, batch)

    def _on_shown(self, entry: Entry, write: RunWrite) -> None:
        self._chores.on_shown(entry, write)

    # Streams

    async def stream(self, call: ServerCall, kind: Kind, run_id: str, since: int) -> None:
        """Send the stored steps or episodes behind a known one, then new ones, until the run has ended.

        Raises:
            NotFoundError: there is no such run.
        """
        entry = self.board.entry(run_id)
        await self.board.commits.wait(entry.position)  # it may be new
        await call.send_initial_metadata()
        log, position = entry.logs[kind], since
        message_type = call.method.response_type
        while True:
            ended = entry.shown is not None and entry.shown.ended
            page = log.recent(position, self.config.page_rows, self.config.page_bytes)
            if page is None:
                page = await self._run_reader(_read, self._database, kind, entry.number, position, self.config)
                # Asked afterwards: if the run is there now it was there before, so nothing was taken from the page.
                if self.board.find(run_id) is not entry:
                    raise NotFoundError(f"run {run_id} was forgotten, as it ended long ago")
            for row in page:
                await call.send(message_type.FromString(row.data))
                position = row.seq
            if page:
                continue
            if ended:
                return
            while position >= log.stored and not (entry.shown is not None and entry.shown.ended):
                await log.changed.park()


def _read(database: Database, kind: Kind, number: int, after: int, config: TrainerConfig) -> list[Row]:
    return database.rows(kind, number, after=after, limit=config.page_rows, max_bytes=config.page_bytes)
