"""Chores of a trainer: it starts runs, cleans up behind them, and sees when their time is over."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence

import trio

from trio_cogment.access import AccessControl
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import CogmentError
from trio_cogment.base.host import Runner
from trio_cogment.trainer._board import RETRY_SECONDS, Board
from trio_cogment.trainer._entries import Entry
from trio_cogment.trainer._run_tasks import RunTasks
from trio_cogment.trainer.dispatching import Dispatcher, RunOrder, RunSink
from trio_cogment.trainer.runs import Cause, RunState
from trio_cogment.trainer.storage import Database, RunWrite

_log = logging.getLogger(__name__)

#: Old runs are looked for at least so often: the time of the day may be set.
_LOOK_NS = 3600 * 10**9
#: How often is looked for sessions whose access token was revoked, as for calls (`RpcConfig.access_recheck_seconds`).
_RECHECK_SECONDS = 5.0
_WITH_WORKER = (RunState.READY, RunState.EXECUTING, RunState.PAUSED)


class Chores:
    """The tasks of a trainer.

    Args:
        board: the runs.
        tasks: starts the tasks of single runs.
        database: where old changes are forgotten.
        run_writer: runs what writes to it.
        config: limits.
        dispatcher: starts workers and trials, if there is one.
        sink: what the dispatcher reports to.
        wall_clock: returns the time of the day in nanoseconds since the epoch.
        access: knows which tokens were revoked; None: there are none.
    """

    def __init__(
        self,
        board: Board,
        tasks: RunTasks,
        database: Database,
        run_writer: Runner,
        config: TrainerConfig,
        dispatcher: Dispatcher | None,
        sink: RunSink,
        wall_clock: Callable[[], int],
        access: AccessControl | None = None,
    ) -> None:
        self._access = access
        self._board = board
        self._tasks = tasks
        self._wall_clock = wall_clock
        self._database = database
        self._run_writer = run_writer
        self._config = config
        self._dispatcher = dispatcher
        self._sink = sink
        self._deadlines_changed = trio.lowlevel.ParkingLot()
        self._prune_wanted = trio.lowlevel.ParkingLot()

    def begin(self, nursery: trio.Nursery) -> None:
        """Start the tasks, and see to the runs that a previous process has left behind."""
        nursery.start_soon(self._watch_deadlines, name="trainer: deadlines")
        nursery.start_soon(self._prune, name="trainer: old changes")
        if self._access is not None:
            nursery.start_soon(self._end_sessions, self._access, name="trainer: sessions of revoked tokens")
        if self._config.retention_seconds:
            nursery.start_soon(self._retire, name="trainer: old runs")
        nursery.start_soon(self._restart_all, list(self._board.active.values()), name="trainer: restart of runs")

    def on_shown(self, entry: Entry, write: RunWrite) -> None:
        """Do what the new state of a run asks for."""
        self._deadlines_changed.unpark_all()
        if write.event is not None:
            self._prune_wanted.unpark_all()
            if write.run.state in (RunState.FAULT, RunState.TERM):
                self._tasks.start(entry, "cleanup", self._clean_up, entry)
        if write.config is not None:
            self._tasks.start(entry, "start", self._start, entry)

    async def _restart_all(self, entries: Sequence[Entry]) -> None:
        orders = [
            RunOrder(entry.run_id, entry.config, True, entry.latest.owner, entry.latest.sources)
            for entry in entries
            if entry.config is not None and not entry.config.external
        ]
        for entry in entries:
            if entry.config is None or entry.config.external:
                self._tasks.start(entry, "restart", self._restart, entry)
        if orders and self._dispatcher is not None:
            try:
                await self._dispatcher.recover(orders)
            except Exception:  # noqa: BLE001  what is left of one run must not end the others
                _log.exception("what is left of %d runs could not be ended", len(orders))
        for order in orders:
            entry = self._board.entry(order.run_id)
            self._tasks.start(entry, "restart", self._restart, entry)

    async def _restart(self, entry: Entry) -> None:
        if entry.latest.state is RunState.FAULT:
            await self._clean_up(entry)
            return
        await self._board.report_if_possible(entry, entry.latest.restart, "daemon restarted")
        if entry.latest.state is RunState.INIT or (entry.config is not None and entry.config.external):
            await self._start(entry, again=True)
        else:
            entry.started.set()

    async def _start(self, entry: Entry, *, again: bool = False) -> None:
        """Give a run to the dispatcher."""
        config = entry.config
        if self._dispatcher is not None and config is not None and not entry.over:
            try:
                order = RunOrder(entry.run_id, config, again, entry.latest.owner, entry.latest.sources)
                await self._dispatcher.start(order, self._sink)
            except CogmentError as error:
                entry.refusal = error
                await self._board.report_if_possible(entry, Cause.REFUSED, f"dispatch_error: {error}")
        entry.started.set()

    async def end(self, entry: Entry) -> None:
        """End what is running of a run."""
        if self._dispatcher is not None and not entry.stopped.is_set():
            await self._dispatcher.stop(entry.run_id)

    async def _clean_up(self, entry: Entry) -> None:
        """End what is left of a run that is over."""
        try:
            await self.end(entry)
        except Exception:  # noqa: BLE001  it has ended all the same
            _log.exception("run %s: what is left of it could not be ended", entry.run_id)
        entry.started.set()
        if entry.latest.state is RunState.FAULT:
            await self._board.report_if_possible(entry, Cause.CLEANED)
            return
        entry.stopped.set()
        for worker in entry.workers.values():
            if worker.stream is not None:
                worker.stream.close()
        for log in entry.logs.values():
            log.close()

    async def _end_sessions(self, access: AccessControl) -> None:
        while True:
            await trio.sleep(_RECHECK_SECONDS)
            for entry in self._board.active.values():
                entry.end_sessions(access.stand)

    async def _prune(self) -> None:
        while True:
            await self._prune_wanted.park()
            before = self._board.events.outdated()
            if before:
                try:
                    await self._run_writer(self._database.forget_events, before)
                except CogmentError as error:
                    _log.warning("old changes of runs could not be removed: %s", error)
                except Exception:  # noqa: BLE001  a bug here must not end the service of all runs
                    _log.exception("old changes of runs could not be removed")

    async def _retire(self) -> None:
        """Forget runs that have ended long ago."""
        kept_ns = round(self._config.retention_seconds * 1e9)
        while True:
            due = self._wall_clock() + min(kept_ns, _LOOK_NS)
            for entry in self._board.all():
                run = entry.shown
                # What is being ended, or was not stored as ended, is not old.
                if run is None or not run.ended or not entry.stopped.is_set():
                    continue
                if run.updated_ns + kept_ns <= self._wall_clock():
                    await self._forget(entry)
                else:
                    due = min(due, run.updated_ns + kept_ns)
            await trio.sleep(max(0.0, (due - self._wall_clock()) / 1e9))

    async def _forget(self, entry: Entry) -> None:
        self._board.forget(entry)
        try:
            if self._dispatcher is not None:
                await self._dispatcher.forget(entry.run_id)
            while not await self._run_writer(self._database.forget_run, entry.number):
                pass
        except CogmentError as error:
            _log.warning("run %s is forgotten, and what is stored of it at the next start: %s", entry.run_id, error)
        except Exception:  # noqa: BLE001  a bug here must not end the service of all runs
            _log.exception("run %s is forgotten, and what is left of it was not removed", entry.run_id)
        else:
            _log.info("run %s is forgotten", entry.run_id)

    async def _watch_deadlines(self) -> None:
        while True:
            due = math.inf
            for entry in self._board.active.values():
                when, cause, reason = self._deadline(entry)
                if when <= trio.current_time():
                    self._tasks.start(entry, "deadline", self._board.report_if_possible, entry, cause, reason)
                    when = trio.current_time() + RETRY_SECONDS
                due = min(due, when)
            with trio.move_on_at(due):
                await self._deadlines_changed.park()

    def _deadline(self, entry: Entry) -> tuple[float, Cause, str]:
        """Return when what happens to a run by itself."""
        config, state = self._config, entry.latest.state
        found: list[tuple[float, Cause, str]] = [(math.inf, Cause.LIMIT, "")]
        if state is RunState.HANDSHAKE and entry.registers and config.registration_timeout_seconds:
            when = entry.began_at + config.registration_timeout_seconds
            found.append((when, Cause.NOT_REGISTERED, "registration_timeout"))
        if state in _WITH_WORKER and config.heartbeat_timeout_seconds:
            found.append((entry.heard_at + config.heartbeat_timeout_seconds, Cause.NO_HEARTBEAT, "worker_timeout"))
        limit = entry.config.schedule.max_duration_seconds if entry.config is not None else None
        if limit is not None and state in (RunState.HANDSHAKE, *_WITH_WORKER):
            found.append((entry.began_at + limit, Cause.LIMIT, "schedule limit"))
        return min(found, key=lambda deadline: deadline[0])
