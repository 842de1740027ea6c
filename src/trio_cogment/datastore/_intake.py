"""What comes from data logs, over a call or as objects of this process: one way for both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from trio_cogment.api.common_pb2 import TrialParams
from trio_cogment.api.datalog_pb2 import DatalogSample
from trio_cogment.datastore._conversion import TrialConverter
from trio_cogment.datastore._group_commit import Lane, Writer
from trio_cogment.datastore._leases import Leases
from trio_cogment.datastore.storage import EndWrite, TrialEnd, TrialStore, TrialWrite, Write
from trio_cogment.errors import CogmentError, InvalidArgumentError, ResourceExhaustedError, UnavailableError

_INFO = "info"


class IntakeStream:
    """The samples of one trial, as they come; it has the shape of an orchestrator's `SampleStream`.

    Attributes:
        lane: where its samples are written.
        ended: the trial has ended, and that is durable.
    """

    def __init__(self, trial_id: str, params: TrialParams, next_tick: int, writer: Writer, lane: Lane) -> None:
        self._trial_id = trial_id
        self._writer = writer
        self._converter = TrialConverter(trial_id, params, next_tick=next_tick)
        self._never_says = any(name.strip().lower() == _INFO for name in params.datalog.exclude_fields)
        self.lane = lane
        self.ended = False

    @property
    def unconfirmed(self) -> int:
        """How many of the samples taken are not durable."""
        return self.lane.taken - self.lane.durable

    async def write(self, sample: DatalogSample) -> None:
        """Take a sample, which is only read; wait while too much is under way.

        Raises:
            InvalidArgumentError: the sample is no good. All before it are durable.
            CogmentError: an earlier one could not be stored.
        """
        try:
            write = self._converter.write_by_template(sample)
            if write is None:
                for write in self._converter.writing(sample):
                    if write is None:  # a large sample: other tasks get a turn between its steps
                        await trio.lowlevel.checkpoint()
        except InvalidArgumentError:
            # Whoever sent it must be able to tell which one it was.
            await self.flush()
            raise
        assert write is not None
        await trio.lowlevel.checkpoint_if_cancelled()
        if not self.lane.put_nowait(write):
            await self._put(write)

    async def _put(self, write: Write) -> None:
        try:
            await self.lane.put(write)
        except CogmentError as error:
            raise _told(error) from error

    async def flush(self) -> None:
        """Return when all samples are durable.

        Raises:
            CogmentError: one could not be stored.
        """
        try:
            await self.lane.flush()
        except CogmentError as error:
            raise _told(error) from error
        self.ended = self._converter.saw_end

    async def complete(self) -> None:
        """Learn that there are no more samples; return when all are durable.

        Raises:
            CogmentError: one could not be stored.
        """
        await self.flush()
        if not self.ended and (self._never_says or self._converter.info_missing):
            # The state is in `info`, so the end of the stream is all there is to know the trial's by.
            try:
                await self._writer.write(EndWrite(self._trial_id, TrialEnd.ENDED))
            except CogmentError as error:
                raise _told(error) from error
            self.ended = True

    async def progress(self, known: int) -> bool:
        """Wait until more than `known` samples are durable; False: there will be no more."""
        try:
            await self.lane.progress(known)
        except CogmentError:
            return False
        return True


class Intake:
    """Opens streams, one for each data log that has something to say; has the shape of a `SampleSink`.

    Args:
        store: tells what is there already.
        writer: where everything is written.
        leases: told which trials have streams.
        max_unconfirmed: how many samples of a stream of `open` may not be durable.
    """

    def __init__(self, store: TrialStore, writer: Writer, leases: Leases, max_unconfirmed: int | None = None) -> None:
        self._store = store
        self._writer = writer
        self._leases = leases
        self._max_unconfirmed = max_unconfirmed

    @asynccontextmanager
    async def _stream(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[IntakeStream]:
        mine = TrialParams()
        mine.CopyFrom(params)
        stream: IntakeStream | None = None
        self._leases.enter(trial_id)
        try:
            try:
                known = await self._store.trial(trial_id)
                writes: list[Write] = [TrialWrite(trial_id, user_id, mine, logged=True)]
                if known is not None and known.end == TrialEnd.ABNORMAL:
                    writes.append(EndWrite(trial_id, TrialEnd.OPEN))
                await self._writer.write(*writes)
            except CogmentError as error:
                raise _told(error) from error
            lane = self._writer.lane(self._max_unconfirmed)
            stream = IntakeStream(trial_id, mine, 0 if known is None else known.samples_count, self._writer, lane)
            yield stream
        finally:
            self._leases.leave(trial_id, ended=stream is not None and stream.ended)

    @asynccontextmanager
    async def open(self, trial_id: str, user_id: str, params: TrialParams) -> AsyncIterator[IntakeStream]:
        """Store a trial, or its new parameters, and take its samples for the time of the block.

        The block is left at once when a sample cannot be stored.

        Args:
            trial_id: of the trial.
            user_id: who started it.
            params: of the trial; copied.

        Raises:
            CogmentError: something could not be stored.
        """
        async with self._stream(trial_id, user_id, params) as stream:
            with trio.CancelScope() as scope:
                stream.lane.on_failure = scope.cancel
                yield stream
            if scope.cancelled_caught and stream.lane.failure is not None:
                raise _told(stream.lane.failure)


def _told(error: CogmentError) -> CogmentError:
    """Return what a data log is told: that there is no room is no fault of the sample it happened to."""
    return UnavailableError(str(error)) if isinstance(error, ResourceExhaustedError) else error
