"""A trial's samples on their way to its data log."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import DESCRIPTOR, DatalogSample, RunTrialDatalogInput
from trio_cogment.errors import RpcError
from trio_cogment.orchestrator._connections import Connections, Target
from trio_cogment.rpc import ClientCall, methods_of

_log = logging.getLogger(__name__)

RUN_TRIAL_DATALOG = methods_of(DESCRIPTOR.services_by_name["DatalogSP"])["RunTrialDatalog"]


class Datalog:
    """The stream of one trial: a queue that `put` fills from the tick, and a task that empties it.

    Args:
        trial_id: goes out as metadata, for logs too.
        user_id: goes out as metadata.
        max_queued_samples: from here on `on_full(True)` asks for a pause; `on_full(False)` follows at half of it.
        flush_seconds: how long the log may take for one sample, or for its end, once the trial is over.
        on_full: see above. Called from any task, never with the same value twice in a row.

    Attributes:
        opened: set once the parameters are out, or `failure` is.
        failure: why the log did not accept the stream.
        dropped_samples: those that did not reach the log.
    """

    def __init__(
        self,
        trial_id: str,
        user_id: str,
        *,
        max_queued_samples: int,
        flush_seconds: float,
        on_full: Callable[[bool], None],
    ) -> None:
        self._trial_id = trial_id
        self._metadata = (("trial-id", trial_id), ("user-id", user_id))
        self._max_queued_samples = max_queued_samples
        self._flush_seconds = flush_seconds
        self._on_full = on_full
        self._queue: deque[DatalogSample] = deque()
        self._parked = trio.lowlevel.ParkingLot()
        self._patience = trio.CancelScope()
        self._full = False
        self._complete = False
        self._lost = False
        self.opened = trio.Event()
        self.failure: RpcError | None = None
        self.dropped_samples = 0

    @property
    def queued_samples(self) -> int:
        """How many samples wait for the sink."""
        return len(self._queue)

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
        """No more samples come; `run` returns when the queued ones are out, or the log takes no more of them."""
        self._complete = True
        self._patience.deadline = trio.current_time() + self._flush_seconds
        self._parked.unpark()

    async def run(self, connections: Connections, target: Target, params: TrialParams) -> None:
        """Connect, send the parameters, then write samples until complete.

        The loss of the data log after that is logged and counted, and the trial goes on. After `Cancelled` what was
        still queued is lost, and logged and counted too.
        """
        try:
            async with (
                connections.open(target) as opener,
                opener.call(RUN_TRIAL_DATALOG, metadata=self._metadata) as call,
            ):
                await call.send(RunTrialDatalogInput(trial_params=params))
                self.opened.set()
                await self._write(call)
        except RpcError as error:
            if not self.opened.is_set():
                self.failure = error
                self.opened.set()
            else:
                self._lose(str(error))
        finally:
            if self._queue:
                self._lose("the orchestrator is stopping")
            if self.dropped_samples:
                _log.warning("trial %s: %d samples did not reach the data log", self._trial_id, self.dropped_samples)

    async def _write(self, call: ClientCall) -> None:
        end = _EndWatch(self._on_reply)
        call.set_consumer(end)
        while True:
            while self._queue:
                # Taken off only once it is sent: the queue's length is the back-pressure.
                if not await self._within_patience(call.send, RunTrialDatalogInput(sample=self._queue[0])):
                    self._lose(f"it took no sample for {self._flush_seconds:g} s")
                    return
                self._queue.popleft()
                if self._full and len(self._queue) <= self._max_queued_samples // 2:
                    self._full = False
                    self._on_full(False)
            if self._complete:
                break
            await self._parked.park()
        await call.done_sending()
        # The log has everything once it has ended the stream.
        if not await self._within_patience(end.ended.wait):
            self._lose(f"it did not end its stream in {self._flush_seconds:g} s")
        elif end.error is not None:
            self._lose(str(end.error))

    async def _within_patience(self, function: Callable[..., Awaitable[None]], *arguments: Any) -> bool:
        """Wait as long as the log may take: for ever while the trial runs, else `flush_seconds`."""
        patience = trio.current_time() + self._flush_seconds if self._complete else math.inf
        with trio.CancelScope(deadline=patience) as self._patience:
            await function(*arguments)
        return not self._patience.cancelled_caught

    def _on_reply(self) -> None:
        # A log that acknowledges what it takes shows that it is alive, however slow.
        if self._complete:
            self._patience.deadline = trio.current_time() + self._flush_seconds

    def _lose(self, why: str) -> None:
        self._lost = True
        self.dropped_samples += len(self._queue)
        self._queue.clear()
        _log.warning("trial %s: the data log is lost: %s", self._trial_id, why)
        if self._full:
            self._full = False
            self._on_full(False)


class _EndWatch:
    """Takes the data log's replies (unread they would close its window), and its end."""

    def __init__(self, on_reply: Callable[[], None]) -> None:
        self._on_reply = on_reply
        self.ended = trio.Event()
        self.error: RpcError | None = None

    def on_message(self, _message: Any) -> None:
        self._on_reply()

    def on_end(self, error: RpcError | None) -> None:
        self.error = error
        self.ended.set()
