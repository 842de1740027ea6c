"""The interface between a trainer and whatever starts the workers and trials of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from trio_cogment.access import Sources
from trio_cogment.trainer._telemetry import Telemetry
from trio_cogment.trainer.run_config import RunConfig
from trio_cogment.trainer.runs import Cause, Run


@dataclass(frozen=True, slots=True)
class RunOrder:
    """A run to be started.

    Attributes:
        run_id: its name.
        config: what to start.
        owner: the account that has submitted it; empty: that is not known.
        again: a trainer that was stopped, or killed, has had it before: there may be something left of that, and it
            waits for what it asks for, whatever its configuration says.
        sources: what its worker's token is derived from.
    """

    run_id: str
    config: RunConfig
    again: bool = False
    owner: str = ""
    sources: Sources = ()


@dataclass(frozen=True, slots=True)
class RunControl:
    """What controllers want of a run.

    Attributes:
        paused: nothing new is to begin.
        max_rate_hz: not more steps, or starts of trials, a second than this; 0: any number.
        ended: the run has ended, or has failed.
    """

    paused: bool
    max_rate_hz: int
    ended: bool


class RunSink(Protocol):
    """Where a dispatcher tells what becomes of a run; `Trainer.reports` is one.

    All methods but `control` and `heard` raise `FailedPreconditionError` if the state of the run does not allow it, for
    example because it was cancelled, and wait until what they say is stored.
    """

    async def starting(self, run_id: str, gpu_slots: Sequence[int] = (), *, registers: bool = True) -> None:
        """Tell that the worker is about to be started; to be called before there is a process.

        Args:
            run_id: which run.
            gpu_slots: the GPUs it has got.
            registers: it has failed if it has not registered, or was attached, within
                `registration_timeout_seconds`.
        """

    async def attach(self, run_id: str, worker_id: str, kind: str) -> None:
        """Tell that a worker is there which does not call `RegisterWorker` itself."""

    def heard(self, run_id: str) -> None:
        """Tell that a worker lives. Never raises."""

    async def link(self, run_id: str, checkpoint: str) -> None:
        """Tell that a run has saved a version of a model in a model registry, as `model@version`."""

    async def publish(self, run_id: str, message: Telemetry) -> None:
        """Give a step or an episode of an attached worker. It waits while the run is paused or the storage is busy.

        The message belongs to the trainer then, which numbers it. It returns before the message is stored. If the
        storage fails, it is tried again.
        """

    async def ended(self, run_id: str, cause: Cause, reason: str = "", detail: str = "") -> Run:
        """Tell that a run is over, and return it as it is then: an earlier cause may have decided how it ends.

        Args:
            run_id: which run.
            cause: `FINISHED`, `FAILED`, `START_FAILED` or `LIMIT`.
            reason: in short, for example `exit_code_1`.
            detail: for example the last lines of standard error.
        """

    def control(self, run_id: str) -> RunControl:
        """Return what controllers want now."""

    async def control_changed(self, run_id: str, known: RunControl) -> RunControl:
        """Wait until controllers want something else; return it."""


class Dispatcher(Protocol):
    """Starts the workers and trials of runs."""

    async def start(self, order: RunOrder, sink: RunSink) -> None:
        """Start a run, or queue it; return when it is known which. Of an external run there is nothing to start, but
        perhaps trials to be followed.

        Args:
            order: what to start.
            sink: where to tell what becomes of it.

        Raises:
            ResourceExhaustedError: there is not what it asks for, and it does not want to wait.
            CogmentError: it cannot be started.
        """

    async def recover(self, orders: Sequence[RunOrder]) -> None:
        """End what a trainer that was killed has left of runs elsewhere: their trials.

        It takes a few seconds at most, and never raises.

        Args:
            orders: runs that had not ended; none of them was given to `start` yet.
        """

    async def forget(self, run_id: str) -> None:
        """Remove the files of a run that has ended long ago. Never raises."""

    async def stop(self, run_id: str) -> None:
        """End whatever there is of a run; return when nothing is left.

        It may be called for a run that the dispatcher has not got, and while `start` is at work on it, which then does
        not start it any more. Never raises.
        """

    async def close(self) -> None:
        """End whatever there is of all runs, without telling a sink, and start nothing any more. Never raises.

        The trainer is about to stop, and what becomes of such runs is decided at its next start.
        """
