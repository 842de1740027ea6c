"""`RunDispatcher`: admits runs, and has a task for each that goes on."""

from __future__ import annotations

import abc
import logging
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType

import trio

from trio_cogment.base.errors import CogmentError, FailedPreconditionError, UnavailableError
from trio_cogment.rpc import OwnNursery
from trio_cogment.trainer.dispatch.admission import Admission, Capacity
from trio_cogment.trainer.dispatching import RunOrder, RunSink
from trio_cogment.trainer.run_config import BUILTIN_TRIALS
from trio_cogment.trainer.runs import Cause

_log = logging.getLogger(__name__)


class Starter(abc.ABC):
    """Runs runs of one sort. What derives from it has no files, and leaves nothing elsewhere."""

    @abc.abstractmethod
    def opened(self) -> AbstractAsyncContextManager[None]:
        """Be ready for the time of a block; before that, end what an earlier server has left behind."""

    @abc.abstractmethod
    async def run(self, order: RunOrder, gpus: Sequence[int], sink: RunSink) -> None:
        """Run it until it has ended, and tell the sink how. On `Cancelled`, end whatever there is of it, and tell
        nothing.
        """

    async def recover(self, orders: Collection[RunOrder]) -> None:
        """End what an earlier server has left of runs elsewhere. It takes a few seconds at most, and never raises."""
        await trio.lowlevel.checkpoint_if_cancelled()

    async def forget(self, run_id: str) -> None:
        """Remove the files of a run. Never raises."""
        await trio.lowlevel.checkpoint_if_cancelled()


class _Job:
    """A run that the dispatcher has.

    Attributes:
        scope: of its task.
        done: set when nothing of it is left.
        begun: it does not wait any more.
    """

    def __init__(self, order: RunOrder, sink: RunSink) -> None:
        self.order = order
        self.sink = sink
        self.scope = trio.CancelScope()
        self.done = trio.Event()
        self.begun = False


class RunDispatcher:
    """A `Dispatcher`, as an asynchronous context manager; the trainer is opened within its block.

    Args:
        capacity: what all runs share.
        workers: runs those with a worker of their own; None: there are none.
        trials: runs those with the entry point `builtin:trials`; None: there are none.
        external: attends those with the entry point `external`, which wait for nothing; None: nobody does.
    """

    def __init__(
        self,
        capacity: Capacity,
        *,
        workers: Starter | None = None,
        trials: Starter | None = None,
        external: Starter | None = None,
    ) -> None:
        self._admission = Admission(capacity)
        self._workers = workers
        self._trials = trials
        self._external = external
        self._jobs: dict[str, _Job] = {}
        self._closed = False
        self._stack = AsyncExitStack()
        self._tasks = OwnNursery()

    async def __aenter__(self) -> RunDispatcher:
        """End what an earlier server has left behind."""
        async with AsyncExitStack() as stack:
            for starter in (self._workers, self._trials, self._external):
                if starter is not None:
                    await stack.enter_async_context(starter.opened())
            self._nursery = await stack.enter_async_context(self._tasks)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        """End what there is."""
        self._nursery.cancel_scope.cancel()
        return await self._stack.__aexit__(kind, value, traceback)

    @property
    def waiting(self) -> list[str]:
        """The runs that wait for what they ask for, the next one first."""
        return self._admission.waiting

    async def start(self, order: RunOrder, sink: RunSink) -> None:
        """See `Dispatcher.start`."""
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._closed:
            raise UnavailableError("the dispatcher is closed")
        if order.config.external and self._external is None:
            return
        self._starter(order)
        job = _Job(order, sink)
        if order.config.external:
            self._jobs[order.run_id] = job
            self._begin(job)
            return
        queue = order.again or order.config.schedule.queue
        admitted = self._admission.ask(order.run_id, order.config, queue=queue)
        self._jobs[order.run_id] = job
        if admitted:
            self._begin(job)

    async def recover(self, orders: Sequence[RunOrder]) -> None:
        """See `Dispatcher.recover`."""
        async with trio.open_nursery() as nursery:
            for starter in (self._workers, self._trials, self._external):
                of_it = [order for order in orders if self._starter_of(order) is starter]
                if starter is not None and of_it:
                    nursery.start_soon(starter.recover, of_it)

    async def forget(self, run_id: str) -> None:
        """See `Dispatcher.forget`."""
        if self._workers is not None:
            await self._workers.forget(run_id)

    async def stop(self, run_id: str) -> None:
        """See `Dispatcher.stop`."""
        job = self._jobs.get(run_id)
        if job is None:
            return
        job.scope.cancel()
        if job.begun:
            await job.done.wait()
        else:
            self._end(job)

    async def close(self) -> None:
        """See `Dispatcher.close`."""
        self._closed = True
        for run_id in list(self._jobs):
            self._jobs[run_id].scope.cancel()
        for job in list(self._jobs.values()):
            if job.begun:
                await job.done.wait()

    def _starter_of(self, order: RunOrder) -> Starter | None:
        if order.config.external:
            return self._external
        return self._trials if order.config.entry_point == BUILTIN_TRIALS else self._workers

    def _starter(self, order: RunOrder) -> Starter:
        starter = self._starter_of(order)
        if starter is None:
            what = "trials" if order.config.entry_point == BUILTIN_TRIALS else "workers"
            raise FailedPreconditionError(f"entry_point: this trainer starts no {what}")
        return starter

    def _begin(self, job: _Job) -> None:
        job.begun = True
        self._nursery.start_soon(self._run, job, name=f"run {job.order.run_id}")

    async def _run(self, job: _Job) -> None:
        run_id = job.order.run_id
        try:
            with job.scope:
                try:
                    gpus = () if job.order.config.external else self._admission.gpus_of(run_id)
                    await self._starter(job.order).run(job.order, gpus, job.sink)
                except CogmentError as error:
                    await _report(job, str(error))
                except Exception as error:  # noqa: BLE001  a bug in one run must not end the others
                    _log.exception("run %s", run_id)
                    await _report(job, f"internal error: {error!r}")
        finally:
            self._end(job)

    def _end(self, job: _Job) -> None:
        """Take note that nothing is left of a run, and let the next ones begin."""
        run_id = job.order.run_id
        self._admission.release(run_id)
        del self._jobs[run_id]
        job.done.set()
        while not self._closed and (following := self._admission.next()) is not None:
            self._begin(self._jobs[following])


async def _report(job: _Job, reason: str) -> None:
    for cause in (Cause.FAILED, Cause.START_FAILED):
        try:
            await job.sink.ended(job.order.run_id, cause, f"dispatch_error: {reason}")
        except FailedPreconditionError as error:
            _log.info("%s", error)
        except Exception:  # noqa: BLE001  as above
            _log.exception("run %s: its end could not be noted", job.order.run_id)
        else:
            return
