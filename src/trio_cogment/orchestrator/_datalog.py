"""A trial's samples on their way to its data log."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import DESCRIPTOR, DatalogSample, RunTrialDatalogInput
from trio_cogment.errors import RpcError
from trio_cogment.orchestrator._connections import Connections, Target
from trio_cogment.rpc import ClientCall, methods_of

_log = logging.getLogger(__name__)

RUN_TRIAL_DATALOG = methods_of(DESCRIPTOR.services_by_name["DatalogSP"])["RunTrialDatalog"]


class _Discard:
    """The data log's replies mean nothing here, but unread they would close its window."""

    def on_message(self, message: Any) -> None:
        pass

    def on_end(self, error: RpcError | None) -> None:
        pass


class Datalog:
    """The stream of one trial: a queue that `put` fills from the tick, and a task that empties it.

    Args:
        trial_id: goes out as metadata, for logs too.
        user_id: goes out as metadata.
        max_queued_samples: from here on `on_full(True)` asks for a pause; `on_full(False)` follows at half of it.
        on_full: see above. Called from any task, never with the same value twice in a row.
    """

    def __init__(
        self, trial_id: str, user_id: str, *, max_queued_samples: int, on_full: Callable[[bool], None]
    ) -> None:
        self._trial_id = trial_id
        self._metadata = (("trial-id", trial_id), ("user-id", user_id))
        self._max_queued_samples = max_queued_samples
        self._on_full = on_full
        self._queue: deque[DatalogSample] = deque()
        self._parked = trio.lowlevel.ParkingLot()
        self._full = False
        self._complete = False
        self._lost = False
        self.dropped_samples = 0

    def put(self, sample: DatalogSample) -> None:
        """Queue a sample; after the data log was lost it is dropped and counted."""
        if self._lost:
            self.dropped_samples += 1
            return
        self._queue.append(sample)
        self._parked.unpark()
        if not self._full and len(self._queue) >= self._max_queued_samples:
            self._full = True
            self._on_full(True)

    def complete(self) -> None:
        """No more samples come; `run` returns when the queued ones are out."""
        self._complete = True
        self._parked.unpark()

    async def run(
        self,
        connections: Connections,
        target: Target,
        params: TrialParams,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Connect, report `started` once the parameters are out, then write samples until complete.

        The loss of the data log after that is logged and counted, and the trial goes on.

        Raises:
            RpcError: the data log did not accept the stream (before `started` only).
        """
        started = False
        try:
            async with (
                connections.open(target) as opener,
                opener.call(RUN_TRIAL_DATALOG, metadata=self._metadata) as call,
            ):
                await call.send(RunTrialDatalogInput(trial_params=params))
                task_status.started()
                started = True
                await self._write(call)
        except RpcError as error:
            if not started:
                raise
            self._lose(error)

    async def _write(self, call: ClientCall) -> None:
        end = _EndWatch(call)
        call.set_consumer(end)
        while True:
            while self._queue:
                # Taken off only once it is sent: the queue's length is the back-pressure.
                await call.send(RunTrialDatalogInput(sample=self._queue[0]))
                self._queue.popleft()
                if self._full and len(self._queue) <= self._max_queued_samples // 2:
                    self._full = False
                    self._on_full(False)
            if self._complete:
                break
            await self._parked.park()
        await call.done_sending()
        # The log has everything once it has ended the stream; it is given the caller's deadline for that.
        await end.ended.wait()

    def _lose(self, error: RpcError) -> None:
        self._lost = True
        self.dropped_samples += len(self._queue)
        self._queue.clear()
        _log.warning("trial %s: the data log is lost, samples are dropped from here on: %s", self._trial_id, error)
        if self._full:
            self._full = False
            self._on_full(False)


class _EndWatch(_Discard):
    def __init__(self, call: ClientCall) -> None:
        self._call = call
        self.ended = trio.Event()

    def on_end(self, error: RpcError | None) -> None:
        self.ended.set()
