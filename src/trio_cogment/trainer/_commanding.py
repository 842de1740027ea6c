"""Commands of controllers to runs: pauses, resumptions, rates."""

from __future__ import annotations

import trio

from trio_cogment.api.trainer.trainer_pb2 import ControlEvent
from trio_cogment.base.config import TrainerConfig
from trio_cogment.base.errors import FailedPreconditionError
from trio_cogment.trainer._board import Board
from trio_cogment.trainer._control import tell
from trio_cogment.trainer._entries import Entry
from trio_cogment.trainer._run_tasks import RunTasks
from trio_cogment.trainer.dispatching import RunControl
from trio_cogment.trainer.runs import Cause, RunState, follow


class Commanding:
    """Carries out commands; implements `Commands`.

    Args:
        board: the runs.
        tasks: carries commands out, also when nobody waits for them any more.
        config: limits.
    """

    def __init__(self, board: Board, tasks: RunTasks, config: TrainerConfig) -> None:
        self._board = board
        self._tasks = tasks
        self._config = config

    def entry(self, run_id: str) -> Entry:
        """See `Commands.entry`."""
        return self._board.entry(run_id)

    def pause(self, run_id: str) -> trio.Event:
        """See `Commands.pause`."""
        entry = self._board.entry(run_id)
        follow(entry.latest, Cause.PAUSE, 0)
        done = trio.Event()
        entry.pause_wanted = True
        for worker in entry.workers.values():
            if worker.stream is not None:
                worker.stream.tell_pause(True)
        entry.changed.unpark_all()
        self._tasks.start(entry, "pause", self._pause, entry, done)
        return done

    async def _pause(self, entry: Entry, done: trio.Event) -> None:
        """Pause a run when its workers have stopped sending, or after a while."""
        try:
            with trio.move_on_after(self._config.pause_ack_seconds):
                while entry.pause_wanted and any(
                    worker.supports_pause and worker.stream is not None and not worker.stream.paused
                    for worker in entry.workers.values()
                ):
                    await entry.changed.park()
            if entry.pause_wanted:
                entry.figures.pauses += entry.latest.state is not RunState.PAUSED
                await self._board.report_if_possible(entry, Cause.PAUSE)
        finally:
            done.set()

    def resume(self, run_id: str) -> trio.Event:
        """See `Commands.resume`."""
        entry = self._board.entry(run_id)
        follow(entry.latest, entry.latest.resumption, 0)
        done = trio.Event()
        entry.figures.resumes += entry.latest.state is RunState.PAUSED
        entry.pause_wanted = False
        for worker in entry.workers.values():
            if worker.stream is not None:
                worker.stream.tell_pause(False)
        entry.changed.unpark_all()
        self._tasks.start(entry, "resumption", self._board.report_if_possible, entry, entry.latest.resumption, "", done)
        return done

    def limit_rate(self, run_id: str, max_rate_hz: int) -> trio.Event:
        """See `Commands.limit_rate`."""
        entry = self._board.entry(run_id)
        if entry.over:
            raise FailedPreconditionError(f"run {run_id!r} has ended")
        entry.max_rate_hz = max_rate_hz
        for worker in entry.workers.values():
            if worker.stream is not None:
                worker.stream.tell_rate(max_rate_hz)
        tell(entry, "rate", ControlEvent(run_id=run_id, max_rate_hz=max_rate_hz))
        entry.changed.unpark_all()
        done = trio.Event()
        self._tasks.start(entry, "rate", self._board.keep_rate, entry, done)
        return done

    def control(self, run_id: str) -> RunControl:
        """See `RunSink.control`."""
        entry = self._board.entry(run_id)
        return RunControl(entry.pause_wanted, entry.max_rate_hz, entry.over)

    async def control_changed(self, run_id: str, known: RunControl) -> RunControl:
        """See `RunSink.control_changed`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        entry = self._board.entry(run_id)
        while (control := self.control(run_id)) == known:
            await entry.changed.park()
        return control
