"""`RunTasks`: the tasks of runs; what nobody has expected in one of them ends its run, and no other."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVarTuple

import trio

from trio_cogment.base.errors import FailedPreconditionError, UnavailableError
from trio_cogment.trainer._board import Board
from trio_cogment.trainer._entries import Entry
from trio_cogment.trainer.runs import Cause

_Args = TypeVarTuple("_Args")

_log = logging.getLogger(__name__)

#: Why a run has failed of which a task did.
INTERNAL_ERROR = "internal error; the server's log has the details"


class RunTasks:
    """Starts tasks of runs.

    Args:
        board: the runs.

    Attributes:
        nursery: where they run; set before the first one.
    """

    nursery: trio.Nursery

    def __init__(self, board: Board) -> None:
        self._board = board

    def start(self, entry: Entry, what: str, function: Callable[[*_Args], Awaitable[object]], *args: *_Args) -> None:
        """Start a task of a run.

        Args:
            entry: the run.
            what: the task's name is this "of run" and the run's id.
            function: the task.
            args: its arguments.
        """
        self.nursery.start_soon(self._run, entry, what, function, args, name=f"{what} of run {entry.run_id}")

    async def _run(
        self, entry: Entry, what: str, function: Callable[..., Awaitable[object]], args: tuple[object, ...]
    ) -> None:
        try:
            await function(*args)
        except Exception:  # noqa: BLE001  the boundary of a run
            _log.exception("run %s: its %s failed", entry.run_id, what)
            await self._fail(entry)

    async def _fail(self, entry: Entry) -> None:
        """End a run, and let nobody wait for its start any more."""
        if not entry.started.is_set():
            entry.refusal = UnavailableError(f"run {entry.run_id} could not be started: {INTERNAL_ERROR}")
        try:
            for cause in (Cause.FAILED, Cause.START_FAILED):
                try:
                    await self._board.report(entry, cause, INTERNAL_ERROR)
                    break
                except FailedPreconditionError as error:
                    _log.info("%s", error)
        except Exception:  # noqa: BLE001  as above
            _log.exception("run %s: its end could not be noted", entry.run_id)
        entry.started.set()
